"""Acknowledgements are answered when they are stored, and locks end at their time."""

from __future__ import annotations

import pytest

from pykbroker.net.promise import Promise
from pykbroker.share_leaders.leader_states import LeaderState
from pykbroker.share_partitions import acknowledged_ranges, settlement, share_partition
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ARCHIVED, AVAILABLE
from pykbroker_wire.errors import ErrorCode
from tests.replica.world import NODE
from tests.share_leaders.rig import ACCEPT, REJECT, RELEASE, RENEW, Acknowledged, Result, Rig

LOCK_SECONDS = 30
NONE = ErrorCode.NONE


@pytest.fixture
def rig() -> Rig:
    """A group whose member `m` has records 0 to 9 of one batch."""
    rig = Rig()
    rig.leader()
    rig.append(10)
    assert rig.fetch().got == [(0, 9, 1)]
    rig.keeper.writes.clear()
    return rig


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of two ranges."""
    for module in (share_partition, settlement, acknowledged_ranges):
        monkeypatch.setattr(module, "PER_TURN", 2)


def test_it_is_answered_when_it_is_stored(rig: Rig) -> None:
    rig.keeper.holds = True
    result = rig.acknowledge(0, 9, *[ACCEPT, RELEASE] * 4, REJECT, ACCEPT)
    assert rig.keeper.writes[0][0] == 0
    assert not result.is_there
    assert rig.acknowledge(0, 0).value is ErrorCode.INVALID_RECORD_STATE
    rig.keeper.answer()
    assert result.value is NONE
    assert rig.stored.start == 0
    assert {rig.stored.states[at] for at in (0, 2, 4, 6, 9)} == {(ACKNOWLEDGED, 1)}
    assert {rig.stored.states[at] for at in (1, 3, 5, 7)} == {(AVAILABLE, 1)}
    assert rig.stored.states[8] == (ARCHIVED, 1)


def test_an_error_in_its_answer_keeps_no_records_from_others(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Promise) -> None:
        raise ValueError("an answer that fails")

    rig.keeper.holds = True
    waiting = rig.fetch("n", wait_seconds=60)
    promise = rig.leader().acknowledge("m", [Acknowledged(0, 9, [RELEASE])], is_renewal=False)
    promise.add_done_callback(fail)
    rig.loop.settle()
    rig.keeper.answer()
    rig.loop.settle()
    assert "an answer that fails" in caplog.text
    assert waiting.got == [(0, 9, 2)]


def test_members_that_acknowledge_during_a_write_share_the_next_one(rig: Rig) -> None:
    rig.keeper.holds = True
    first = rig.acknowledge(0, 0)
    others = [rig.acknowledge(at, at) for at in range(2, 8)]
    refused = rig.acknowledge(3, 3)
    assert len(rig.keeper.writes) == 1
    assert refused.value is ErrorCode.INVALID_RECORD_STATE
    rig.keeper.answer()
    assert first.value is NONE
    assert not any(each.is_there for each in others)
    assert rig.keeper.writes[1:] == [(0, [(at, at, ACKNOWLEDGED, 1) for at in range(2, 8)])]
    rig.keeper.answer()
    assert [each.value for each in others] == [NONE] * 6
    assert rig.stored.states == dict.fromkeys((0, *range(2, 8)), (ACKNOWLEDGED, 1))


def test_the_next_leader_knows_what_an_acknowledgement_stores_that_had_to_wait(rig: Rig) -> None:
    """The last session closes while an acknowledgement waits for the write before it. Then the member comes back."""
    rig.keeper.holds = True
    rig.acknowledge(0, 0)
    waiting = rig.acknowledge(1, 9)
    rig.leave()
    leader = rig.leader()
    while rig.keeper.asked:
        rig.keeper.answer()
        rig.loop.settle()
    assert waiting.value is NONE
    assert leader.machine.start_offset == 10


def test_a_shared_write_that_fails_gives_each_member_its_locks_back(rig: Rig) -> None:
    rig.keeper.holds = True
    rig.acknowledge(0, 0)
    others = [rig.acknowledge(at, at) for at in (4, 2)]
    rig.keeper.answer()
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [each.value for each in others] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert {first for first, last, *_ in rig.leader().machine.locks() for first in range(first, last + 1)} == set(
        range(1, 10)
    )
    rig.keeper.holds = False
    assert rig.acknowledge(1, 9).value is NONE
    assert rig.leader().machine.start_offset == 10


def test_a_refused_acknowledgement_is_answered_at_once_and_writes_nothing(rig: Rig) -> None:
    rig.keeper.holds = True
    assert rig.acknowledge(0, 3, member="n").value is ErrorCode.INVALID_RECORD_STATE
    assert rig.acknowledge(5, 12).value is ErrorCode.INVALID_REQUEST
    assert rig.acknowledge(0, 3, RENEW).value is ErrorCode.INVALID_REQUEST
    assert rig.keeper.asked == []


def test_a_write_that_fails_leaves_the_records_with_their_member(rig: Rig) -> None:
    rig.keeper.holds = True
    result = rig.acknowledge(0, 9)
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert result.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [lock[:3] for lock in rig.leader().machine.locks()] == [(0, 9, "m")]
    result = rig.acknowledge(0, 9)
    rig.keeper.answer()
    assert result.value is NONE


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_a_fenced_write_drops_the_leader(rig: Rig, error: ErrorCode) -> None:
    rig.keeper.holds = True
    leader = rig.leader()
    waiting = rig.fetch("n", wait_seconds=60)
    first, second = rig.acknowledge(0, 4), rig.acknowledge(5, 9)
    rig.keeper.answer(error)
    rig.loop.settle()
    assert first.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (leader.state, rig.leaders.find("g", *rig.place())) == (LeaderState.FENCED, None)
    rig.keeper.answer(error)
    assert second.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.loop.advance(0)
    assert rig.loop.sleeping() == 1, "only the deadline of the fetch is left"


@pytest.mark.parametrize("error", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_group_that_the_coordinator_no_longer_knows_drops_the_leader(rig: Rig, error: ErrorCode) -> None:
    rig.keeper.holds = True
    result = rig.acknowledge(0, 4)
    rig.keeper.answer(error)
    assert result.value is error
    assert rig.leaders.find("g", *rig.place()) is None


def test_records_that_are_loading_are_not_acquired() -> None:
    rig = Rig()
    rig.keeper.holds = True
    rig.leader()
    assert rig.acknowledge(0, 0).value is ErrorCode.INVALID_RECORD_STATE


def test_a_leader_that_has_left_accepts_nothing(rig: Rig) -> None:
    leader = rig.leader()
    leader.end()
    result = Result(leader.acknowledge("m", [Acknowledged(0, 9, [ACCEPT])], is_renewal=False))
    assert result.value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Result(leader.release("m")).value is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.keeper.writes == []


def test_a_write_that_is_out_when_the_leader_ends_has_its_outcome(rig: Rig) -> None:
    rig.keeper.holds = True
    results = [rig.acknowledge(0, 4), rig.acknowledge(5, 9)]
    rig.world.register(1, 2)
    rig.world.change(rig.partition, leader=2, replicas=[NODE, 2])
    rig.keeper.answer()
    rig.keeper.answer(ErrorCode.FENCED_LEADER_EPOCH)
    assert [result.value for result in results] == [NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_renewal_writes_nothing_and_lasts(rig: Rig) -> None:
    rig.loop.advance(20)
    rig.keeper.holds = True
    assert rig.acknowledge(0, 4, RENEW, is_renewal=True).value is NONE
    assert rig.keeper.asked == []
    rig.loop.advance(15)
    assert [lock[:2] for lock in rig.leader().machine.locks()] == [(0, 4)]
    rig.loop.advance(20)
    assert list(rig.leader().machine.locks()) == []


def test_renewals_may_be_switched_off(rig: Rig) -> None:
    rig.configure(renew_acknowledge_enable="false")
    assert rig.acknowledge(0, 4, RENEW, is_renewal=True).value is ErrorCode.INVALID_RECORD_STATE


# -- in turns ---------------------------------------------------------------------------------------------------------


def ranges(count: int) -> list[Acknowledged]:
    return [Acknowledged(at, at, [ACCEPT]) for at in range(count)]


@pytest.mark.usefixtures("small_turns")
def test_a_release_takes_nothing_from_the_acknowledgement_before_it(rig: Rig) -> None:
    leader = rig.leader()
    acknowledged = Result(leader.acknowledge("m", ranges(8), is_renewal=False))
    released = rig.leave()
    assert rig.keeper.writes == []
    rig.loop.settle()
    assert acknowledged.value is NONE
    assert released.value[rig.place()] is NONE
    assert rig.keeper.writes == [(0, [(0, 7, ACKNOWLEDGED, 1)]), (8, [(8, 9, AVAILABLE, 1)])]


@pytest.mark.usefixtures("small_turns")
def test_acknowledgements_in_turns_come_one_after_another(rig: Rig) -> None:
    leader = rig.leader()
    first = Result(leader.acknowledge("m", ranges(6), is_renewal=False))
    second = Result(leader.acknowledge("m", ranges(9), is_renewal=False))
    third = Result(leader.acknowledge("m", [Acknowledged(6, 6, [ACCEPT])], is_renewal=False))
    rig.loop.settle()
    assert first.value is NONE
    # Those before the start are done by now.
    assert second.value is NONE
    assert third.value is NONE
    assert [write[1] for write in rig.keeper.writes] == [[(0, 5, ACKNOWLEDGED, 1)], [(6, 8, ACKNOWLEDGED, 1)]]


@pytest.mark.usefixtures("small_turns")
def test_a_leader_that_ends_during_a_change_writes_nothing(rig: Rig) -> None:
    leader = rig.leader()
    results = [Result(leader.acknowledge("m", ranges(8), is_renewal=False)) for _ in range(2)]
    rig.loop.turn()
    leader.end()
    rig.loop.settle()
    assert [result.value for result in results] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert rig.keeper.writes == []


@pytest.mark.usefixtures("small_turns")
def test_the_end_of_a_large_write_takes_turns_too(rig: Rig) -> None:
    types = [ACCEPT, RELEASE] * 5
    acknowledged = [Acknowledged(at, at, [types[at]]) for at in range(10)]
    rig.keeper.holds = True
    result = Result(rig.leader().acknowledge("m", acknowledged, is_renewal=False))
    waiting = rig.fetch("n", wait_seconds=60)
    rig.loop.settle()
    rig.keeper.answer()
    assert not result.is_there
    rig.loop.settle()
    assert result.value is NONE
    assert [(got.first, got.delivery_count) for got in waiting.got] == [(at, 2) for at in (1, 3, 5, 7, 9)]


# -- time -------------------------------------------------------------------------------------------------------------


def test_locks_end_at_their_time_and_wake_a_fetch(rig: Rig) -> None:
    waiting = rig.fetch("n", wait_seconds=60)
    rig.loop.advance(LOCK_SECONDS - 0.1)
    assert not waiting.is_done
    rig.loop.advance(0.2)
    assert waiting.got == [(0, 9, 2)]
    assert rig.keeper.writes == [(0, [(0, 9, AVAILABLE, 1)])]
    assert rig.acknowledge(0, 9).value is ErrorCode.INVALID_RECORD_STATE


def test_no_client_waits_for_the_write_of_an_ended_lock(rig: Rig) -> None:
    rig.keeper.holds = True
    rig.loop.advance(LOCK_SECONDS + 1)
    assert rig.fetch("n").got == [(0, 9, 2)]
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert rig.leader("g", "n").state is LeaderState.ACTIVE


def test_a_fenced_write_of_an_ended_lock_drops_the_leader(rig: Rig) -> None:
    rig.stored.leader_epoch += 1
    leader = rig.leader()
    rig.loop.advance(LOCK_SECONDS + 1)
    assert leader.state is LeaderState.FENCED
    assert rig.loop.sleeping() == 0


def test_each_lock_has_its_own_time_and_one_timer(rig: Rig) -> None:
    rig.loop.advance(10)
    rig.append(1)
    assert rig.fetch("n").got == [(10, 10, 1)]
    rig.configure(record_lock_duration_ms="15000")
    rig.append(1)
    assert rig.fetch("o").got == [(11, 11, 1)]
    assert rig.loop.sleeping() == 1
    ended = []
    for _ in range(40):
        rig.loop.advance(1)
        ended.append(len(list(rig.leader().machine.locks())))
    assert [ended.index(count) + 1 for count in (2, 1, 0)] == [15, 20, 30]


def test_a_timer_that_fires_at_its_time_ends_the_lock(rig: Rig) -> None:
    """32.05 s are 32049.99 ms: a timer that rounds down finds nothing to end, and fires again at once, for ever if the
    clock stands still."""
    rig.loop.advance(32.05 - LOCK_SECONDS)
    rig.append(1)
    assert rig.fetch("n").got == [(10, 10, 1)]
    rig.loop.now = 32.05
    rig.leader()._expire()
    assert list(rig.leader().machine.locks()) == []


def test_a_record_at_the_delivery_limit_is_archived_when_its_lock_ends(rig: Rig) -> None:
    rig.configure(delivery_count_limit="2")
    for _ in range(2):
        rig.loop.advance(LOCK_SECONDS + 1)
        rig.fetch()
    assert rig.stored.start == 10 or rig.keeper.writes[-1] == (10, [(0, 9, ARCHIVED, 2)])
    assert rig.leader().machine.start_offset == 10
