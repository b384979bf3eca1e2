"""A leader reads the state of its share partition, and finds the start of a group that has none."""

from __future__ import annotations

import pytest

from pykbroker.net.promise import Promise
from pykbroker.share_leaders.leader_states import LeaderState
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ACQUIRED, AVAILABLE
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import build_batch
from tests.replica.world import NODE, NOW_MS, batch
from tests.share_leaders.rig import Rig, Stored


def test_it_reads_with_the_leader_epoch_of_the_partition() -> None:
    rig = Rig()
    rig.world.change(rig.partition, leader=NODE, isr=[NODE])
    rig.keeper.holds = True
    leader = rig.leader()
    assert [(asked.key, asked.leader_epoch, asked.batches) for asked in rig.keeper.asked] == [
        (rig.key(), rig.partition.leader_epoch, None)
    ]
    assert rig.partition.leader_epoch == 1
    assert (leader.state, leader.has_left, leader.can_acquire()) == (LeaderState.LOADING, False, False)
    assert rig.leader() is leader
    assert len(rig.keeper.asked) == 1


def test_it_goes_on_with_the_stored_state() -> None:
    rig = Rig()
    rig.append(10)
    rig.keeper.states[rig.key()] = Stored(2, states={2: (AVAILABLE, 2), 3: (ACKNOWLEDGED, 1), 5: (ACQUIRED, 4)})
    found = rig.fetch(most=2)
    assert found.got == [(2, 2, 3), (4, 4, 1)]
    assert rig.fetch(most=1).got == [(5, 5, 5)]


