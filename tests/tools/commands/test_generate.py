"""`pykbroker generate`: its options, the destination of its text, and its errors. tests/tools/manifests/ tests the
text."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pykbroker import __version__
from pykbroker.__main__ import main


def generate(*arguments: str) -> int:
    return main(["generate", *arguments])


def test_kubernetes(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("kubernetes") == 0
    *_, plain = yaml.safe_load_all(capsys.readouterr().out)
    assert plain["spec"]["replicas"] == 3
    assert plain["spec"]["template"]["spec"]["containers"][0]["image"] == f"pykbroker:{__version__}"
    options = (
        *("--name", "kafka", "--namespace", "shop", "--replicas", "5", "--image", "i:1", "--cluster-id", "A" * 22),
        *("--storage", "7Gi", "--storage-class", "fast", "--memory", "3Gi", "--cpu", "2"),
    )
    assert generate("kubernetes", *options) == 0
    *_, chosen = yaml.safe_load_all(capsys.readouterr().out)
    assert chosen["metadata"] | {"labels": {}} == {"name": "kafka", "namespace": "shop", "labels": {}}
    (container,) = chosen["spec"]["template"]["spec"]["containers"]
    (claim,) = chosen["spec"]["volumeClaimTemplates"]
    assert (chosen["spec"]["replicas"], container["image"]) == (5, "i:1")
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "3Gi"}
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "7Gi"}}
    assert {"name": "CLUSTER_ID", "value": "A" * 22} in container["env"]


def test_compose(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--brokers", "4", "--port", "19000", "--host", "h.example", "--bind", "0.0.0.0", "--image", "i:1")
    assert generate("compose", *options, "--cluster-id", "A" * 22) == 0
    nodes = yaml.safe_load(capsys.readouterr().out)["services"]
    assert len(nodes) == 4
    last = nodes["node-4"]
    assert (last["image"], last["ports"]) == ("i:1", ["0.0.0.0:19003:9092"])
    assert last["environment"]["KAFKA_ADVERTISED_LISTENERS"].endswith("HOST://h.example:19003")
    assert last["environment"]["CLUSTER_ID"] == "A" * 22


def test_every_kind_has_a_secured_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("compose", "--security", "SASL_SSL", "--user", "bob", "--metrics-port", "9404") == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert set(found["secrets"]) == {"node.pem", "authority.pem", "admin.password", "bob.password"}
    assert found["services"]["node-3"]["ports"] == ["127.0.0.1:9094:9092", "127.0.0.1:9406:9404"]
    assert generate("kubernetes", "--security", "sasl_ssl") == 0
    assert "Job" in {each["kind"] for each in yaml.safe_load_all(capsys.readouterr().out)}
    assert generate("systemd", "--security", "ssl") == 0
    assert "LoadCredential=node.pem:/etc/pykbroker/secrets/node.pem" in capsys.readouterr().out.splitlines()
    assert generate("compose", "--security", "ssl", "--user", "bob") == 1
    assert capsys.readouterr().err == "pykbroker: users log in with --security sasl_ssl alone\n"


def test_prometheus(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("prometheus", "--target", "a", "--target", "b:1", "--job", "j", "--interval", "5") == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["global"]["scrape_interval"] == "5s"
    (job,) = config["scrape_configs"]
    assert (job["job_name"], job["static_configs"]) == ("j", [{"targets": ["a:9404", "b:1"]}])
    assert generate("prometheus", "--target", "a", "--rules") == 0
    assert yaml.safe_load(capsys.readouterr().out)["groups"][0]["rules"]
    assert generate("prometheus") == 1
    assert capsys.readouterr().err == "pykbroker: no node is named: give --target HOST:PORT for each\n"


def test_systemd_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pykbroker.service"
    options = ("--properties", "/etc/a", "--user", "kafka", "--data", "/d1", "--data", "/d2", "--program", "/opt/p")
    assert generate("systemd", *options, "-o", str(file)) == 0
    assert capsys.readouterr() == ("", "")
    lines = file.read_text().splitlines()
    assert {"User=kafka", "ReadWritePaths=/d1 /d2"} <= set(lines)
    assert any(line.startswith("ExecStart=/opt/p start /etc/a ") for line in lines)
    assert generate("systemd") == 0
    assert "/bin/pykbroker start /etc/pykbroker/server.properties " in capsys.readouterr().out


def test_what_is_refused_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    assert generate("kubernetes", "--replicas", "4", "-o", str(file)) == 1
    assert capsys.readouterr() == ("", "pykbroker: 4 replicas: each is a voter, so there are 1, 3 or 5\n")
    assert not file.exists()
    absent = tmp_path / "absent" / "file"
    assert generate("compose", "-o", str(absent)) == 1
    assert capsys.readouterr().err == f"pykbroker: {absent}: No such file or directory\n"
    assert generate("nomad") == 2
    assert "No such command 'nomad'. " in capsys.readouterr().err
