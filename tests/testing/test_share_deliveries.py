"""The records that a share group has in flight, read from the nodes of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

import pykbroker
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ACQUIRED, AVAILABLE, DeliveryRange
from pykbroker.testing import Cluster, ExistingCluster, InspectedDelivery, NotInThisProcess
from pykbroker.testing.share_deliveries import in_flight
from pykbroker.tools.cluster import configs
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings, PartitionName
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.share_group_reader import ShareGroupReader, WantedShare
from pykbroker.tools.cluster.share_member_session import ACCEPT, RELEASE

RECORDS = 6


@contextmanager
def member(node: pykbroker.Broker | Cluster, group: str, topic: str, kind: int, count: int) -> Iterator[list[int]]:
    """A member that has records of the topic, and acknowledges them at the end of the block; yields their offsets."""

    def on_acknowledged(place: PartitionName, offsets: Sequence[int], error: AskFailed | None) -> None:
        if error is not None:
            raise error

    with AskedCluster(ClusterSettings(tuple(node.bootstrap_servers.split(",")))) as cluster:
        changes = configs.changes_of({"share.auto.offset.reset": "earliest"})
        configs.alter(cluster, (configs.ResourceKind.GROUP, group), changes)
        reader = ShareGroupReader(cluster, WantedShare(group, [topic], kind, count=count), on_acknowledged)
        yield [record.offset for record in next(reader.batches())]
        reader.close()


def filled(node: pykbroker.Broker | Cluster, topic: str) -> None:
    node.create_topic(topic, partitions=1)
    for number in range(RECORDS):
        node.produce(topic, b"%d" % number)


def told(found: list[InspectedDelivery]) -> list[tuple[int, int, str, int]]:
    return [(one.first_offset, one.last_offset, one.state, one.delivery_count) for one in found]


def test_what_members_hold_and_what_they_gave_back() -> None:
    with pykbroker.Broker() as broker:
        filled(broker, "jobs")
        assert broker.deliveries("workers") == []
        with member(broker, "workers", "jobs", RELEASE, 3) as offsets:
            assert offsets == [0, 1, 2]
            (held,) = broker.deliveries("workers")
            assert (held.topic, held.partition) == ("jobs", 0)
            assert told([held]) == [(0, 2, "Acquired", 1)]
            (one,) = broker.group("workers").members
            assert (held.member_id, one.assignment) == (one.member_id, (("jobs", 0),))
            assert held.lock_left_ms is not None
            # The ends of locks are rounded up.
            assert held.lock_left_ms <= 31_000
            assert broker.deliveries("others") == []
        group = broker.group("workers")
        assert (group.type, group.state, group.protocol, group.members) == ("share", "Empty", "simple", ())
        assert [one.group_id for one in broker.groups()] == ["workers"]
        # The last session of the group has ended, and its leaders with it.
        assert broker.deliveries("workers") == []
        with member(broker, "workers", "jobs", ACCEPT, 1):
            # The first offset is held now, and the others were delivered once.
            assert told(broker.deliveries("workers")) == [(0, 0, "Acquired", 2), (1, 2, "Available", 1)]
        assert broker.start_offsets("workers") == {("jobs", 0): 0}
        with member(broker, "workers", "jobs", ACCEPT, 5):
            assert told(asyncio.run(broker.deliveries_async("workers"))) == told(broker.deliveries("workers"))
        assert asyncio.run(broker.start_offsets_async("workers"))["jobs", 0] > 0
        with pytest.raises(LookupError, match="there is no share group others"):
            broker.start_offsets("others")


@pytest.mark.slow
def test_a_cluster_asks_the_leaders_of_the_partitions() -> None:
    with Cluster(3) as cluster:
        filled(cluster, "jobs")
        with member(cluster, "workers", "jobs", ACCEPT, 2):
            assert told(cluster.deliveries("workers")) == [(0, 1, "Acquired", 1)]
            with ExistingCluster(cluster.bootstrap_servers) as outside:
                assert outside.group("workers").type == "share"
                with pytest.raises(NotInThisProcess):
                    outside.deliveries("workers")


def test_ranges_are_cut_at_the_borders_of_locks() -> None:
    ranges = [DeliveryRange(0, 9, ACQUIRED, 1), DeliveryRange(10, 12, AVAILABLE, 2), DeliveryRange(13, 14, ACQUIRED, 3)]
    locks = [(13, 14, "b", 5_000), (0, 3, "a", 9_000), (6, 9, "b", 2_000)]
    found = list(in_flight("t", 4, ranges, locks, 4_000))
    assert [(one.topic, one.partition) for one in found] == [("t", 4)] * 5
    assert [(*told([one]), one.member_id, one.lock_left_ms) for one in found] == [
        ((0, 3, "Acquired", 1), "a", 5_000),
        # The answer to a release is out: the record is held by nobody.
        ((4, 5, "Acquired", 1), None, None),
        ((6, 9, "Acquired", 1), "b", 0),
        ((10, 12, "Available", 2), None, None),
        ((13, 14, "Acquired", 3), "b", 1_000),
    ]
    assert told(list(in_flight("t", 0, [DeliveryRange(0, 1, ACKNOWLEDGED, 1)], [], 0))) == [(0, 1, "Acknowledged", 1)]
