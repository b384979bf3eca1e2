"""A reassignment that has not ended when the last node of one broker stops goes on under the other broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Cluster, Kind, Member, reassign
from pykbroker_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

#: The only controller, and the broker that is away while the first one changes hands.
FIRST, AWAY = 1, 2
OTHER: dict[Kind, Kind] = {"kafka": "pykbroker", "pykbroker": "kafka"}


def being_added(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    """Return the replicas that are being added to each partition."""
    with Wire(cluster.address(FIRST)) as wire:
        found = wire.call(ListPartitionReassignmentsRequest(topics=None)).topics
    return {
        each.partition_index: list(each.adding_replicas)
        for one in found
        if one.name == topic
        for each in one.partitions
    }


@pytest.mark.parametrize("kind", OTHER)
def test_an_unfinished_reassignment_goes_on(kind: Kind, new_cluster: NewCluster) -> None:
    members = {FIRST: Member(kind), AWAY: Member(kind, "broker")}
    with new_cluster(members, own_tools=kind == "kafka") as cluster:
        cluster.start_all()
        cluster.serving(FIRST, AWAY)
        topic = cluster.create("moves", [FIRST])
        with Wire(cluster.address(FIRST)) as wire:
            for number in range(20):
                wire.produce(topic, batch(str(number).encode()), acks=-1)
        cluster.stop(AWAY)
        with Wire(cluster.address(FIRST)) as wire:
            reassign(wire, topic, {0: [AWAY]})
        assert being_added(cluster, topic) == {0: [AWAY]}
        cluster.hand_over(FIRST, OTHER[kind])
        assert being_added(cluster, topic) == {0: [AWAY]}
        before = cluster.stored(FIRST, topic, 0, 20)
        cluster.members[AWAY] = replace(cluster.members[AWAY], kind=OTHER[kind])
        cluster.start(AWAY)
        cluster.all_say(
            "the reassignment has ended",
            topic,
            lambda found: found[0].replica_nodes == found[0].isr_nodes == [AWAY] == [found[0].leader_id],
        )
        assert being_added(cluster, topic) == {}
        assert cluster.stored(AWAY, topic, 0, 20) == before
    assert not cluster.complaints()
