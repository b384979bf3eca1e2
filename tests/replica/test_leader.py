"""The leader's view of its followers by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.metadata.image import BrokerImage, PartitionImage
from pykbroker.replica.isr import PendingIsr
from pykbroker.replica.leader import Judgement, PartitionLeader
from pykbroker.replica.progress import ANY_EPOCH, UNKNOWN, FollowerFetch
from pykbroker_wire.errors import ErrorCode, KafkaError

LAG_MS = 100
EPOCH = 7


def broker(broker_id: int) -> BrokerImage:
    return BrokerImage(broker_id, EPOCH, bytes(16), {}, None, False, False, (), {})


class Cluster:
    """Broker 1 leads; 2, 3 and 4 are alive."""

    def __init__(self, replicas: tuple[int, ...], isr: tuple[int, ...], end: int = 0) -> None:
        self.brokers = {number: broker(number) for number in range(1, 5)}
        self.judgement = Judgement(1, LAG_MS, self.brokers.get)
        self.image = PartitionImage(replicas, (), isr, (), (), (), (), 1, 0, 3, 10)
        self.leader = PartitionLeader(self.judgement, self.image)
        self.leader.begin(end, 0)

    def fetch(self, replica_id: int, offset: int, leader_end: int, steady_ms: int = 0, **fields: int) -> bool:
        told = {"log_start_offset": 0, "broker_epoch": EPOCH, **fields}
        return self.leader.note(FollowerFetch(replica_id, offset, leader_end=leader_end, steady_ms=steady_ms, **told))

    def change(self, **fields: Any) -> None:
        self.image = self.image._replace(partition_epoch=self.image.partition_epoch + 1, **fields)
        self.leader.change(self.image)


def test_alone_it_asks_no_one() -> None:
    assert Cluster((1,), (1,)).leader.is_alone
    assert not Cluster((1, 2), (1,)).leader.is_alone


def test_what_every_in_sync_replica_has_fetched_is_committed() -> None:
    cluster = Cluster((1, 2, 3), (1, 2, 3))
    assert cluster.leader.committed(7, 0) == UNKNOWN
    assert cluster.fetch(2, 5, 7)
    assert cluster.leader.committed(7, 0) == UNKNOWN
    assert cluster.fetch(3, 4, 7)
    assert cluster.leader.committed(7, 0) == 4


def test_a_follower_outside_the_isr_is_waited_for_while_it_keeps_up_and_may_join() -> None:
    cluster = Cluster((1, 2, 3), (1, 2))
    cluster.fetch(2, 7, 7)
    assert cluster.leader.committed(7, 0) == 7
    cluster.fetch(3, 5, 5, steady_ms=10)
    assert cluster.leader.committed(7, 10 + LAG_MS) == 5
    assert cluster.leader.committed(7, 11 + LAG_MS) == 7


@pytest.mark.parametrize("why", ["fenced", "in_controlled_shutdown", "epoch", "gone", "old broker"])
def test_one_that_may_not_join_is_not_waited_for(why: str) -> None:
    cluster = Cluster((1, 2), (1,))
    cluster.fetch(2, 5, 5)
    assert cluster.leader.committed(7, 0) == 5
    match why:
        case "gone":
            del cluster.brokers[2]
        case "old broker":
            cluster.fetch(2, 5, 5, broker_epoch=EPOCH - 1)
        case "epoch":
            cluster.brokers[2] = replace(broker(2), epoch=EPOCH + 1)
        case "fenced":
            cluster.brokers[2] = replace(broker(2), fenced=True)
        case _:
            cluster.brokers[2] = replace(broker(2), in_controlled_shutdown=True)
    assert cluster.leader.committed(7, 0) == 7
    assert cluster.leader.expansion(2, 0) is None


def test_a_change_in_flight_counts_for_the_high_watermark_and_not_for_acks_all() -> None:
    cluster = Cluster((1, 2, 3), (1, 2))
    cluster.fetch(2, 7, 7)
    cluster.fetch(3, 5, 7)
    assert cluster.leader.expansion(3, 5) is not None
    # Long after that, only the change in flight makes it count.
    assert cluster.leader.committed(7, 10_000) == 5
    assert not cluster.leader.has_enough_replicas(3)
    assert cluster.leader.had_enough_replicas(3)
    cluster.leader.isr.withdraw()
    assert cluster.leader.committed(7, 10_000) == 7


def test_a_follower_joins_when_it_has_what_is_committed_and_has_come_to_this_epoch() -> None:
    cluster = Cluster((1, 2), (1,), end=6)
    leader = cluster.leader
    cluster.fetch(2, 5, 8)
    assert leader.expansion(2, 4) is None
    cluster.fetch(2, 6, 8)
    assert leader.expansion(2, 7) is None
    change = leader.expansion(2, 6)
    assert change is not None
    assert change.replicas == (1, 2)
    # Only one change at a time.
    assert leader.expansion(2, 6) is None
    assert leader.shrinking(100, 10_000) is None


def test_before_the_log_is_open_no_follower_joins() -> None:
    cluster = Cluster((1, 2), (1,))
    leader = PartitionLeader(cluster.judgement, cluster.image)
    leader.note(FollowerFetch(2, 5, 0, EPOCH, 5, 0))
    assert leader.expansion(2, 0) is None


def test_a_follower_leaves_when_it_has_not_kept_up() -> None:
    cluster = Cluster((1, 2, 3), (1, 2, 3))
    leader = cluster.leader
    cluster.fetch(2, 5, 5, steady_ms=50)
    cluster.fetch(3, 4, 5, steady_ms=50)
    assert leader.shrinking(7, LAG_MS) is None
    change = leader.shrinking(7, LAG_MS + 1)
    assert change is not None
    # Broker 3 has never had all of the leader's records. The epoch gave it a time that is over now.
    assert change.replicas == (1, 2)
    leader.isr.settle((1, 2), 11)
    # A follower that has all records stays, however long ago it fetched.
    assert leader.shrinking(5, 10_000) is None


def test_what_the_controller_is_asked_names_epochs() -> None:
    cluster = Cluster((1, 2, 3), (1, 2))
    cluster.fetch(3, 5, 5, broker_epoch=ANY_EPOCH)
    change = cluster.leader.expansion(3, 0)
    assert change is not None
    request = cluster.leader.request_for(4, change)
    assert (request.partition_index, request.leader_epoch, request.partition_epoch) == (4, 3, 10)
    # The leader does not know the epoch of a follower that has not fetched.
    told = [(state.broker_id, state.broker_epoch) for state in request.new_isr_with_epochs]
    assert told == [(1, EPOCH), (2, ANY_EPOCH), (3, ANY_EPOCH)]


def test_the_metadata_ends_a_change_in_flight_only_if_it_is_newer() -> None:
    """Apache Kafka ends it also if the metadata only repeats an earlier answer. The leader would then count without a
    replica that the controller may have put into the ISR."""
    cluster = Cluster((1, 2, 3), (1, 2))
    leader = cluster.leader
    leader.isr.settle((1, 2), 11)
    cluster.fetch(3, 5, 5)
    change = leader.expansion(3, 0)
    cluster.change(isr=(1, 2))
    assert cluster.image.partition_epoch == 11
    assert leader.isr.pending is change
    assert list(leader.isr.maximal) == [1, 2, 3]
    cluster.change(isr=(1,))
    assert leader.isr.pending is not change
    assert list(leader.isr.maximal) == [1]


def test_metadata_that_repeats_an_answer_brings_the_replica_set() -> None:
    """The answer about the ISR that ends a reassignment does not name the replicas that have gone with it."""
    cluster = Cluster((1, 2, 3), (1, 2))
    leader = cluster.leader
    leader.isr.settle((1, 2), 11)
    cluster.fetch(3, 5, 5)
    assert leader.expansion(3, 0) is not None
    cluster.change(isr=(1, 2), replicas=(1, 2))
    # The controller cannot have taken broker 3 into the ISR, because it is no replica.
    assert (leader.isr.pending, leader.isr.maximal, leader.replicas) == (None, (1, 2), (1, 2))


def test_a_new_epoch_of_the_same_leader_keeps_what_followers_proved() -> None:
    cluster = Cluster((1, 2), (1, 2))
    cluster.fetch(2, 5, 7)
    image = cluster.image._replace(leader_epoch=4, partition_epoch=11)
    renewed = PartitionLeader(cluster.judgement, image, cluster.leader)
    renewed.begin(7, 1_000)
    assert renewed.committed(7, 1_000) == 5
    assert PartitionLeader(cluster.judgement, image).committed(7, 1_000) == UNKNOWN


@pytest.mark.parametrize(
    ("isr", "configured", "enough"), [((1, 2), 2, True), ((1,), 2, False), ((1, 2), 3, True), ((1,), 1, True)]
)
def test_acks_all_asks_for_no_more_replicas_than_there_are(isr: tuple[int, ...], configured: int, enough: bool) -> None:
    leader = Cluster((1, 2), isr).leader
    assert leader.has_enough_replicas(configured) is enough
    assert leader.min_isr(configured) == min(configured, 2)


def test_only_a_replica_reads_as_one() -> None:
    leader = Cluster((1, 2), (1,)).leader
    for epoch in (ANY_EPOCH, EPOCH, EPOCH + 1):
        leader.require_follower(2, epoch, names_epoch=False)
        assert leader.has_follower(2, epoch)
    for replica, epoch, names_epoch, code in (
        (3, EPOCH, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, EPOCH, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, EPOCH, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, EPOCH - 1, True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(KafkaError) as refused:
            leader.require_follower(replica, epoch, names_epoch=names_epoch)
        assert refused.value.code == code
        assert not leader.has_follower(replica, epoch)


def test_replicas_that_come_and_go() -> None:
    cluster = Cluster((1, 2), (1, 2))
    leader = cluster.leader
    cluster.fetch(2, 5, 7)
    cluster.change(replicas=(1, 2, 3), adding_replicas=(3,))
    assert not leader.is_under_replicated
    assert leader.committed(7, 0) == 5
    cluster.fetch(3, 4, 7)
    cluster.change(replicas=(1, 3), isr=(1,), adding_replicas=())
    assert leader.is_under_replicated
    assert leader.committed(7, 10_000) == 7
    assert not cluster.fetch(2, 6, 7)


def test_the_low_watermark_is_that_of_replicas_on_live_brokers() -> None:
    cluster = Cluster((1, 2, 3), (1, 2, 3))
    leader = cluster.leader
    cluster.fetch(2, 5, 7, log_start_offset=2)
    assert leader.low_watermark(4) == UNKNOWN
    cluster.fetch(3, 5, 7, log_start_offset=1)
    assert leader.low_watermark(4) == 1
    cluster.brokers[3] = replace(broker(3), fenced=True)
    assert leader.low_watermark(4) == 2
    cluster.fetch(2, 5, 7, log_start_offset=6)
    assert leader.low_watermark(4) == 4


OFFSETS = st.integers(0, 20)


@given(
    st.sets(st.sampled_from([2, 3, 4])),
    st.lists(st.tuples(st.sampled_from([2, 3, 4]), OFFSETS, st.integers(0, 300)), max_size=15),
    st.booleans(),
)
def test_nothing_is_committed_that_a_member_of_the_maximal_isr_lacks(
    in_sync: set[int], fetches: list[tuple[int, int, int]], expands: bool
) -> None:
    cluster = Cluster((1, 2, 3, 4), (1, *sorted(in_sync)))
    ends: dict[int, int] = {}
    change: PendingIsr | None = None
    now_ms = 0
    for replica, offset, pause_ms in fetches:
        now_ms += pause_ms
        cluster.fetch(replica, offset, 20, steady_ms=now_ms)
        ends[replica] = offset
        if expands:
            change = cluster.leader.expansion(replica, 0) or change
    committed = cluster.leader.committed(20, now_ms)
    members = in_sync | set(change.replicas if change else ()) - {1}
    assert all(ends.get(member, UNKNOWN) >= committed for member in members)
    assert committed <= 20
