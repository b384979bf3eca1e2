"""`pykbroker.metrics.listener`: the metrics that Prometheus reads from a running node."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pykbroker.config.load import development_profile, load
from testkit.acting import acts
from testkit.nodes.processes import Process, format_combined, run

pytestmark = pytest.mark.slow


@acts(broker=("pykbroker.metrics.listener",))
def test_a_node_answers_prometheus(tmp_path: Path) -> None:
    properties = {"log.dirs": tmp_path / "data", "pykbroker.metrics.listener": "127.0.0.1:0"}
    with Process(tmp_path / "log", str(format_combined(tmp_path, properties))) as process:
        process.ready()
        found = re.search(r"Metrics for Prometheus are at (http://\S+)", (tmp_path / "log").read_text(encoding="utf-8"))
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=60) as answer:
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        assert families["kafka_controller_kafkacontroller_activebrokercount"].samples[0].value == 1
        assert families["kafka_network_requestmetrics_requests"].type == "counter"
        for path, method, status in (("/", "GET", 404), ("/metrics", "POST", 405)):
            asked = urllib.request.Request(found[1].replace("/metrics", path), method=method)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=60)
            assert refused.value.code == status


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_off_loopback_a_secured_node_warns_and_tells_no_secrets(tmp_path: Path, host: str) -> None:
    properties = {
        "log.dirs": tmp_path / "data",
        "pykbroker.metrics.listener": f"{host}:0",
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="planted-user" password="planted-secret" user_planted-user="planted-secret";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:planted-user",
    }
    with Process(tmp_path / "log", str(format_combined(tmp_path, properties))) as process:
        process.ready()
        said = (tmp_path / "log").read_text(encoding="utf-8")
        warnings = [line for line in said.splitlines() if " WARN" in line and "asks for no credentials" in line]
        assert len(warnings) == (host != "127.0.0.1")
        port = re.search(r"Metrics for Prometheus are at http://\S+:(\d+)/metrics", said)
        assert port is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=60) as answer:
            assert "planted" not in answer.read().decode()
        assert "planted-secret" not in (tmp_path / "log").read_text(encoding="utf-8")


def test_nothing_answers_http_by_itself(tmp_path: Path) -> None:
    config = load(development_profile(str(tmp_path), 0))
    assert config.optional_str("pykbroker.metrics.listener") is None
    assert config.optional_str("pykbroker.health.socket") is None


def test_an_address_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = format_combined(tmp_path, {"log.dirs": tmp_path / "data", "pykbroker.metrics.listener": address})
        started = run("start", str(file))
    assert started.returncode == 1
    assert f"pykbroker: pykbroker.metrics.listener={address}: " in started.stderr
    assert "Traceback" not in started.stderr


@pytest.mark.parametrize("address", ["9404", "localhost:", "localhost:70000", "http://"])
def test_what_is_no_address_stops_the_start(tmp_path: Path, address: str) -> None:
    started = run("start", "--data-dir", str(tmp_path / "data"), "--set", f"pykbroker.metrics.listener={address}")
    assert started.returncode != 0
    assert f"Invalid value {address} for configuration pykbroker.metrics.listener" in started.stderr
