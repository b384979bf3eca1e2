"""The other Compose files of docker/, the script of `make up`, and the check of all of them by Compose v2."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.built import go_program
from compat_tests.container.conftest import Projects
from compat_tests.container.containers import EVERY_S, PATIENCE_S
from compat_tests.container.host_clients import Traffic, consume, produce, records_in, topics_at
from compat_tests.container.projects import FOLDER, SECRETS, Project
from pykbroker.__main__ import main as generate
from testkit.clients import wait_until

#: The engine may have to make a base image first.
pytestmark = pytest.mark.timeout(900)

BROKERS = {11: 1, 12: 2, 13: 3}
INSIDE = "broker-1:19092,broker-2:19092,broker-3:19092"


def active_controller(cluster: Project) -> str:
    """Return the service of the node that leads the quorum."""

    def asked() -> str | None:
        said = cluster.run_in("broker-1", "kafka-metadata-quorum", "--bootstrap-server", INSIDE, "describe", "--status")
        fields = dict(line.split(":", 1) for line in said.splitlines())
        leader = int(fields["LeaderId"])
        return f"controller-{leader}" if leader > 0 else None

    return wait_until(asked, "the quorum has a leader", timeout_s=PATIENCE_S, every_s=EVERY_S)


def test_isolated_controllers(new_project: Projects) -> None:
    cluster = new_project("compose.isolated.yaml")
    cluster.compose("up", "-d")
    cluster.has_brokers(BROKERS)
    cluster.serves("controller-1", "controller-2", "controller-3")
    topic = cluster.create_topic()
    cluster.in_sync(topic, 11, 12, 13)
    with Traffic(cluster.bootstrap(), topic) as traffic:
        traffic.goes_on()
        gone = active_controller(cluster)
        cluster.compose("kill", "-s", "KILL", gone)
        # Another controller takes over.
        more = cluster.create_topic()
        cluster.in_sync(more, 11, 12, 13)
        assert active_controller(cluster) != gone
        traffic.goes_on()
        cluster.compose("up", "-d")
        cluster.serves(gone)
        sent = traffic.finish()
    assert records_in(cluster.bootstrap(), topic) == sent
    cluster.run_in(
        "broker-1", "kafka-console-producer", "--bootstrap-server", INSIDE, "--topic", more, stdin="one\ntwo\n"
    )
    assert sorted(consume(cluster.bootstrap(3), more, 2)) == ["one", "two"]
    cluster.down("-v")


def script(project: Project, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script of `make up` and `make down`."""
    return subprocess.run(
        [str(FOLDER / "cluster.sh"), *words],
        env={**project.variables, "PYKBROKER_TOPICS": "orders:2:1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


def test_one_node_by_the_script(new_project: Projects) -> None:
    node = new_project("compose.single.yaml")
    up = script(node, "up", "single")
    assert up.returncode == 0, up.stderr
    assert up.stdout.splitlines()[-1] == f"cluster: serves at {node.bootstrap(1)}"
    # It printed this when the node served, so nothing here waits.
    assert topics_at(node.bootstrap(1)) == {"orders": 2}
    produce(node.bootstrap(1), "orders", ["one", "two"])
    assert sorted(consume(node.bootstrap(1), "orders", 2)) == ["one", "two"]
    down = script(node, "down", "single")
    assert down.returncode == 0, down.stderr
    assert node.containers() == {}
    node.compose("up", "-d")
    assert sorted(consume(node.bootstrap(1), "orders", 2)) == ["one", "two"]


def test_a_secured_cluster_by_the_script(new_project: Projects, tmp_path: Path) -> None:
    cluster = new_project("compose.secured.yaml")
    up = script(cluster, "up", "secured")
    assert up.returncode == 0, up.stderr
    # Users exist already, so nothing here waits.
    authority = tmp_path / "authority.pem"
    admin = AdminClient({**cluster.logged_in("admin", authority)})
    alice = cluster.logged_in("alice", authority)
    admin.create_topics([NewTopic("orders", 3)])["orders"].result(PATIENCE_S)

    def sent() -> object:
        """Return the result of a record of alice's: None, or an error."""
        told: list[object] = []
        producer = Producer(alice)
        producer.produce("orders", b"one", on_delivery=lambda error, _: told.append(error and error.code()))
        assert producer.flush(PATIENCE_S) == 0
        return told[0]

    assert sent() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = ["acls", "add", "alice", "--topic", "orders", "--role", "producer"]
    where = ["-b", "node-1:19092", "--command-config", f"{SECRETS}/admin.properties"]
    cluster.run_in("node-3", "pykbroker", *rule, *where)
    wait_until(lambda: sent() is None, "alice may write", timeout_s=PATIENCE_S)
    assert cluster.seen_by(1) is None, "a client that does not log in is told nothing"
    # The second time, everything exists already.
    assert script(cluster, "up", "secured").returncode == 0
    assert sent() is None


def test_the_script_names_the_files_that_are_there(new_project: Projects) -> None:
    said = script(new_project("compose.single.yaml"), "up", "double")
    assert said.returncode == 1
    assert "there is no docker/compose.double.yaml" in said.stderr
    assert "compose.isolated.yaml" in said.stderr


# -- one file, two programs

FILES = sorted(path.name for path in FOLDER.glob("compose*.yaml"))


@pytest.fixture(scope="module")
def compose_v2() -> Path:
    """A program around the library with which Compose v2 reads its files: schema, profiles, variables."""
    return go_program(Path(__file__).with_name("compose_v2"))


@pytest.mark.parametrize("file", FILES)
def test_both_versions_of_compose_read_the_file(new_project: Projects, compose_v2: Path, file: str) -> None:
    project = new_project(file)
    read = subprocess.run(
        [str(compose_v2), str(project.path)], env=project.variables, capture_output=True, text=True, check=False
    )
    assert (read.returncode, read.stderr) == (0, "")
    services = json.loads(read.stdout)["services"]
    assert set(services) == set(project.compose("--profile", "four", "config", "--services").split())
    nodes = [service for service in services.values() if "KAFKA_NODE_ID" in (service.get("environment") or {})]
    published = sorted(
        (port["host_ip"], int(port["published"]), port["target"]) for node in nodes for port in node.get("ports") or ()
    )
    assert published == sorted(("127.0.0.1", port, 9092) for port in list(project.ports.values())[: len(published)])
    for node in nodes:
        assert node["stop_grace_period"] == "1m0s"
        places = {(volume["type"], volume["target"]) for volume in node["volumes"]}
        assert places - {("volume", "/etc/kafka/secrets")} == {("volume", "/var/lib/kafka/data")}
        if node["image"] == project.image:
            assert "healthcheck" not in node, "the image has one"
        else:
            assert node["image"] == "pykbroker-apache-kafka:latest"


@pytest.mark.parametrize("security", ["ssl", "sasl_ssl"])
def test_both_versions_of_compose_read_a_generated_secured_file(
    compose_v2: Path, tmp_path: Path, security: str
) -> None:
    file = tmp_path / "compose.yaml"
    assert generate(["generate", "compose", "--security", security, "-o", str(file)]) == 0
    read = subprocess.run([str(compose_v2), str(file)], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    project = Project("i", "compose.yaml")
    project.path = file
    services = json.loads(read.stdout)["services"]
    assert set(services) == set(project.compose("config", "--services").split())
    assert {secret["source"] for secret in services["node-1"]["secrets"]} == {"node.pem", "authority.pem"}
    assert services["node-1"]["user"] == "1000:0"
