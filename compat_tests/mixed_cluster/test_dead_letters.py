"""Records in the state ARCHIVING move between leaders of Apache Kafka 4.4 and pykbroker, and their letters come.

The broker of the dead letter topic is down while a member rejects records, so they stay ARCHIVING. Their leader is
killed then, and the leader of the other kind finishes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Cluster
from compat_tests.mixed_cluster.test_share_coordinator import KAFKA, OURS, SHARES, brokers_of_both
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.nodes import eventually
from testkit.nodes.rejecting_member import ARCHIVING, RejectingMember, enable_letters, letter_offsets
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import NEWEST, kafka_libs
from testkit.share_requests import ACCEPT, REJECT

pytestmark = pytest.mark.slow

#: the broker of the dead letter topics
LETTERS = 3
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    kafka_libs(NEWEST)
    levels = ("--feature", "share.version=2")
    with brokers_of_both(new_cluster, LETTERS, words=levels, settings=SETTINGS, kafka=NEWEST) as made:
        yield made


@pytest.mark.parametrize(("before", "after"), [(KAFKA, OURS), (OURS, KAFKA)], ids=["to pykbroker", "to Apache Kafka"])
def test_another_leader_writes_the_letters(cluster: Cluster, before: int, after: int) -> None:
    topic = cluster.create(f"from-{before}", (before, after))
    queue = cluster.create(f"dlq.from-{before}", (LETTERS,))
    group = f"group-{before}"
    with Wire(cluster.address(before)) as wire, Wire(cluster.address(after)) as other:
        enable_letters(wire, queue)
        for value in range(10):
            assert wire.produce(topic, batch(b"%d" % value)).error_code == ErrorCode.NONE
        member = RejectingMember(wire, group, topic)
        cluster.place(SHARES, (after, before))
        cluster.move(SHARES, after)
        member.begin(other)
        member.queue(queue)
        cluster.stop(LETTERS)
        eventually("all records", lambda: sum(last - first + 1 for first, last, _ in member.acquire()) == 10)
        member.acknowledge((0, 2, REJECT), (3, 3, ACCEPT), (4, 4, REJECT))
        states = member.stored(other)
        assert {offset for offset, state in states.items() if state == ARCHIVING} == {0, 1, 2, 4}
        cluster.kill(before)
        eventually("another leader", lambda: cluster.leaders(topic) == {0: after})
        successor = RejectingMember(other, group, topic)
        came = eventually("the other records", successor.acquire)
        assert {offset for first, last, _ in came for offset in range(first, last + 1)} == set(range(5, 10))
        cluster.start(LETTERS)
        with Wire(cluster.address(LETTERS)) as reader:
            eventually("all letters", lambda: {*letter_offsets(reader, queue)} == {0, 1, 2, 4})
            successor.acknowledge((5, 9, ACCEPT))
            eventually("nothing is left", lambda: successor.is_done(10))
            assert {*letter_offsets(reader, queue)} == {0, 1, 2, 4}
    cluster.start(before)
    cluster.in_sync(topic, SHARES)
