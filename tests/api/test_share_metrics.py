"""The metrics of share fetches, acknowledgements, sessions and leaders change with the requests of members.

The events that count are those of Apache Kafka 4.3. compat_tests/metrics compares both after one script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from pykbroker.dead_letters.letter_metrics import LetterMetrics
from pykbroker.net.promise import Promise
from pykbroker.replica.replica_traffic import PartitionTraffic
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.share_leaders import share_metrics
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.read_share_group_state import StateBatch
from pykbroker_wire.messages.share_acknowledge import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic
from testkit.project import ROOT
from testkit.share_requests import ACCEPT, REJECT, RELEASE, RENEW, acquired, codes
from tests.api.broker_half import Denied
from tests.api.share_half import ShareHalf, acknowledges, came, fetches, forgets
from tests.replica.world import topic_id

PARTITION = "group=g,topic=t,partition=0"
NOTHING: Mapping[str, float] = {}
LOCK_SECONDS = 30


@pytest.fixture
def half() -> ShareHalf:
    """A broker with the metrics, and a topic `t` of one partition with a batch of four records."""
    half = ShareHalf()
    share_metrics.register(half.world.metrics, half.leaders, lambda: half.replicas.purgatory.share_count)
    half.write(half.create(), 4)
    return half


def numbers(half: ShareHalf, kind: str) -> dict[str, float]:
    """Return the metrics of a type by their names and tags."""
    prefix = f"kafka.server:type={kind},name="
    found = half.world.metrics.snapshot()
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


@contextmanager
def changes(half: ShareHalf, kind: str, expected: Mapping[str, float]) -> Iterator[None]:
    """Check which metrics of a type change, and by how much. A metric that was not there was 0."""
    before = numbers(half, kind)
    yield
    after = numbers(half, kind)
    found = {name: value - before.get(name, 0) for name, value in after.items() if "quantile=" not in name}
    assert {name: change for name, change in found.items() if change} == dict(expected)


def requests(kind: str, total: Mapping[str, int], **failed: int) -> dict[str, float]:
    """Return the changes of the requests of topics. `total` and `failed` are by topic."""
    found: dict[str, float] = {}
    for word, topics in (("Total", total), ("Failed", failed)):
        if topics:
            found[f"{word}{kind}RequestsPerSec"] = sum(topics.values())
        found |= {f"{word}{kind}RequestsPerSec,topic={topic}": number for topic, number in topics.items()}
    return found


def quantile(half: ShareHalf, kind: str, name: str, tags: str) -> float:
    return numbers(half, kind)[f"{name},{tags},quantile=0.50"]


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_sessions_and_their_partitions(half: ShareHalf) -> None:
    half.create("u", partitions=3)
    with changes(half, "ShareSessionCache", {"ShareSessionsCount": 2, "SharePartitionsCount": 3}):
        half.fetch(fetches(0))
        topic = FetchTopic(topic_id=topic_id("u"), partitions=[FetchPartition(partition_index=each) for each in (0, 1)])
        half.fetch(fetches(member_id="n", topics=[topic]))
    with changes(half, "ShareSessionCache", {"SharePartitionsCount": -1}):
        half.fetch(fetches(epoch=1, forgotten_topics_data=forgets(0)))
    with changes(half, "ShareSessionCache", {"ShareSessionsCount": -1, "SharePartitionsCount": -2}):
        half.fetch(fetches(epoch=-1, member_id="n"))


def test_a_session_that_ends_with_its_connection_is_evicted(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    expected = {"ShareSessionsCount": -1, "SharePartitionsCount": -1, "ShareSessionEvictionsPerSec": 1}
    with changes(half, "ShareSessionCache", expected):
        half.leaders.disconnected(1)


# -- acknowledgements -------------------------------------------------------------------------------------------------


def acknowledged(**types: int) -> dict[str, float]:
    return {f"RecordAcknowledgementsPerSec,ackType={word}": number for word, number in types.items()}


def test_records_are_counted_by_the_type_of_their_acknowledgement(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    with changes(half, "ShareGroupMetrics", acknowledged(Accept=1, Release=1, Reject=1)):
        half.acknowledge(acknowledges({0: [(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT), (3, 3, 0)]}))


def test_a_range_may_have_a_type_for_each_record(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    types = [ACCEPT, ACCEPT, RELEASE, 0]
    each = AcknowledgementBatch(first_offset=0, last_offset=3, acknowledge_types=types)
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[each])
    topics = [AcknowledgeTopic(topic_id=topic_id("t"), partitions=[partition])]
    with changes(half, "ShareGroupMetrics", acknowledged(Accept=2, Release=1)):
        half.acknowledge(acknowledges({}, topics=topics))


def test_renewed_records_are_counted(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    with changes(half, "ShareGroupMetrics", acknowledged(Renew=4)):
        half.acknowledge(acknowledges({0: [(0, 3, RENEW)]}, is_renew_ack=True))


def test_acknowledgements_in_a_fetch_are_counted(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    expected = acknowledged(Accept=4) | dict.fromkeys(
        ("RequestTopicPartitionsFetchRatio-count,group=g", "TopicPartitionsAcquireTimeMs-count,group=g"), 1
    )
    with changes(half, "ShareGroupMetrics", expected):
        half.fetch(fetches(epoch=1, acks={0: [(0, 3, ACCEPT)]}))


def test_records_are_counted_once_the_acknowledgement_is_written(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    half.keeper.waits = True
    with changes(half, "ShareGroupMetrics", NOTHING):
        half.acknowledge(acknowledges({0: [(0, 3, ACCEPT)]}))
    with changes(half, "ShareGroupMetrics", acknowledged(Accept=4)):
        half.keeper.answer()


def test_an_acknowledgement_that_fails_counts_no_records(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    half.keeper.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with changes(half, "ShareGroupMetrics", NOTHING):
        half.acknowledge(acknowledges({0: [(0, 3, ACCEPT)]}))


def test_acknowledgements_are_counted_by_topic(half: ShareHalf) -> None:
    half.create("u")
    half.fetch(fetches(0))
    each = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[each])
    topics = [AcknowledgeTopic(topic_id=topic_id(name), partitions=[partition]) for name in "tu"]
    expected = requests("ShareAcknowledgement", {"t": 1, "u": 1}, u=1)
    with changes(half, "BrokerTopicMetrics", expected):
        half.acknowledge(acknowledges({}, topics=topics))
    with changes(half, "BrokerTopicMetrics", requests("ShareAcknowledgement", {"t": 1}, t=1)):
        half.acknowledge(acknowledges({0: [(0, 9, ACCEPT)]}, epoch=2))


def test_acknowledgements_that_reach_no_leader_do_not_count(half: ShareHalf) -> None:
    """They are malformed, or the partition does not exist, or the client may not read the topic."""
    half.fetch(fetches(0))
    with changes(half, "BrokerTopicMetrics", NOTHING):
        half.acknowledge(acknowledges({0: [(0, 1, 9)]}))
        half.acknowledge(acknowledges({7: [(0, 0, ACCEPT)]}, epoch=2))
        half.services.authorizer = Denied((Operation.READ, Resource.TOPIC, "t"))
        half.acknowledge(acknowledges({0: [(0, 0, ACCEPT)]}, epoch=3))


# -- fetches ----------------------------------------------------------------------------------------------------------


def traffic(half: ShareHalf, before: float) -> dict[str, float]:
    return {"BytesOutPerSec": half.replicas.topic_metrics.bytes_out.value - before}


def test_fetches_are_counted_by_topic(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    with changes(half, "BrokerTopicMetrics", requests("ShareFetch", {"t": 1})):
        half.fetch(fetches(epoch=1))
    half.create("u", partitions=2)
    topic = FetchTopic(topic_id=topic_id("u"), partitions=[FetchPartition(partition_index=each) for each in (0, 1)])
    with changes(half, "BrokerTopicMetrics", requests("ShareFetch", {"t": 1, "u": 1})):
        half.fetch(fetches(epoch=2, topics=[topic]))


def test_a_fetch_with_an_error_of_a_partition_has_failed(half: ShareHalf) -> None:
    half.create("u", replicas=(1, 2))
    half.with_broker(2)
    half.world.change(half.replicas.get("u", 0), leader=2)
    half.share_version(1)
    topics = [FetchTopic(topic_id=topic_id(each), partitions=[FetchPartition(partition_index=0)]) for each in "tu"]
    sent = half.replicas.topic_metrics.bytes_out.value
    before = numbers(half, "BrokerTopicMetrics")
    half.fetch(fetches(topics=topics))
    after = numbers(half, "BrokerTopicMetrics")
    found = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    assert found == requests("ShareFetch", {"t": 1, "u": 1}, u=1) | traffic(half, sent)


def test_a_load_that_fails_is_a_fetch_that_fails(half: ShareHalf) -> None:
    half.keeper.error = ErrorCode.INVALID_REQUEST
    with changes(half, "BrokerTopicMetrics", requests("ShareFetch", {"t": 1}, t=1)):
        half.fetch(fetches(0))
    assert numbers(half, "SharePartitionMetrics") == {}
    assert numbers(half, "ShareGroupMetrics")["PartitionLoadTimeMs-count"] == 1


@pytest.mark.parametrize(
    "fields", [{"max_records": 0}, {"max_bytes": 0}, {"is_renew_ack": True, "min_bytes": 0, "max_records": 0}]
)
def test_a_request_for_no_records_does_not_count(half: ShareHalf, fields: dict[str, Any]) -> None:
    half.fetch(fetches(0))
    if fields.get("is_renew_ack"):
        fields = {**fields, "max_bytes": 0}
    for kind in ("BrokerTopicMetrics", "ShareGroupMetrics", "DelayedShareFetchMetrics"):
        with changes(half, kind, NOTHING):
            half.fetch(fetches(epoch=half.leaders.sessions.peek(("g", "m")).epoch, **fields))  # type: ignore[union-attr, arg-type]


def test_partitions_that_do_not_exist_or_may_not_be_read_do_not_count(half: ShareHalf) -> None:
    topics = [
        FetchTopic(topic_id=b"no such topic id", partitions=[FetchPartition(partition_index=0)]),
        FetchTopic(topic_id=topic_id("t"), partitions=[FetchPartition(partition_index=5)]),
    ]
    with changes(half, "BrokerTopicMetrics", NOTHING):
        half.fetch(fetches(topics=topics))
        half.services.authorizer = Denied((Operation.READ, Resource.TOPIC, "t"))
        half.fetch(fetches(0, member_id="n"))


def test_fetches_that_wait(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    names = [f"{name},delayedOperation=ShareFetch" for name in ("PurgatorySize", "NumDelayedOperations")]
    with changes(half, "DelayedOperationPurgatory", dict.fromkeys(names, 1)):
        waiting = half.fetch(fetches(epoch=1, max_wait_ms=500))
    with changes(half, "DelayedOperationPurgatory", dict.fromkeys(names, -1)):
        half.loop.advance(0.51)
    assert isinstance(waiting, Promise)
    assert waiting.done()


def test_a_member_that_is_refused_later_waits() -> None:
    half = ShareHalf(most_sessions=0)
    share_metrics.register(half.world.metrics, half.leaders, lambda: half.replicas.purgatory.share_count)
    name = "PurgatorySize,delayedOperation=ShareFetch"
    for ends in (lambda _: half.loop.advance(0.51), lambda promise: promise.cancel()):
        waiting = half.fetch(fetches(0, max_wait_ms=500))
        assert numbers(half, "DelayedOperationPurgatory")[name] == 1
        ends(waiting)
        assert numbers(half, "DelayedOperationPurgatory")[name] == 0


def test_a_fetch_that_is_answered_because_its_time_is_over_has_expired(half: ShareHalf) -> None:
    with changes(half, "DelayedShareFetchMetrics", NOTHING):
        half.fetch(fetches(0))
        half.fetch(fetches(epoch=1, max_wait_ms=500))
        half.write(half.replicas.get("t", 0), 1)
    with changes(half, "DelayedShareFetchMetrics", {"ExpiresPerSec": 1}):
        half.fetch(fetches(epoch=2, max_wait_ms=500))
        half.loop.advance(0.51)
    with changes(half, "DelayedShareFetchMetrics", {"ExpiresPerSec": 1}):
        half.fetch(fetches(epoch=3))


def test_how_many_of_the_partitions_of_a_fetch_could_be_acquired(half: ShareHalf) -> None:
    half.create("u", replicas=(1, 2))
    half.with_broker(2)
    half.world.change(half.replicas.get("u", 0), leader=2)
    half.share_version(1)
    topics = [FetchTopic(topic_id=topic_id(each), partitions=[FetchPartition(partition_index=0)]) for each in "tu"]
    half.fetch(fetches(topics=topics))
    assert quantile(half, "ShareGroupMetrics", "RequestTopicPartitionsFetchRatio", "group=g") == 50


def test_how_long_a_fetch_waits_for_a_share_partition(half: ShareHalf) -> None:
    half.keeper.waits = True
    waiting = half.fetch(fetches(0, max_wait_ms=5_000))
    half.loop.advance(0.1)
    half.keeper.answer()
    half.loop.settle()
    assert acquired(came(waiting)) == {0: [(0, 3, 1)]}
    found = numbers(half, "ShareGroupMetrics")
    assert found["TopicPartitionsAcquireTimeMs-count,group=g"] == 1
    assert found["TopicPartitionsAcquireTimeMs,group=g,quantile=0.50"] == pytest.approx(100, abs=2)
    assert found["PartitionLoadTimeMs-count"] == 1
    assert found["PartitionLoadTimeMs,quantile=0.50"] == pytest.approx(100, abs=2)


def test_a_wait_for_a_share_partition_begins_anew_when_it_could_be_acquired(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    waiting = half.fetch(fetches(epoch=1, max_wait_ms=5_000, min_bytes=250))
    for _ in range(2):
        half.loop.advance(0.1)
        half.write(half.replicas.get("t", 0), 1)
    assert acquired(came(waiting)) == {0: [(4, 5, 1)]}
    found = numbers(half, "ShareGroupMetrics")
    assert found["TopicPartitionsAcquireTimeMs-count,group=g"] == 4
    assert found["TopicPartitionsAcquireTimeMs,group=g,quantile=0.999"] == pytest.approx(100, abs=2)


# -- share partitions -------------------------------------------------------------------------------------------------


def test_batches_in_flight(half: ShareHalf) -> None:
    half.write(half.replicas.get("t", 0), 2)
    half.fetch(fetches(0, batch_size=1))
    found = numbers(half, "SharePartitionMetrics")
    assert found[f"InFlightMessageCount,{PARTITION}"] == 6
    assert found[f"InFlightBatchCount,{PARTITION}"] == 2
    assert found[f"InFlightBatchMessageCount-count,{PARTITION}"] == 2
    assert found[f"InFlightBatchMessageCount,{PARTITION},quantile=0.999"] == 4
    with changes(
        half, "SharePartitionMetrics", {f"InFlightMessageCount,{PARTITION}": -4, f"InFlightBatchCount,{PARTITION}": -1}
    ):
        half.acknowledge(acknowledges({0: [(0, 3, ACCEPT)]}))


def test_a_part_of_a_batch_brings_the_whole_batch_into_flight(half: ShareHalf) -> None:
    half.fetch(fetches(0, max_records=3, share_acquire_mode=1))
    assert quantile(half, "SharePartitionMetrics", "InFlightBatchMessageCount", PARTITION) == 4
    with changes(half, "SharePartitionMetrics", NOTHING):
        half.fetch(fetches(epoch=1, max_records=3, share_acquire_mode=1))


def test_loaded_batches_come_into_flight(half: ShareHalf) -> None:
    half.keeper.stored = [StateBatch(first_offset=1, last_offset=3, delivery_state=0, delivery_count=1)]
    half.fetch(fetches(0, max_records=1, share_acquire_mode=1))
    found = numbers(half, "SharePartitionMetrics")
    assert found[f"InFlightBatchMessageCount-count,{PARTITION}"] == 2
    assert found[f"InFlightBatchMessageCount,{PARTITION},quantile=0.999"] == 3


def test_locks_that_time_out(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    half.acknowledge(acknowledges({0: [(0, 0, ACCEPT)]}))
    with changes(half, "SharePartitionMetrics", {f"AcquisitionLockTimeoutPerSec,{PARTITION}": 3}):
        half.loop.advance(LOCK_SECONDS + 1)


def test_the_numbers_of_a_share_partition_end_with_its_leader(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    half.fetch(fetches(0, group_id="h"))
    half.fetch(fetches(epoch=-1))
    found = {*numbers(half, "SharePartitionMetrics"), *numbers(half, "ShareGroupMetrics")}
    assert any("group=h" in name for name in found)
    assert not any("group=g" in name for name in found)
    half.fetch(fetches(epoch=-1, group_id="h"))
    assert numbers(half, "SharePartitionMetrics") == {}
    assert not any("group=" in name for name in numbers(half, "ShareGroupMetrics"))


def test_a_new_leader_epoch_begins_new_numbers(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    half.loop.advance(LOCK_SECONDS + 1)
    assert numbers(half, "SharePartitionMetrics")[f"AcquisitionLockTimeoutPerSec,{PARTITION}"] == 4
    half.world.change(half.replicas.get("t", 0), leader=1)
    half.share_version(1)
    assert numbers(half, "SharePartitionMetrics") == {}
    assert codes(half.fetch(fetches(epoch=1)))[0] == (ErrorCode.NONE, ErrorCode.NONE)
    assert numbers(half, "SharePartitionMetrics")[f"AcquisitionLockTimeoutPerSec,{PARTITION}"] == 0


def test_the_counts_of_a_topic_end_with_the_topic(half: ShareHalf) -> None:
    half.fetch(fetches(0))
    half.acknowledge(acknowledges({0: [(0, 0, ACCEPT), (9, 9, ACCEPT)]}))
    assert sum("topic=t" in name for name in numbers(half, "BrokerTopicMetrics")) == 3
    half.world.delete("t")
    assert not any("topic=t" in name for name in numbers(half, "BrokerTopicMetrics"))


def test_the_counts_of_a_topic_end_with_its_last_replica_here(half: ShareHalf) -> None:
    half.with_broker(2)
    half.fetch(fetches(0))
    half.world.change(half.replicas.get("t", 0), replicas=[2], isr=[2], leader=2)
    assert not any("topic=t" in name for name in numbers(half, "BrokerTopicMetrics"))


def test_the_counts_of_a_topic_without_a_replica_here_end_with_the_topic(half: ShareHalf) -> None:
    half.with_broker(2)
    elsewhere = half.create("u", replicas=(1, 2))
    half.world.change(elsewhere, replicas=[2], isr=[2], leader=2)
    half.share_version(1)
    topics = [FetchTopic(topic_id=topic_id("u"), partitions=[FetchPartition(partition_index=0)])]
    with changes(half, "BrokerTopicMetrics", requests("ShareFetch", {"u": 1}, u=1)):
        half.fetch(fetches(topics=topics))
    half.world.delete("u")
    assert not any("topic=u" in name for name in numbers(half, "BrokerTopicMetrics"))


# -- load reports -----------------------------------------------------------------------------------------------------


def test_a_share_fetch_is_a_read_of_consumers_in_the_load_of_a_partition(half: ShareHalf) -> None:
    """The tool `balance` plans with these counts."""
    partition = half.replicas.get("t", 0)
    partition.traffic = PartitionTraffic()
    half.fetch(fetches(0))
    half.fetch(fetches(epoch=1))
    counted = partition.traffic.take()
    assert counted.bytes_out == half.replicas.topic_metrics.bytes_out.value > 0
    assert counted.fetch_requests == 1, "the second answer has no records"
    assert counted.replication_bytes_out == counted.replication_fetches_out == 0


def test_requests_that_acknowledge_are_in_the_load_of_a_partition(half: ShareHalf) -> None:
    partition = half.replicas.get("t", 0)
    partition.traffic = PartitionTraffic()
    half.fetch(fetches(0))
    assert partition.traffic.take().share_acknowledges == 0
    half.acknowledge(acknowledges({0: [(0, 0, ACCEPT), (1, 1, RELEASE)]}))
    half.acknowledge(acknowledges({0: [(2, 3, ACCEPT)]}, epoch=2))
    assert partition.traffic.take().share_acknowledges == 2
    assert partition.traffic.take().share_acknowledges == 0


# -- a reading that pauses --------------------------------------------------------------------------------------------


def test_a_leader_that_leaves_while_the_metrics_are_read_is_left_out(half: ShareHalf) -> None:
    half.create("u", partitions=2)
    topics = [FetchTopic(topic_id=topic_id("u"), partitions=[FetchPartition(partition_index=each) for each in (0, 1)])]
    half.fetch(fetches(topics=topics))
    reading = share_metrics._of_partitions(half.leaders)
    first, _ = next(reading)
    half.world.delete("u")
    rest = [name for name, _ in reading]
    assert "partition=0" in first
    assert not any("partition=1" in name for name in rest)


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_lists_each_metric(half: ShareHalf) -> None:
    half.create("u", replicas=(1, 2))
    half.with_broker(2)
    half.world.change(half.replicas.get("u", 0), leader=2)
    half.share_version(1)
    topics = [FetchTopic(topic_id=topic_id(each), partitions=[FetchPartition(partition_index=0)]) for each in "tu"]
    half.fetch(fetches(topics=topics))
    half.acknowledge(acknowledges({0: [(0, 0, ACCEPT), (9, 9, ACCEPT)]}))
    letters = LetterMetrics(half.world.metrics)
    letters.sent("g")
    letters.written("g", 1)
    letters.failed("g")
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = page.partition("## Members of share groups")[2].partition("## What is not here")[0]
    rows = [row.split("|")[1:3] for row in section.splitlines() if row.startswith("| `")]
    listed = {(kind.strip().strip("`"), name) for names, kind in rows for name in re.findall(r"`([^`]+)`", names)}
    found = set()
    for name in half.world.metrics.snapshot():
        kind, _, tagged = name.removeprefix("kafka.server:type=").partition(",name=")
        if kind in {each for each, _ in listed} and ("Share" in kind or "Share" in tagged):
            short, *tags = tagged.split(",")
            keys = ",".join(tag.partition("=")[0] for tag in tags if not tag.startswith("quantile="))
            found.add((kind, short.removesuffix("-count") + (f"{{{keys}}}" if keys else "")))
    assert found == listed
