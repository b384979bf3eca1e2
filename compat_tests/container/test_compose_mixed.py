"""docker/compose.mixed.yaml: two nodes of pykbroker and one of Apache Kafka, each a broker and a voter."""

from __future__ import annotations

import pytest

from compat_tests.container.conftest import Projects
from compat_tests.container.containers import EVERY_S, PATIENCE_S
from compat_tests.container.host_clients import Traffic, consume, produce, records_in
from compat_tests.container.projects import Project
from testkit.clients import wait_until

#: The engine may have to make a base image first.
pytestmark = pytest.mark.timeout(900)

NODES = {1: 1, 2: 2, 3: 3}
APACHE_KAFKA = "node-3"
INSIDE = "node-1:19092,node-2:19092,node-3:19092"


def quorum(cluster: Project, service: str) -> dict[int, tuple[int, str]]:
    """Return voter -> its lag and its status, from the tool of a node: pykbroker's or Apache Kafka's."""
    tool: tuple[str, ...] = ("kafka-metadata-quorum",)
    if service == APACHE_KAFKA:
        tool = ("java", "-cp", "/opt/kafka/libs/*", "org.apache.kafka.tools.MetadataQuorumCommand")
    said = cluster.run_in(service, *tool, "--bootstrap-server", INSIDE, "describe", "--replication")
    rows = [line.split() for line in said.splitlines() if line[:1].isdigit()]
    return {int(row[0]): (int(row[3]), row[6]) for row in rows}


def voters_follow(cluster: Project, service: str) -> None:
    """Wait until one of the three leads and two follow it without a lag."""

    def follow() -> bool:
        found = quorum(cluster, service)
        return sorted(status for _, status in found.values()) == ["Follower", "Follower", "Leader"] and all(
            lag == 0 for lag, _ in found.values()
        )

    wait_until(follow, f"{service} sees a leader and two followers", timeout_s=PATIENCE_S, every_s=EVERY_S)


def test_both_are_brokers_and_voters(new_project: Projects, apache_kafka_image: str) -> None:
    cluster = new_project("compose.mixed.yaml")
    cluster.more["PYKBROKER_APACHE_KAFKA_IMAGE"] = apache_kafka_image
    cluster.compose("up", "-d")
    cluster.has_brokers(NODES)
    voters_follow(cluster, "node-1")
    voters_follow(cluster, APACHE_KAFKA)
    topic = cluster.create_topic()
    cluster.in_sync(topic, 1, 2, 3)
    # Each of them leads a partition, and follows the others.
    assert {part.leader for part in cluster.partitions(topic).values()} == {1, 2, 3}
    with Traffic(cluster.bootstrap(), topic) as traffic:
        traffic.goes_on()
        # With one of pykbroker's nodes down, the other one and Apache Kafka's are the majority, so it votes.
        cluster.compose("stop", "node-1")
        cluster.has_brokers({2: 2, 3: 3})
        meanwhile = cluster.create_topic_on(2, 3)
        traffic.goes_on()
        cluster.compose("up", "-d")
        cluster.serves("node-1")
        cluster.in_sync(topic, 1, 2, 3)
        cluster.compose("stop", APACHE_KAFKA)
        cluster.has_brokers({1: 1, 2: 2})
        traffic.goes_on()
        cluster.compose("up", "-d")
        cluster.in_sync(topic, 1, 2, 3)
        traffic.goes_on()
        sent = traffic.finish()
    assert records_in(cluster.bootstrap(), topic) == sent
    # It has learned the changes that were made while it was down.
    cluster.in_sync(meanwhile, 2, 3)
    produce(cluster.bootstrap(1), meanwhile, ["one", "two"])
    assert sorted(consume(cluster.bootstrap(3), meanwhile, 2)) == ["one", "two"]
    voters_follow(cluster, "node-2")
