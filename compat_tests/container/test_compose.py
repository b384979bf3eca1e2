"""docker/compose.yaml with real docker-compose: clients, a node that is killed, a fourth broker, an upgrade.

The tests share one cluster. Each finds it whole and leaves it whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, TopicPartition

from compat_tests.container.conftest import Projects
from compat_tests.container.containers import EVERY_S, PATIENCE_S, docker
from compat_tests.container.host_clients import Traffic, consume, produce, records_in
from compat_tests.container.projects import Project
from testkit.clients import wait_until

#: The engine may have to make a base image first.
pytestmark = pytest.mark.timeout(900)

NODES = ("node-1", "node-2", "node-3")
THREE = {1: 1, 2: 2, 3: 3}
INSIDE = "node-1:19092,node-2:19092,node-3:19092"


@pytest.fixture(scope="module")
def next_image(image: str) -> Iterator[str]:
    """The same image under another tag, which Compose takes for another image."""
    tag = f"pykbroker:{uuid.uuid4().hex[:12]}"
    docker("tag", image, tag)
    yield tag
    docker("rmi", "-f", tag)


@pytest.fixture(scope="module")
def project(next_image: str, new_project: Projects) -> Project:
    """The tag is removed after the containers that use it."""
    return new_project("compose.yaml")


@pytest.fixture
def cluster(project: Project) -> Iterator[Project]:
    """Three nodes that serve, in whatever state the test before left them."""
    project.compose("up", "-d")
    project.has_brokers(THREE)
    yield project
    if "node-4" in project.containers():  # of a test that failed
        project.compose("--profile", "four", "rm", "-sfv", "node-4")


def moved(cluster: Project, topic: str, replicas: dict[int, list[int]]) -> None:
    """Move the partitions, as soon as they exist."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap().split(","), request_timeout_ms=30_000)
    try:
        wanted = {TopicPartition(topic, number): brokers for number, brokers in replicas.items()}
        assert admin.alter_partition_reassignments(wanted) == dict.fromkeys(wanted)
        wait_until(
            lambda: not admin.list_partition_reassignments(list(wanted)), "the moves are done", timeout_s=PATIENCE_S
        )
    finally:
        admin.close()


def folders(cluster: Project, service: str, topic: str) -> set[str]:
    listed = cluster.run_in(service, "ls", "/var/lib/kafka/data").split()
    return {name for name in listed if name.startswith(f"{topic}-") and not name.endswith("-delete")}


def test_clients_of_the_host_and_inside(cluster: Project) -> None:
    topic = cluster.create_topic()
    cluster.in_sync(topic, 1, 2, 3)
    # Every broker leads a partition, so records go through each broker's own port.
    assert {part.leader for part in cluster.partitions(topic).values()} == {1, 2, 3}
    sent = [f"host {number}" for number in range(300)]
    produce(cluster.bootstrap(1), topic, sent)
    read = cluster.run_in(
        "node-2", "kafka-console-consumer", "--bootstrap-server", "node-3:19092", "--topic", topic, "--from-beginning",
        "--max-messages", "300",
    )  # fmt: skip
    assert sorted(read.splitlines()) == sorted(sent)
    cluster.run_in(
        "node-3", "kafka-console-producer", "--bootstrap-server", INSIDE, "--topic", topic, stdin="one\ntwo\nthree\n"
    )
    assert sorted(consume(cluster.bootstrap(2), topic, 303)) == sorted([*sent, "one", "two", "three"])
    configs = cluster.run_in("node-1", "kafka-topics", "--bootstrap-server", INSIDE, "--describe", "--topic", topic)
    assert "ReplicationFactor: 3" in configs
    assert "min.insync.replicas=2" in configs
    # The engine's own probe, which Compose's `up --wait` and `depends_on` use.
    for service, container in cluster.containers().items():
        wait_until(
            lambda found=container: docker("inspect", "-f", "{{.State.Health.Status}}", found).stdout == "healthy\n",  # type: ignore[misc]
            f"{service} is healthy",
            timeout_s=PATIENCE_S,
            every_s=EVERY_S,
        )


