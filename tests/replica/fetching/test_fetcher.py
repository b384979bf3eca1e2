"""The requests of a fetcher, and the meaning of each answer."""

from __future__ import annotations

import logging

import pytest

from pykbroker.replica.fetching.fetcher import AppendRecords, StartOver, TruncateTo
from pykbroker.replica.fetching.partition_fetch import PartitionFetch, Phase
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykbroker_wire.messages.list_offsets import ListOffsetsRequest
from tests.replica.fetching.leader import ModelLog
from tests.replica.fetching.side import BROKER_EPOCH, TOPIC_ID, Side


def led(epoch: int, *batches_per_epoch: tuple[int, int]) -> ModelLog:
    """Return a leader's log from pairs (epoch, number of batches that were written in it)."""
    log = ModelLog()
    for written_in, count in batches_per_epoch:
        log.lead(written_in)
        log.write(count)
    log.lead(epoch)
    log.high_watermark = log.log_end_offset
    return log


def copied(*batches_per_epoch: tuple[int, int]) -> ModelLog:
    """Return a follower's log with the same kind of content."""
    log = ModelLog()
    for written_in, count in batches_per_epoch:
        log.epoch = written_in
        log.write(count)
    log.high_watermark = log.log_end_offset
    return log


def fetched(request: object) -> FetchRequest:
    assert isinstance(request, FetchRequest)
    return request


def test_a_request_says_what_the_replica_is_and_where_its_log_ends() -> None:
    side = Side()
    side.follow(copied((3, 4)), epoch=5)
    request = fetched(side.ask())
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (
        -1,
        1,
        BROKER_EPOCH,
    )
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000)
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert topic.topic_id == TOPIC_ID
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (4, 3, 5)
    assert (asked.log_start_offset, asked.partition_max_bytes) == (0, 1000)


def test_a_follower_takes_records_high_watermark_and_log_start() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(2, (0, 3), (2, 40))
    mine = ModelLog()
    fetch = side.follow(mine, epoch=2)
    side.settle()
    assert mine.contents() == log.contents()
    assert mine.epochs.entries() == [(0, 0), (2, 3)]
    assert (mine.high_watermark, fetch.lag) == (43, 0)
    log.delete_before(20)
    side.settle()
    assert mine.log_start_offset == 20


def test_a_diverging_log_is_cut_where_the_leader_says() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(4, (0, 5), (4, 3))
    mine = copied((0, 5), (1, 4))
    side.follow(mine, epoch=4)
    (effect,) = side.round()
    assert isinstance(effect, TruncateTo)
    assert effect.offset == 5
    side.settle()
    assert mine.contents() == log.contents()


def test_several_divergences_are_followed_one_after_the_other() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(6, (0, 5), (2, 2), (5, 2))
    mine = copied((0, 3), (1, 3), (3, 3), (4, 3))
    side.follow(mine, epoch=6)
    side.settle()
    assert mine.contents() == log.contents()
    assert len(side.truncations) > 1


def test_an_epoch_in_which_nothing_was_written_does_not_hold_the_follower_up() -> None:
    """It led in epoch 3 and wrote nothing. The leader of epoch 4 does not have epoch 3."""
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(4, (0, 5))
    log.write(2)
    mine = copied((0, 5))
    mine.lead(3)
    side.follow(mine, epoch=4)
    side.settle()
    assert mine.contents() == log.contents()


def test_a_divergence_that_changes_nothing_is_waited_out() -> None:
    """A leader that repeats the same answer is not asked without a pause."""
    side = Side()
    side.follow(copied((0, 5)), epoch=1)
    side.ask()
    data = PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=0, end_offset=9))
    side.take(FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]))
    assert side.ask() is None
    assert side.fetcher.wakes_at == side.now + 1
    side.now += 1
    assert side.ask() is not None


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_has_not_heard_of_its_epoch_is_asked_again_soon_and_then_less_often(code: ErrorCode) -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = log = led(1, (0, 5))
    side.follow(copied((0, 5)), epoch=1)
    log.error = code
    pauses = []
    for _ in range(8):
        side.round()
        assert side.ask() is None
        wakes_at = side.fetcher.wakes_at
        assert wakes_at is not None
        pauses.append(round(wakes_at - side.now, 3))
        side.now = wakes_at
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    # The next error begins with a short pause again.
    log.error = ErrorCode.NONE
    side.round()
    log.error = code
    side.round()
    assert side.ask() is None
    assert side.fetcher.wakes_at == side.now + 0.02


