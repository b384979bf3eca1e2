"""Fetch: limits, sessions, and the waits of consumers and followers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker.api import fetch
from pykbroker.replica.partition import Partition
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from pykbroker_wire.records.batch import iter_batches
from tests.api.broker_half import Denied, Half, through_bytes
from tests.replica.world import NOW_MS, batch, topic, topic_id

SIZE = len(batch(b"x" * 100))
UNKNOWN = b"no such topic id"


@pytest.fixture
def half() -> Half:
    return Half()


def write(partition: Partition, count: int = 1) -> None:
    for _ in range(count):
        partition.append(batch(b"x" * 100), required_acks=1, now_ms=NOW_MS)


def asks(index: int = 0, offset: int = 0, **fields: Any) -> FetchPartition:
    defaults: dict[str, Any] = {"partition_max_bytes": 1_000_000, "current_leader_epoch": -1, "last_fetched_epoch": -1}
    return FetchPartition(partition=index, fetch_offset=offset, log_start_offset=-1, **{**defaults, **fields})


def request(*topics: tuple[bytes, list[FetchPartition]], **fields: Any) -> FetchRequest:
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, "session_epoch": -1}
    asked = [FetchTopic(topic_id=one, partitions=partitions) for one, partitions in topics]
    return FetchRequest(topics=asked, **{**defaults, **fields})


def by_follower(*topics: tuple[bytes, list[FetchPartition]], replica: int = 2, epoch: int = 7, **fields: Any) -> Any:
    return request(*topics, replica_state=ReplicaState(replica_id=replica, replica_epoch=epoch), **fields)


def sizes(answer: Any) -> dict[int, int]:
    return {one.partition_index: len(one.records or b"") for topic in answer.responses for one in topic.partitions}


def codes(answer: Any) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for topic in answer.responses for one in topic.partitions]


def came(answer: asyncio.Future[Any]) -> Any:
    return through_bytes(answer.result(), FetchRequest.MAX_VERSION)


def waits(half: Half, asked: FetchRequest) -> asyncio.Future[Any]:
    answer = half.ask(fetch, asked)
    assert isinstance(answer, asyncio.Future)
    half.loop.settle()
    assert not answer.done()
    return answer


# -- limits -----------------------------------------------------------------------------------------------------------


def test_the_first_batch_comes_whole_however_small_the_limits(half: Half) -> None:
    write(half.world.create("t", 3), 2)
    write(half.replicas.get("t", 1), 2)
    partitions = [asks(2), asks(0, partition_max_bytes=1), asks(1, partition_max_bytes=1)]
    assert sizes(half.ask(fetch, request((topic_id("t"), partitions)))) == {2: 0, 0: SIZE, 1: 0}
    partitions = [asks(2), asks(0), asks(1)]
    assert sizes(half.ask(fetch, request((topic_id("t"), partitions), max_bytes=1))) == {2: 0, 0: SIZE, 1: 0}


def test_the_limit_of_the_request_is_for_all_partitions(half: Half) -> None:
    write(half.world.create("t", 2), 3)
    write(half.replicas.get("t", 1), 3)
    answer = half.ask(fetch, request((topic_id("t"), [asks(0), asks(1)]), max_bytes=4 * SIZE))
    assert sizes(answer) == {0: 3 * SIZE, 1: SIZE}
    answer = half.ask(fetch, request((topic_id("t"), [asks(0, partition_max_bytes=SIZE), asks(1)])))
    assert sizes(answer) == {0: SIZE, 1: 3 * SIZE}


def test_more_than_may_be_sent_is_not_waited_for(half: Half) -> None:
    """Formerly, with min_bytes over max_bytes, it always waited to the end, although it had a full response."""
    write(half.world.create("t"), 5)
    asked = request((topic_id("t"), [asks()]), max_wait_ms=1_000, min_bytes=1_000_000, max_bytes=2 * SIZE)
    assert sizes(half.ask(fetch, asked)) == {0: 2 * SIZE}


def test_bytes_out_are_counted_for_consumers_and_for_followers_apart(half: Half) -> None:
    write(half.world.create("t", replicas=(1, 2)), 2)
    half.ask(fetch, by_follower((topic_id("t"), [asks()])))
    metrics = half.replicas.topic_metrics
    assert (metrics.bytes_out.value, metrics.replication_bytes_out.value) == (0, 2 * SIZE)
    half.ask(fetch, by_follower((topic_id("t"), [asks(offset=2)])))
    half.ask(fetch, request((topic_id("t"), [asks()])))
    assert (metrics.bytes_out.value, metrics.replication_bytes_out.value) == (2 * SIZE, 2 * SIZE)


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_it_waits_for_min_bytes(half: Half) -> None:
    partition = half.world.create("t")
    answer = waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000, min_bytes=3 * SIZE))
    assert half.replicas.purgatory.count == 1
    write(partition, 2)
    half.loop.settle()
    assert not answer.done()
    write(partition, 1)
    half.loop.settle()
    assert sizes(came(answer)) == {0: 3 * SIZE}
    assert half.replicas.purgatory.count == 0


def test_it_answers_what_there_is_when_its_time_is_up(half: Half) -> None:
    write(half.world.create("t"))
    answer = waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000, min_bytes=3 * SIZE))
    half.loop.advance(1.1)
    assert sizes(came(answer)) == {0: SIZE}


def test_cancelled_it_no_longer_counts(half: Half) -> None:
    half.world.create("t")
    waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000)).cancel()
    half.loop.settle()
    assert half.replicas.purgatory.count == 0
    assert not half.replicas.get("t", 0).fetch_waiters


def test_with_too_many_that_wait_it_is_answered_at_once(half: Half) -> None:
    half.world.create("t")
    half.replicas.purgatory.most = 1
    waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000))
    assert sizes(half.ask(fetch, request((topic_id("t"), [asks()]), max_wait_ms=1_000))) == {0: 0}


def test_a_follower_waits_also_where_too_many_consumers_do(half: Half) -> None:
    """It would fetch again at once. As many followers may wait as consumers."""
    half.world.register(1, 2)
    half.world.create("t", replicas=(1, 2))
    half.replicas.purgatory.most = 1
    waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000))
    follower = by_follower((topic_id("t"), [asks()]), max_wait_ms=1_000)
    waits(half, follower)
    assert sizes(half.ask(fetch, follower)) == {0: 0}


def test_a_partition_that_is_not_there_keeps_nobody_from_waiting(half: Half) -> None:
    """Formerly it was answered at once, and the client fetched again at once, as long as the topic was missing."""
    partition = half.world.create("t")
    topics = (topic_id("t"), [asks(), asks(7)]), (UNKNOWN, [asks()])
    answer = waits(half, request(*topics, max_wait_ms=1_000))
    write(partition)
    half.loop.settle()
    assert codes(came(answer)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_with_nothing_to_wait_for_it_is_answered_at_once(half: Half) -> None:
    answer = half.ask(fetch, request((UNKNOWN, [asks()]), max_wait_ms=1_000))
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert codes(half.ask(fetch, request(max_wait_ms=1_000))) == []


def test_an_error_of_the_log_is_answered_at_once(half: Half) -> None:
    half.world.create("t", 2)
    asked = request((topic_id("t"), [asks(0), asks(1, offset=5)]), max_wait_ms=1_000)
    assert codes(half.ask(fetch, asked)) == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("created again", ErrorCode.INCONSISTENT_TOPIC_ID),
        ("moved", ErrorCode.FENCED_LEADER_EPOCH),
        ("new epoch", ErrorCode.FENCED_LEADER_EPOCH),
        ("offline", ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_happens_to_a_partition_meanwhile_is_told(half: Half, what: str, code: ErrorCode) -> None:
    partition = half.world.create("t")
    half.world.create("u")
    epoch = 0 if what in ("moved", "new epoch") else -1
    topics = (topic_id("t"), [asks(current_leader_epoch=epoch)]), (topic_id("u"), [asks()])
    answer = waits(half, request(*topics, max_wait_ms=1_000, min_bytes=1_000_000))
    match what:
        case "deleted":
            half.world.delete("t")
        case "created again":
            half.world.delete("t")
            half.world.create("t", unique=1)
        case "moved":
            half.world.change(partition, leader=2)
        case "new epoch":
            half.world.change(partition, leader=1)
        case "offline":
            partition.handle.take_offline()
    half.loop.settle()
    assert codes(came(answer)) == [code, ErrorCode.NONE]
    assert half.replicas.purgatory.count == 0


def test_a_moved_partition_says_where_to(half: Half) -> None:
    partition = half.world.create("t", 2, replicas=(1, 2))
    half.with_broker(2)
    for index in range(2):
        half.world.change(half.replicas.get("t", index), leader=2)
    half.with_broker(2)
    epoch = partition.leader_epoch - 1
    answer = half.ask(
        fetch, request((topic_id("t"), [asks(0, current_leader_epoch=epoch), asks(1, current_leader_epoch=epoch)]))
    )
    leaders = [one.current_leader for one in answer.responses[0].partitions]
    assert [(one.leader_id, one.leader_epoch) for one in leaders] == [(2, partition.leader_epoch)] * 2
    assert [(one.node_id, one.host) for one in answer.node_endpoints] == [(2, "host2")]


def test_only_brokers_speak_as_replicas(half: Half) -> None:
    """CVE-2018-1288. The error is per partition, as in Apache Kafka."""
    half.world.create("t")
    half.services.authorizer = Denied((Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME))
    asked = request((topic_id("t"), [asks()]), replica_state=ReplicaState(replica_id=1))
    assert codes(half.ask(fetch, asked)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert codes(half.ask(fetch, request((topic_id("t"), [asks()])))) == [ErrorCode.NONE]


# -- followers --------------------------------------------------------------------------------------------------------


def test_a_parked_follower_is_woken_by_an_append(half: Half) -> None:
    """Formerly it waited until its deadline: its records were not committed, and could not be before it had read
    them."""
    partition = half.world.create("t", replicas=(1, 2))
    answer = waits(half, by_follower((topic_id("t"), [asks()]), max_wait_ms=500))
    write(partition)
    half.loop.settle()
    assert sizes(came(answer)) == {0: SIZE}


def test_at_its_deadline_it_has_what_came_too_little_to_wake_it(half: Half) -> None:
    """Formerly it got the result of its first read: no records."""
    partition = half.world.create("t", replicas=(1, 2))
    answer = waits(half, by_follower((topic_id("t"), [asks()]), max_wait_ms=500, min_bytes=2 * SIZE))
    write(partition)
    half.loop.settle()
    assert not answer.done()
    half.loop.advance(0.6)
    assert sizes(came(answer)) == {0: SIZE}


def test_what_a_follower_has_read_it_has_when_it_asks_for_more(half: Half) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    write(partition, 2)
    found = only(half.ask(fetch, by_follower((topic_id("t"), [asks()]))))
    assert (len(found.records), found.high_watermark) == (2 * SIZE, 0)
    found = only(half.ask(fetch, by_follower((topic_id("t"), [asks(offset=2)]))))
    assert (len(found.records), found.high_watermark, partition.high_watermark) == (0, 2, 2)


def test_only_the_first_read_of_a_fetch_proves_that_the_follower_is_alive(half: Half) -> None:
    """A follower whose connection is dead has a parked fetch, too: each append would have kept it in the ISR."""
    half.world.create("t", 2, replicas=(1, 2))
    idle, other = half.replicas.get("t", 0), half.replicas.get("t", 1)
    half.loop.advance(20)
    answer = waits(half, by_follower((topic_id("t"), [asks(0), asks(1)]), max_wait_ms=12_000))
    half.loop.advance(10)
    write(other)
    half.loop.settle()
    assert sizes(came(answer)) == {0: 0, 1: SIZE}
    write(idle)
    half.loop.advance(20)
    idle.shrink_isr()
    assert not half.world.isr_requests
    half.loop.advance(0.1)
    idle.shrink_isr()
    assert half.world.asked_isr == [1]


def test_a_follower_that_has_caught_up_joins_the_isr(half: Half) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    half.world.register(1, 2)
    half.world.change(partition, isr=[1])
    write(partition)
    half.ask(fetch, by_follower((topic_id("t"), [asks()])))
    assert not half.world.isr_requests
    half.ask(fetch, by_follower((topic_id("t"), [asks(offset=1)])))
    assert half.world.asked_isr == [1, 2]
    half.world.answer_isr()
    write(partition)
    assert partition.high_watermark == 1


@pytest.mark.parametrize(
    ("fields", "asked", "code"),
    [
        ({"epoch": 6}, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica": 3}, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"replica": 3}, {"current_leader_epoch": 0}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({}, {"current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({}, {"offset": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({}, {"last_fetched_epoch": 5}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_follower_that_is_refused_has_proved_nothing(half: Half, fields: Any, asked: Any, code: ErrorCode) -> None:
    partition = half.world.create("t", replicas=(1, 2, 4))
    half.world.register(1, 2, 3)
    write(partition)
    assert codes(half.ask(fetch, by_follower((topic_id("t"), [asks(**{"offset": 1, **asked})]), **fields))) == [code]
    half.world.change(partition, isr=[1, 2])
    assert partition.high_watermark == 0


def test_a_follower_whose_log_diverges_is_told_and_has_proved_nothing(half: Half) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    write(partition, 2)
    half.world.change(partition, leader=1)
    write(partition)
    found = only(half.ask(fetch, by_follower((topic_id("t"), [asks(offset=3, last_fetched_epoch=0)]), max_wait_ms=500)))
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset, len(found.records)) == (0, 2, 0)
    assert partition.high_watermark == 0


def test_a_followers_session_tells_it_of_the_high_watermark(half: Half) -> None:
    partition = half.world.create("t", 2, replicas=(1, 2, 3))
    write(partition)
    asked = by_follower((topic_id("t"), [asks(0, offset=1), asks(1)]), session_epoch=0)
    session = half.ask(fetch, asked).session_id
    again = by_follower(session_id=session, session_epoch=1, max_wait_ms=500)
    answer = waits(half, again)
    partition.note_fetched(3, 1)
    half.loop.advance(0.6)
    found = came(answer)
    assert sizes(found) == {0: 0}
    assert only(found).high_watermark == 1


def test_a_follower_that_has_truncated_is_told_the_high_watermark_once_more(half: Half) -> None:
    """It does not use the high watermark of the response that reports the divergence, and no other change may follow
    for long."""
    partition = half.world.create("t", replicas=(1, 2))
    write(partition, 2)
    half.world.change(partition, leader=1, isr=[1])
    assert partition.high_watermark == 2
    begun = by_follower((topic_id("t"), [asks(offset=3, last_fetched_epoch=0)]), session_epoch=0)
    answer = half.ask(fetch, begun)
    assert (only(answer).diverging_epoch.end_offset, only(answer).high_watermark) == (2, 2)
    truncated = (topic_id("t"), [asks(offset=2, last_fetched_epoch=0)])
    told = half.ask(fetch, by_follower(truncated, session_id=answer.session_id, session_epoch=1))
    assert (only(told).diverging_epoch.epoch, only(told).high_watermark) == (-1, 2)
    assert sizes(half.ask(fetch, by_follower(session_id=answer.session_id, session_epoch=2))) == {}


def test_a_followers_session_in_which_nothing_happens_keeps_it_in_the_isr(half: Half) -> None:
    """Each fetch proves again that it has all records, also of partitions that neither side mentions."""
    partition = half.world.create("t", replicas=(1, 2))
    write(partition)
    begun = by_follower((topic_id("t"), [asks(offset=1)]), session_epoch=0)
    session = half.ask(fetch, begun).session_id
    for epoch in range(1, 5):
        assert sizes(half.ask(fetch, by_follower(session_id=session, session_epoch=epoch))) == {}
        half.loop.advance(20)
    write(partition)
    partition.shrink_isr()
    assert not half.world.isr_requests
    assert sizes(half.ask(fetch, by_follower(session_id=session, session_epoch=5))) == {0: SIZE}


@pytest.mark.parametrize("what", ["new epoch", "moved", "removed", "restarted", "offline", "deleted"])
def test_a_followers_session_in_which_nothing_happened_is_told_when_something_does(half: Half, what: str) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    half.world.register(1, 2)
    begun = by_follower((topic_id("t"), [asks(current_leader_epoch=0)]), session_epoch=0)
    session = half.ask(fetch, begun).session_id
    assert sizes(half.ask(fetch, by_follower(session_id=session, session_epoch=1))) == {}
    match what:
        case "new epoch":
            half.world.change(partition, leader=1)
            code = ErrorCode.FENCED_LEADER_EPOCH
        case "moved":
            half.world.change(partition, leader=2)
            code = ErrorCode.FENCED_LEADER_EPOCH
        case "removed":
            half.world.change(partition, replicas=[1], isr=[1])
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        case "restarted":
            half.world.register(2, epoch=8)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        case "offline":
            partition.handle.take_offline()
            code = ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            half.world.delete("t")
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(half.ask(fetch, by_follower(session_id=session, session_epoch=2))) == [code]


# -- throttled followers ----------------------------------------------------------------------------------------------


def throttled(half: Half, rate: int, *, isr: list[int]) -> Partition:
    """Broker 2 follows, throttled by this leader to this many bytes a second."""
    half.world.register(1, 2)
    half.world.quota_rates["leader.replication.throttled.rate"] = rate
    partition = half.world.create("t", replicas=(1, 2), leader_replication_throttled_replicas="0:1")
    half.world.change(partition, isr=isr)
    write(partition, 3)
    return partition


def test_a_throttled_follower_that_is_not_in_sync_waits_while_the_quota_is_exceeded(half: Half) -> None:
    throttled(half, SIZE, isr=[1])
    asked = by_follower((topic_id("t"), [asks()]))
    one = by_follower((topic_id("t"), [asks(partition_max_bytes=SIZE)]))
    assert [sizes(half.ask(fetch, one)) for _ in range(3)] == [{0: SIZE}, {0: SIZE}, {0: 0}]
    assert half.world.metrics.snapshot()["kafka.server:type=LeaderReplication,name=byte-rate"] == 2 * SIZE
    half.loop.advance(2.1)
    assert sizes(half.ask(fetch, asked)) == {0: 3 * SIZE}
    assert sizes(half.ask(fetch, asked)) == {0: 0}


def test_a_throttled_follower_parks_and_spins_not(half: Half) -> None:
    partition = throttled(half, 1, isr=[1])
    asked = by_follower((topic_id("t"), [asks()]), max_wait_ms=500)
    assert sizes(half.ask(fetch, asked)) == {0: 3 * SIZE}
    answer = waits(half, asked)
    write(partition)
    half.loop.settle()
    assert not answer.done()
    half.loop.advance(0.5)
    assert sizes(came(answer)) == {0: 0}


def test_a_throttled_follower_in_sync_is_served_and_counted(half: Half) -> None:
    throttled(half, 1, isr=[1, 2])
    asked = by_follower((topic_id("t"), [asks()]))
    assert [sizes(half.ask(fetch, asked)) for _ in range(2)] == [{0: 3 * SIZE}] * 2
    assert half.replicas.quotas.leader.is_exceeded()


def test_what_a_throttled_follower_proves_counts(half: Half) -> None:
    """It may enter the ISR while the quota is exceeded."""
    partition = throttled(half, 1, isr=[1])
    half.ask(fetch, by_follower((topic_id("t"), [asks()])))
    half.ask(fetch, by_follower((topic_id("t"), [asks(offset=3)])))
    assert half.world.asked_isr == [1, 2]
    assert partition.high_watermark == 3


def test_consumers_are_not_throttled_with_followers(half: Half) -> None:
    throttled(half, 1, isr=[1])
    half.ask(fetch, by_follower((topic_id("t"), [asks()])))
    half.world.change(half.replicas.get("t", 0), replicas=[1])
    assert sizes(half.ask(fetch, request((topic_id("t"), [asks()])))) == {0: 3 * SIZE}


# -- sessions ---------------------------------------------------------------------------------------------------------


def begin(half: Half, *topics: tuple[bytes, list[FetchPartition]]) -> int:
    answer = half.ask(fetch, request(*topics, session_epoch=0))
    session_id: int = answer.session_id
    assert session_id
    return session_id


def follow(half: Half, session_id: int, epoch: int, *topics: tuple[bytes, list[FetchPartition]], **fields: Any) -> Any:
    return half.ask(fetch, request(*topics, session_id=session_id, session_epoch=epoch, **fields))


def test_an_incremental_answer_has_what_changed(half: Half) -> None:
    write(half.world.create("t", 3))
    session = begin(half, (topic_id("t"), [asks(0, offset=1), asks(1), asks(2)]))
    assert sizes(follow(half, session, 1)) == {}
    write(half.replicas.get("t", 1))
    assert sizes(follow(half, session, 2)) == {1: SIZE}
    assert sizes(follow(half, session, 3, (topic_id("t"), [asks(1, offset=1)]))) == {}
    half.replicas.get("t", 0).delete_records_before(1)
    assert sizes(follow(half, session, 4)) == {0: 0}


def test_partitions_that_had_records_go_to_the_end(half: Half) -> None:
    half.world.create("t", 2)
    session = begin(half, (topic_id("t"), [asks(0), asks(1)]))
    for index in range(2):
        write(half.replicas.get("t", index), 5)
    assert sizes(follow(half, session, 1, max_bytes=1)) == {0: SIZE, 1: 0}
    assert sizes(follow(half, session, 2, (topic_id("t"), [asks(0, offset=1)]), max_bytes=1)) == {1: SIZE}


def test_forgotten_partitions_are_gone(half: Half) -> None:
    half.world.create("t", 2)
    session = begin(half, (topic_id("t"), [asks(0), asks(1)]))
    forgotten = [ForgottenTopic(topic_id=topic_id("t"), partitions=[0])]
    follow(half, session, 1, forgotten_topics_data=forgotten)
    for index in range(2):
        write(half.replicas.get("t", index))
    assert sizes(follow(half, session, 2)) == {1: SIZE}


def test_a_session_without_partitions_ends(half: Half) -> None:
    half.world.create("t")
    session = begin(half, (topic_id("t"), [asks()]))
    forgotten = [ForgottenTopic(topic_id=topic_id("t"), partitions=[0])]
    assert follow(half, session, 1, forgotten_topics_data=forgotten).session_id == 0
    assert follow(half, session, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_repeated_and_its_end_told_once(half: Half) -> None:
    half.world.create("t")
    session = begin(half, (topic_id("t"), [asks()]), (topic_id("late"), [asks()]))
    for epoch in (1, 2):
        assert codes(follow(half, session, epoch)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    half.world.create("late")
    assert codes(follow(half, session, 3)) == [ErrorCode.NONE]
    assert codes(follow(half, session, 4)) == []


def test_a_session_knows_the_name_of_a_topic_that_is_deleted(half: Half) -> None:
    """As in Apache Kafka 4.3.1. A fetch without a session has only the id."""
    half.world.create("t")
    session = half.ask(fetch, request((topic_id("t"), [asks()]), session_epoch=0)).session_id
    half.world.delete("t")
    assert codes(half.ask(fetch, request(session_id=session, session_epoch=1))) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert codes(half.ask(fetch, request((topic_id("t"), [asks()])))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    half.world.create("t", unique=1)
    assert codes(half.ask(fetch, request(session_id=session, session_epoch=2))) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert codes(half.ask(fetch, request((topic_id("t"), [asks()])))) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_topic_that_was_made_again_is_told_at_once(half: Half) -> None:
    """This holds for each repetition, even if the fetch could wait for another partition of the session."""
    half.world.create("t")
    half.world.create("idle")
    session = begin(half, (topic_id("t"), [asks()]), (topic_id("idle"), [asks()]))
    half.world.delete("t")
    half.world.create("t", unique=1)
    for epoch in (1, 2):
        answer = follow(half, session, epoch, max_wait_ms=60_000)
        assert not isinstance(answer, asyncio.Future)
        assert codes(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_wrong_epochs_and_sessions(half: Half) -> None:
    half.world.create("t")
    session = begin(half, (topic_id("t"), [asks()]))
    assert follow(half, session, 2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert follow(half, session + 1, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_name = request(session_id=session, session_epoch=1)
    assert half.ask(fetch, by_name, 12).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_name.session_epoch = 2
    assert half.ask(fetch, by_name, 12).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert follow(half, session, 1).error_code == ErrorCode.NONE
    follow(half, session, -1)
    assert follow(half, session, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_of_two_requests_of_one_session_the_later_has_the_records(half: Half) -> None:
    """Formerly both had them, and the first at the offsets of the second."""
    partition = half.world.create("t")
    session = begin(half, (topic_id("t"), [asks()]))
    first = follow(half, session, 1, max_wait_ms=1_000)
    second = follow(half, session, 2, max_wait_ms=1_000)
    write(partition)
    half.loop.settle()
    assert first.result().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sizes(came(second)) == {0: SIZE}


def test_a_topic_that_was_deleted_and_created_again_by_name(half: Half) -> None:
    write(half.world.create("t"), 2)
    asked = request(session_epoch=0)
    asked.topics = [FetchTopic(topic="t", partitions=[asks()])]
    session = half.ask(fetch, asked, 12).session_id
    half.world.delete("t")
    again = request(session_id=session, session_epoch=1)
    assert codes(half.ask(fetch, again, 12)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    write(half.world.create("t", unique=1))
    again.session_epoch = 2
    answer = half.ask(fetch, again, 12)
    assert [header.base_offset for _, header in iter_batches(answer.responses[0].partitions[0].records)] == [0]


# -- transactions -----------------------------------------------------------------------------------------------------


def write_open(partition: Partition, pid: int) -> None:
    """Write a record of a transaction that stays open."""
    guard = partition.start_verification(pid, 0, 0, supports_epoch_bump=False)
    made = batch(b"x" * 100, producer_id=pid, producer_epoch=0, base_sequence=0, transactional=True)
    partition.append(made, required_acks=1, now_ms=NOW_MS, verification=guard)


def end(partition: Partition, pid: int, *, commit: bool) -> None:
    partition.append_marker(producer_id=pid, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)


def only(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("level", [0, 1])
def test_what_each_isolation_level_reads_and_is_told(half: Half, level: int) -> None:
    partition = half.world.create("t")
    write(partition)
    write_open(partition, 7)
    write_open(partition, 8)
    end(partition, 7, commit=False)
    answer = only(half.ask(fetch, request((topic_id("t"), [asks()]), isolation_level=level)))
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (4, 2, 0)
    if level == 0:
        assert answer.aborted_transactions is None
        assert len(answer.records) > 3 * SIZE
        return
    assert len(answer.records) == 2 * SIZE
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(7, 1)]
    end(partition, 8, commit=True)
    answer = only(half.ask(fetch, request((topic_id("t"), [asks(offset=4)]), isolation_level=level)))
    assert (answer.last_stable_offset, answer.aborted_transactions) == (5, [])
    answer = only(half.ask(fetch, request((topic_id("t"), [asks(offset=6)]), isolation_level=level)))
    assert (answer.error_code, answer.aborted_transactions) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


def test_a_partition_that_only_others_have_is_read_in_vain(half: Half) -> None:
    half.world.publish(*topic("t", 1, (2, 3)))
    answer = only(half.ask(fetch, request((topic_id("t"), [asks()]))))
    assert (answer.error_code, answer.aborted_transactions) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    answer = only(half.ask(fetch, request((topic_id("t"), [asks(7)]))))
    assert (answer.error_code, answer.aborted_transactions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_a_read_committed_fetch_waits_for_the_end_of_a_transaction_and_for_nothing_less(half: Half) -> None:
    partition = half.world.create("t")
    write_open(partition, 7)
    asked = request((topic_id("t"), [asks()]), max_wait_ms=1_000, isolation_level=1, min_bytes=3 * SIZE)
    answer = waits(half, asked)
    reads = half.replicas.topic_metrics.bytes_out.value
    write(partition, 10)
    half.loop.settle()
    assert not answer.done()
    assert half.replicas.topic_metrics.bytes_out.value == reads
    end(partition, 7, commit=True)
    half.loop.settle()
    assert len(only(came(answer)).records) > 11 * SIZE


def test_a_read_committed_fetch_counts_bytes_where_no_transaction_is_open(half: Half) -> None:
    partition = half.world.create("t")
    answer = waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000, isolation_level=1, min_bytes=3 * SIZE))
    write(partition, 2)
    half.loop.settle()
    assert not answer.done()
    write(partition)
    half.loop.settle()
    assert sizes(came(answer)) == {0: 3 * SIZE}


def test_a_read_committed_fetch_whose_time_is_up_tells_of_the_high_watermark_that_moved(half: Half) -> None:
    partition = half.world.create("t")
    write_open(partition, 7)
    answer = waits(half, request((topic_id("t"), [asks()]), max_wait_ms=1_000, isolation_level=1))
    write(partition)
    half.loop.settle()
    half.loop.advance(2)
    found = only(came(answer))
    assert (found.high_watermark, found.last_stable_offset, len(found.records)) == (2, 0, 0)
