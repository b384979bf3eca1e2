"""The coordinator of groups counts these events, and no others."""

from __future__ import annotations

from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.measures import CountedEvent
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.coordinator.group.consumers import ConsumerBench
from tests.coordinator.group.harness import Bench
from tests.coordinator.group.shares import INTERVAL_MS, ShareBench


def delete_offsets(bench: Bench, topic: str, *partitions: int) -> None:
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])
    bench.ask(lambda shard, token, now_ms: shard.delete_offsets(request, token, now_ms))


def test_each_committed_offset_counts() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1, ("t", 1): 2})
    bench.commit("g", {("u", 0): 3})
    assert bench.counts == {CountedEvent.OFFSET_COMMIT: 3}


def test_a_commit_without_records_counts_nothing() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1}, metadata="x" * 5_000)
    bench.refuse_next = ErrorCode.NOT_COORDINATOR
    bench.commit("g", {("t", 0): 1})
    assert not bench.counts


def test_deleted_offsets_count_if_they_existed() -> None:
    bench = Bench()
    bench.commit("g", {("t", 0): 1})
    bench.counts.clear()
    delete_offsets(bench, "t", 0, 1)
    assert bench.counts == {CountedEvent.OFFSET_DELETION: 1}


def test_expired_offsets_count() -> None:
    bench = Bench(GroupSettings(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=100))
    bench.commit("g", {("t", 0): 1, ("t", 1): 2})
    bench.counts.clear()
    bench.advance(2_000)
    assert bench.counts == {CountedEvent.OFFSET_EXPIRATION: 2}
    assert not bench.shard.groups, "the tombstone of the group is no expired offset"


def test_a_rebalance_of_a_classic_group_counts_when_its_leader_has_assigned() -> None:
    bench = Bench()
    leader, waiting = bench.new_member()
    bench.advance(2 * bench.settings.initial_rebalance_delay_ms)
    assert bench.answers.pop(waiting).error_code == ErrorCode.NONE
    assert not bench.counts
    bench.sync("g", leader, 1, {leader: b"x"})
    assert bench.counts == {CountedEvent.CLASSIC_REBALANCE: 1}


def test_a_rebalance_of_a_consumer_group_counts_as_in_kafka() -> None:
    """A new epoch counts if a heartbeat causes it. The epoch after a member has left is a new one too, but Apache Kafka
    does not count it."""
    bench = ConsumerBench()
    bench.create("t")
    bench.beat("m1", topics=["t"])
    bench.beat("m2", topics=["t"])
    assert bench.counts == {CountedEvent.CONSUMER_REBALANCE: 2}
    bench.beat("m2", -1)
    assert bench.counts == {CountedEvent.CONSUMER_REBALANCE: 2}


def test_topics_that_a_regular_expression_finds_are_a_rebalance() -> None:
    bench = ConsumerBench()
    bench.create("tea")
    bench.enter("m1", topics=None, regex="t.*")
    assert not bench.counts, "the expression is resolved after the answer"
    bench.advance(0)
    assert (bench.group().epoch, bench.counts) == (2, {CountedEvent.CONSUMER_REBALANCE: 1})


def test_an_epoch_for_joins_that_wait_is_a_rebalance() -> None:
    """The other member gets a target for the epoch of the join, and the partitions that the join waits for come later,
    so they need one more epoch."""
    bench = ShareBench()
    bench.create("t", "u", partitions=1)
    bench.come("m1", "t")
    bench.send("m2", topics=["u"])
    bench.advance(INTERVAL_MS)
    bench.share_beat("m1", 2)
    assert (bench.share().epoch, bench.counts) == (3, {CountedEvent.SHARE_REBALANCE: 2})
    bench.initialize()
    assert (bench.share().epoch, bench.counts) == (4, {CountedEvent.SHARE_REBALANCE: 3})


def test_a_rebalance_of_a_share_group_counts_as_in_kafka() -> None:
    bench = ShareBench()
    bench.create("t")
    bench.come("m1")
    before = bench.counts[CountedEvent.SHARE_REBALANCE]
    assert before >= 1
    bench.come("m2", "t")
    joined = bench.counts[CountedEvent.SHARE_REBALANCE]
    assert joined > before
    bench.share_beat("m2", -1)
    assert bench.counts == {CountedEvent.SHARE_REBALANCE: joined}


def test_a_load_counts_nothing() -> None:
    bench = Bench()
    bench.stable(1)
    bench.commit("other", {("t", 0): 1})
    assert not bench.restart().counts