def test_a_short_pause_ends_before_a_long_one_that_began_earlier() -> None:
    side = Side()
    for index in (0, 1):
        side.leader.logs[TOPIC_ID, index] = led(1, (0, 5))
        side.follow(copied((0, 5)), epoch=1, index=index)
    side.leader.logs[TOPIC_ID, 0].error = ErrorCode.KAFKA_STORAGE_ERROR
    side.leader.logs[TOPIC_ID, 1].error = ErrorCode.UNKNOWN_LEADER_EPOCH
    side.round()
    assert side.ask() is None
    assert side.fetcher.wakes_at == side.now + 0.02
    side.now += 0.02
    side.round()
    assert side.ask() is None
    assert side.fetcher.wakes_at == side.now + 0.04


@pytest.mark.parametrize("end_offset", [-1, -7])
def test_a_divergence_without_an_offset_cuts_nothing(end_offset: int) -> None:
    side = Side()
    mine = copied((0, 5))
    side.follow(mine, epoch=1)
    side.ask()
    data = PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=0, end_offset=end_offset))
    assert not side.take(FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]))
    assert mine.log_end_offset == 5
    assert side.ask() is None


# -- out of range ------------------------------------------------------------------------------------------------------


def test_a_follower_behind_the_leaders_start_starts_over_there() -> None:
    """For example a disk was replaced by an empty one, or the follower was away for long."""
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 9))
    log.delete_before(6)
    mine = ModelLog()
    side.follow(mine, epoch=1)
    side.settle()
    assert (mine.log_start_offset, mine.contents()) == (6, log.contents())
    assert side.truncations == [(mine, 6)]


def test_a_follower_that_is_ahead_without_a_common_epoch_cuts_to_the_leaders_end() -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = log = ModelLog()
    log.lead(7)
    log.epochs.clear()
    mine = copied((0, 5))
    side.follow(mine, epoch=7)
    assert side.round() == []
    request = side.ask()
    assert isinstance(request, ListOffsetsRequest)
    assert request.replica_id == 1
    (effect,) = side.take(side.leader.answer(request))
    assert isinstance(effect, TruncateTo)
    assert effect.offset == 0


def test_a_fetch_offset_that_both_ends_allow_is_tried_again_later() -> None:
    """Apache Kafka's second case: the leader has written more in the meantime."""
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 9))
    mine = copied((0, 5))
    side.follow(mine, epoch=1)
    log.error = ErrorCode.OFFSET_OUT_OF_RANGE
    for _ in range(3):
        assert side.round() == []
    assert side.ask() is None
    log.error = ErrorCode.NONE
    side.now += 1
    side.settle()
    assert mine.contents() == log.contents()
    assert not side.truncations


def test_others_are_fetched_on_after_one_was_out_of_range() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 9))
    log.delete_before(6)
    other = side.leader.logs[TOPIC_ID, 1] = led(1, (0, 2))
    mine, second = ModelLog(), ModelLog()
    side.follow(mine, epoch=1)
    side.follow(second, epoch=1, index=1)
    side.settle()
    assert (mine.contents(), second.contents()) == (log.contents(), other.contents())


@pytest.mark.parametrize(
    ("leads_in", "is_over"), [(2, True), (0, False)], ids=["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"]
)
def test_an_error_of_the_question_for_offsets(leads_in: int, is_over: bool) -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 9))
    side.follow(copied((0, 5)), epoch=1)
    log.error = ErrorCode.OFFSET_OUT_OF_RANGE
    side.round()
    log.epoch = leads_in
    side.round()
    assert (len(side.failed), len(side.fetcher)) == ((1, 0) if is_over else (0, 1))
    assert side.ask() is None