@pytest.mark.parametrize(
    ("answered", "error"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_is_an_error_of_the_partition(answered: ErrorCode, error: ErrorCode) -> None:
    rig = Rig()
    rig.keeper.holds = True
    fetch = rig.fetch(wait_seconds=60)
    rig.keeper.answer(answered)
    rig.loop.settle()
    assert fetch.errors == [error]
    assert fetch.is_done
    assert len(rig.leaders) == 0
    assert not rig.partition.fetch_waiters
    rig.keeper.holds = False
    rig.append()
    assert rig.leader().state is LeaderState.ACTIVE
    assert rig.keeper.reads == 2


def test_a_state_that_no_share_partition_can_have_is_an_error() -> None:
    rig = Rig()
    rig.keeper.states[rig.key()] = Stored(5, states={6: (7, 1)})
    assert rig.fetch().errors == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert len(rig.leaders) == 0


def test_a_fetch_waits_for_the_load() -> None:
    rig = Rig(auto_offset_reset="earliest")
    rig.append(3)
    rig.keeper.holds = True
    fetch = rig.fetch(wait_seconds=5)
    rig.keeper.answer()
    rig.loop.settle()
    assert not fetch.is_done
    rig.keeper.answer()
    rig.loop.settle()
    assert fetch.got == [(0, 2, 1)]


def test_a_load_that_is_no_longer_wanted_is_given_up() -> None:
    rig = Rig()
    rig.keeper.holds = True
    leader = rig.leader()
    (asked,) = rig.keeper.asked
    leader.end()
    assert asked.promise.cancelled()
    rig.keeper.answer()
    assert (leader.state, leader.error) == (LeaderState.ENDED, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.keeper.writes == []


# -- the start of a group ---------------------------------------------------------------------------------------------


def test_latest_is_the_high_watermark_and_is_written_at_once() -> None:
    rig = Rig()
    rig.append(3)
    rig.keeper.holds = True
    leader = rig.leader()
    rig.keeper.answer()
    (asked,) = rig.keeper.asked
    assert asked[:6] == (rig.key(), 0, 3, 3, 0, [])
    assert not leader.can_acquire()
    rig.keeper.answer()
    assert leader.can_acquire()
    assert leader.machine.next_fetch_offset == 3
    assert rig.stored.start == 3


def test_records_after_the_start_of_a_latest_group_come_again_after_a_kill() -> None:
    rig = Rig()
    rig.append(3)
    assert rig.fetch().got == []
    rig.append(2)
    assert rig.fetch().got == [(3, 4, 1)]
    rig.restarted()
    rig.append(1)
    assert rig.fetch().got == [(3, 5, 1)]


def test_nothing_is_acquired_before_the_start_is_stored() -> None:
    rig = Rig()
    rig.keeper.holds = True
    fetch = rig.fetch(wait_seconds=5)
    rig.keeper.answer()
    rig.append(2)
    rig.loop.settle()
    assert (fetch.is_done, fetch.got) == (False, [])
    rig.keeper.answer()
    rig.loop.settle()
    assert fetch.got == [(0, 1, 1)]


def test_a_start_that_cannot_be_written_leaves_fetches_empty_and_is_written_again() -> None:
    rig = Rig()
    rig.keeper.holds = True
    fetch = rig.fetch(wait_seconds=5)
    rig.keeper.answer()
    rig.append(2)
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.loop.advance(6)
    assert (fetch.is_done, fetch.got, fetch.errors) == (True, [], [])
    assert rig.keeper.asked == []
    fetch = rig.fetch(wait_seconds=5)
    rig.fetch("n", wait_seconds=5)
    assert [(asked.start, asked.batches) for asked in rig.keeper.asked] == [(0, [])]
    rig.keeper.answer()
    rig.loop.settle()
    assert fetch.got == [(0, 1, 1)]


def test_a_start_that_outlasts_the_fetch_leaves_it_empty() -> None:
    rig = Rig()
    rig.keeper.holds = True
    fetch = rig.fetch(wait_seconds=5)
    rig.keeper.answer()
    rig.append(2)
    rig.loop.advance(6)
    assert (fetch.is_done, fetch.got, fetch.errors) == (True, [], [])
    assert list(rig.leader().machine.locks()) == []


def test_a_fenced_start_drops_the_leader() -> None:
    rig = Rig()
    rig.keeper.holds = True
    fetch = rig.fetch(wait_seconds=5)
    leader = rig.leader()
    rig.keeper.answer()
    rig.stored.state_epoch += 1
    rig.keeper.answer()
    rig.loop.settle()
    assert (leader.state, fetch.errors) == (LeaderState.FENCED, [ErrorCode.NOT_LEADER_OR_FOLLOWER])
    assert len(rig.leaders) == 0


def test_earliest_is_the_start_of_the_log() -> None:
    rig = Rig(auto_offset_reset="earliest")
    rig.append(5)
    rig.partition.delete_records_before(2)
    assert rig.leader().machine.next_fetch_offset == 2
    assert rig.stored.start == 2


@pytest.mark.parametrize(("duration", "start"), [("PT1H", 1), ("PT10S", 2), ("PT0S", 2), ("P300000D", 0)])
def test_by_duration_is_the_first_record_that_is_as_new(duration: str, start: int) -> None:
    rig = Rig(auto_offset_reset=f"by_duration:{duration}")
    for age_ms in (7_200_000, 60_000):
        records = bytearray(build_batch([(None, b"x", (), NOW_MS - age_ms)]))
        rig.partition.append(records, required_acks=-1, now_ms=NOW_MS)
    leader = rig.leader()
    rig.loop.settle()
    assert leader.state is LeaderState.ACTIVE
    assert rig.stored.start == start


def test_a_changed_reset_acts_on_the_next_load_of_a_group_without_a_start() -> None:
    rig = Rig()
    rig.append(3)
    rig.leader()
    rig.configure(auto_offset_reset="earliest")
    rig.restarted()
    assert rig.leader().machine.next_fetch_offset == 3
    assert rig.leader("h").machine.next_fetch_offset == 3
    rig.configure("i", auto_offset_reset="earliest")
    assert rig.leader("i").machine.next_fetch_offset == 0


def test_latest_waits_until_the_leader_knows_what_is_committed() -> None:
    rig = Rig()
    rig.world.register(1, 2)
    rig.partition = partition = rig.world.create("u", replicas=(NODE, 2))
    partition.append(batch(b"x", b"y"), required_acks=1, now_ms=NOW_MS)
    rig.world.change(partition, leader=NODE, isr=[NODE, 2])
    leader = rig.leader()
    rig.loop.settle()
    assert (leader.can_acquire(), leader.has_left) == (False, False)
    assert rig.keeper.writes == []
    partition.note_fetched(2, 2)
    rig.loop.settle()
    assert leader.can_acquire()
    assert rig.stored.start == 2


def test_a_leadership_that_ends_during_the_search_ends_the_leader() -> None:
    rig = Rig()
    rig.world.register(1, 2)
    rig.partition = partition = rig.world.create("u", replicas=(NODE, 2))
    partition.append(batch(b"x", b"y"), required_acks=1, now_ms=NOW_MS)
    rig.world.change(partition, leader=NODE, isr=[NODE, 2])
    fetch = rig.fetch(wait_seconds=5)
    rig.world.change(partition, leader=2)
    rig.loop.settle()
    assert fetch.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert rig.keeper.writes == []


def test_a_search_that_fails_is_an_error_of_the_partition() -> None:
    rig = Rig()
    for error, code in (
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (OSError("no such device"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        rig.starts.find = lambda partition, reset, error=error: _failed(error)  # type: ignore[method-assign, misc]
        assert rig.fetch().errors == [code]
    assert len(rig.leaders) == 0


def _failed(error: Exception) -> Promise:
    promise = Promise()
    promise.set_exception(error)
    return promise


def test_a_broker_that_does_not_lead_has_no_leader() -> None:
    rig = Rig()
    rig.join()
    rig.world.register(1, 2)
    partition = rig.world.create("u", replicas=(2, NODE))
    rig.world.change(partition, leader=2)
    with pytest.raises(KafkaError) as refused:
        rig.leaders.leader_of("g", partition)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_group_without_a_session_has_no_leader() -> None:
    rig = Rig()
    with pytest.raises(KafkaError) as refused:
        rig.leaders.leader_of("g", rig.partition)
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