def _is_fenced_early(cluster: Project, broker: int) -> bool:
    logs = [docker("logs", found) for found in cluster.containers().values()]
    lines = "".join(log.stdout + log.stderr for log in logs).splitlines()
    return any(f"Fencing broker {broker} at" in line and "before its session has timed out" in line for line in lines)


def test_a_node_is_killed(cluster: Project) -> None:
    topic = cluster.create_topic()
    with Traffic(cluster.bootstrap(), topic) as traffic:
        traffic.goes_on()
        cluster.compose("kill", "-s", "KILL", "node-2")
        assert set(cluster.containers()) == {"node-1", "node-3"}
        cluster.has_brokers({1: 1, 3: 3})
        traffic.goes_on()
        # Its address is gone and refuses nothing, so its death is detected by the end of its connections, not of its
        # session.
        wait_until(lambda: _is_fenced_early(cluster, 2), "node-2 is fenced before its session is over", every_s=EVERY_S)
        # Two replicas are enough for acks=all.
        cluster.compose("up", "-d", "node-2")
        cluster.in_sync(topic, 1, 2, 3)
        traffic.goes_on()
        traffic.finish()


def test_a_fourth_broker_comes_and_goes(cluster: Project) -> None:
    topic = cluster.create_topic()
    with Traffic(cluster.bootstrap(), topic) as traffic:
        traffic.goes_on()
        cluster.compose("--profile", "four", "up", "-d")
        cluster.has_brokers({**THREE, 4: 4})
        moved(cluster, topic, {0: [4, 1, 2], 1: [2, 4, 3], 2: [3, 1, 4]})
        assert folders(cluster, "node-4", topic) == {f"{topic}-{number}" for number in range(3)}
        assert all(4 in part.isrs for part in cluster.partitions(topic).values())
        traffic.goes_on()
        # The broker is drained to the three others; __consumer_offsets never was on it.
        moved(cluster, topic, {number: [1, 2, 3] for number in range(3)})
        cluster.in_sync(topic, 1, 2, 3)
        cluster.compose("--profile", "four", "rm", "-sfv", "node-4")
        cluster.has_brokers(THREE)
        gone = cluster.run_in("node-1", "kafka-cluster", "unregister", "--bootstrap-server", INSIDE, "--id", "4")
        assert gone == "Broker 4 is no longer registered.\n"
        traffic.goes_on()
        sent = traffic.finish()
    # The idempotent producer wrote each record once.
    assert records_in(cluster.bootstrap(), topic) == sent


def test_down_keeps_the_data(cluster: Project) -> None:
    topic = cluster.create_topic()
    sent = [f"kept {number}" for number in range(100)]
    produce(cluster.bootstrap(), topic, sent)
    group = uuid.uuid4().hex
    read = (
        "kafka-console-consumer", "--bootstrap-server", INSIDE, "--topic", topic, "--group", group, "--from-beginning",
    )  # fmt: skip
    first = cluster.run_in("node-1", *read, "--max-messages", "60").splitlines()
    cluster.down()
    cluster.compose("up", "-d")
    cluster.has_brokers(THREE)
    cluster.in_sync(topic, 1, 2, 3)
    # The group continues where it was, because its offsets were kept as well.
    rest = cluster.run_in("node-1", *read, "--max-messages", "40").splitlines()
    assert sorted(first + rest) == sorted(sent)


def test_a_rolling_upgrade(cluster: Project, next_image: str) -> None:
    topic = cluster.create_topic()
    before = cluster.containers()
    cluster.image = next_image
    with Traffic(cluster.bootstrap(), topic) as traffic:
        traffic.goes_on()
        for node in NODES:
            cluster.compose("up", "-d", "--no-deps", node)
            cluster.serves(node)
            for name in (topic, "__consumer_offsets"):
                cluster.in_sync(name, 1, 2, 3)
            traffic.goes_on()
        sent = traffic.finish()
    after = cluster.containers()
    for node in NODES:
        assert after[node] != before[node]
        assert docker("inspect", "-f", "{{.Config.Image}}", after[node]).stdout.strip() == next_image
    assert records_in(cluster.bootstrap(), topic) == sent