# -- errors of partitions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_is_waited_out_and_others_go_on(code: ErrorCode) -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    side.leader.logs[TOPIC_ID, 1] = other = led(1, (0, 3))
    mine, second = ModelLog(), ModelLog()
    side.follow(mine, epoch=1)
    side.follow(second, epoch=1, index=1)
    log.error = code
    side.settle()
    assert (mine.contents(), second.contents()) == ([], other.contents())
    assert not side.failed
    log.error = ErrorCode.NONE
    other.write()
    side.settle()
    assert (mine.contents(), second.contents()) == ([], other.contents())
    side.now += 1
    side.settle()
    assert mine.contents() == log.contents()


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_that_stays_unknown_to_its_leader_is_a_warning(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that is being created or deleted causes none."""
    caplog.set_level(logging.INFO, "pykbroker.replica.fetching.fetcher")
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    side.follow(ModelLog(), epoch=1)

    def levels(answers: int) -> list[str]:
        caplog.clear()
        for _ in range(answers):
            side.settle()
            side.now += 1
        return [record.levelname for record in caplog.records if code.name in record.getMessage()]

    log.error = code
    assert levels(5) == ["INFO"] * 4 + ["WARNING"]
    log.error = ErrorCode.NONE
    side.settle()
    log.error = code
    assert levels(1) == ["INFO"]


def test_a_fenced_epoch_waits_for_the_metadata() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(2, (0, 3))
    mine = ModelLog()
    fetch = side.follow(mine, epoch=1)
    side.round()
    assert [(fail.fetch, fail.is_expected) for fail in side.failed] == [(fetch, True)]
    assert fetch.phase is Phase.ENDED
    side.now += 10
    assert side.ask() is None
    side.follow(mine, epoch=2)
    side.settle()
    assert mine.contents() == log.contents()


def test_a_new_leader_epoch_ends_every_delay() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    side.leader.logs[TOPIC_ID, 1] = led(1, (0, 3))
    mine = ModelLog()
    side.follow(mine, epoch=1)
    log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    side.settle()
    assert side.ask() is None
    log.error = ErrorCode.NONE
    side.follow(ModelLog(), epoch=1, index=1)
    side.settle()
    assert mine.contents() == log.contents()


def test_a_refused_append_is_waited_out() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    mine = ModelLog()
    fetch = side.follow(mine, epoch=1)
    (effect,) = side.fetcher.answered(side.leader.answer(side.ask()), side.now)
    assert isinstance(effect, AppendRecords)
    side.fetcher.refused(fetch, side.now)
    assert side.ask() is None
    side.now += 1
    side.settle()
    assert mine.contents() == log.contents()


# -- answers that come late, or not at all -----------------------------------------------------------------------------


def test_an_answer_changes_nothing_about_a_partition_that_was_removed_or_came_anew() -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    mine = ModelLog()
    fetch = side.follow(mine, epoch=1)
    late = side.leader.answer(side.ask())
    side.fetcher.remove(fetch)
    side.follow(mine, epoch=2)
    assert side.take(late) == []
    assert (mine.contents(), fetch.phase) == ([], Phase.ENDED)


def test_what_ends_while_it_is_at_work_changes_nothing_any_more() -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    mine = ModelLog()
    fetch = side.follow(mine, epoch=1)
    side.fetcher.answered(side.leader.answer(side.ask()), side.now)
    side.fetcher.remove(fetch)
    again = side.follow(mine, epoch=2)
    before = again.position
    assert side.fetcher.done(fetch, side.now, expects_progress=True) is None
    side.fetcher.refused(fetch, side.now)
    assert (again.position, again.phase) == (before, Phase.FETCHING)


def test_a_partition_at_work_is_left_out_of_the_next_fetch() -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    side.leader.logs[TOPIC_ID, 1] = led(1, (0, 3))
    side.follow(ModelLog(), epoch=1)
    side.follow(ModelLog(), epoch=1, index=1)
    first, second = side.fetcher.answered(side.leader.answer(side.ask()), side.now)
    side.do(second)
    request = fetched(side.ask())
    assert [asked.partition for topic in request.topics for asked in topic.partitions] == [1]
    assert [gone.partitions for gone in request.forgotten_topics_data] == [[0]]
    side.do(first)
    side.take(side.leader.answer(request))
    request = fetched(side.ask())
    assert [asked.partition for topic in request.topics for asked in topic.partitions] == [0]


def test_without_an_answer_every_partition_waits_and_the_session_is_made_anew() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    mine = ModelLog()
    side.follow(mine, epoch=1)
    side.settle()
    log.write()
    side.ask()
    side.fetcher.unanswered(side.now)
    assert side.ask() is None
    side.now += 1
    request = fetched(side.ask())
    assert (request.session_id, request.session_epoch) == (1, 0)
    side.take(side.leader.answer(request))
    assert mine.contents() == log.contents()


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_is_gone_is_made_anew_at_once_but_not_for_ever(code: ErrorCode) -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    mine = ModelLog()
    side.follow(mine, epoch=1)
    side.settle()
    log.write()
    side.leader.refuses = code
    side.round()
    assert fetched(side.ask()).session_epoch == 0
    side.take(FetchResponse(error_code=code))
    assert side.ask() is None
    side.now += 1
    side.settle()
    assert mine.contents() == log.contents()


def test_a_request_that_is_refused_as_a_whole_is_waited_out() -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = led(1, (0, 3))
    side.follow(ModelLog(), epoch=1)
    side.leader.refuses = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    side.round()
    assert side.ask() is None


def test_partitions_that_nothing_asked_for_change_nothing() -> None:
    side = Side()
    mine = ModelLog()
    side.follow(mine, epoch=1)
    side.ask()
    data = [PartitionData(partition_index=index, records=memoryview(b"x" * 100)) for index in (0, 1)]
    assert side.take(FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)])) == []


def test_a_log_without_epochs_begins_at_its_high_watermark() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 9))
    mine = copied((0, 5))
    mine.high_watermark = 3
    mine.epochs.clear()
    side.follow(mine, epoch=1)
    assert side.truncations == [(mine, 3)]
    side.settle()
    assert mine.contents() == log.contents()


def test_starting_over_is_for_a_log_that_ends_before_the_leaders_start_only() -> None:
    side = Side()
    log = side.leader.logs[TOPIC_ID, 0] = led(1, (0, 9))
    log.delete_before(5)
    mine = copied((0, 5))
    side.follow(mine, epoch=1)
    side.settle()
    assert not any(isinstance(effect, StartOver) for effect in side.failed)
    assert not side.truncations
    assert mine.contents() == log.contents()


# -- throttled partitions ---------------------------------------------------------------------------------------------


def asked_for(request: object) -> set[int]:
    return {partition.partition for topic in fetched(request).topics for partition in topic.partitions}


def two_followed(side: Side) -> tuple[PartitionFetch, PartitionFetch]:
    """Follow partitions 0 and 1. Partition 0 is throttled to 10 bytes per second. The answer to the first fetch is on
    its way."""
    for index in range(2):
        side.leader.logs[TOPIC_ID, index] = led(1, (1, 40))
    side.quota.throttle("t", frozenset({0}))
    side.limit = 10
    return side.follow(ModelLog(), epoch=1), side.follow(ModelLog(), epoch=1, index=1)


def test_a_throttled_partition_is_left_out_while_the_quota_is_exceeded() -> None:
    side = Side()
    two_followed(side)
    assert asked_for(side.ask()) == {0, 1}
    side.fetcher.unanswered(side.now)
    side.quota.record(1_000)
    side.now += 1
    request = fetched(side.ask())
    assert asked_for(request) == {1}
    side.take(side.leader.answer(request))
    side.now += 11
    assert 0 in asked_for(side.ask())


def test_a_throttled_partition_that_is_in_sync_is_not_left_out() -> None:
    side = Side()
    throttled, other = two_followed(side)
    side.settle()
    assert throttled.is_in_sync
    assert other.is_in_sync
    side.quota.record(1_000)
    request = fetched(side.ask())
    assert (asked_for(request), request.forgotten_topics_data) == (set(), [])
    side.leader.logs[TOPIC_ID, 0].write(30)
    side.take(side.leader.answer(request))
    side.leader.logs[TOPIC_ID, 0].high_watermark = 70
    request = fetched(side.ask())
    assert asked_for(request) == {0}


def test_a_partition_that_falls_behind_while_the_quota_is_exceeded_leaves_the_session() -> None:
    side = Side()
    throttled, _ = two_followed(side)
    side.settle()
    side.quota.record(1_000)
    log = side.leader.logs[TOPIC_ID, 0]
    log.write(40)
    log.high_watermark = log.log_end_offset
    side.round()
    assert not throttled.is_in_sync
    (forgotten,) = fetched(side.ask()).forgotten_topics_data
    assert forgotten.partitions == [0]


def test_with_nothing_but_held_partitions_it_looks_again_after_a_pause() -> None:
    side = Side()
    side.leader.logs[TOPIC_ID, 0] = led(1, (1, 40))
    side.quota.throttle("t", None)
    side.limit = 10
    fetch = side.follow(ModelLog(), epoch=1)
    side.quota.record(1_000)
    assert (side.ask(), side.fetcher.wakes_at) == (None, side.now + 1)
    side.quota.throttle("t", frozenset())
    side.now += 1
    assert asked_for(side.ask()) == {0}
    assert not fetch.is_held


def test_a_held_partition_may_go() -> None:
    side = Side()
    throttled, _ = two_followed(side)
    side.quota.record(1_000)
    request = fetched(side.ask())
    side.fetcher.remove(throttled)
    side.take(side.leader.answer(request))
    assert 0 not in asked_for(side.ask())
    side.fetcher.unanswered(side.now)
    side.now += 20
    assert asked_for(side.ask()) == {1}
