"""The time that a producer waits if one of three containers is killed, whose address is gone and refuses nothing."""

from __future__ import annotations

import statistics
import time
from itertools import cycle, islice

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.container.conftest import Projects
from compat_tests.container.containers import PATIENCE_S, docker
from compat_tests.container.projects import Project
from testkit.clients import wait_until
from testkit.writers import Librdkafka

KILLS = 10
NODES = {"node-1": 1, "node-2": 2, "node-3": 3}
MOST_SECONDS, MOST_SECONDS_IN_THE_MEDIAN = 4.0, 2.0


def led_by_the_first_replica(cluster: Project, topic: str) -> None:
    """Make each node lead a partition again."""
    partitions = cluster.partitions(topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap(), "log_level": 0})
    asked = [TopicPartition(topic, number) for number in partitions]

    def led() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, asked).result(PATIENCE_S)
        return all(part.leader == part.replicas[0] for part in cluster.partitions(topic).values())

    wait_until(led, "each node leads a partition", timeout_s=PATIENCE_S)


def writes_for(writer: Librdkafka, seconds: float) -> None:
    """Wait until each partition has an acknowledgement after this time."""
    moment = time.monotonic() + seconds
    wait_until(
        lambda: all(series.later_than(moment) for series in writer.acknowledged.values()), "the producer goes on"
    )


@pytest.mark.long(amount="ten kills of one of three containers")
@pytest.mark.timeout(1800)
def test_a_producer_waits_for_no_session(new_project: Projects) -> None:
    cluster = new_project("compose.yaml")
    cluster.compose("up", "-d")
    cluster.has_brokers({number: number for number in NODES.values()})
    topic = cluster.create_topic()
    cluster.in_sync(topic, *NODES.values())
    writer = Librdkafka(cluster.bootstrap(), topic, sorted(cluster.partitions(topic)))
    writer.start()

    pauses = []
    try:
        for service in islice(cycle(NODES), KILLS):
            led_by_the_first_replica(cluster, topic)
            writes_for(writer, 1)
            began = time.monotonic()
            docker("kill", cluster.containers()[service])
            # The second time too, because a wait that occurred once may occur again.
            writes_for(writer, 1)
            writes_for(writer, 3)
            end = time.monotonic()
            pauses.append(max(each.longest_pause(began, end) for each in writer.acknowledged.values()))
            cluster.compose("up", "-d", service)
            cluster.in_sync(topic, *NODES.values())
    finally:
        writer.stop()
    said = " ".join(f"{pause:.2f}" for pause in pauses)
    print(f"pauses of {said} s, {statistics.median(pauses):.2f} s in the median")
    assert writer.failures == []
    assert statistics.median(pauses) <= MOST_SECONDS_IN_THE_MEDIAN
    assert max(pauses) <= MOST_SECONDS
