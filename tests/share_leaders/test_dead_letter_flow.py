"""A leader stores rejected records as ARCHIVING, has their dead letters written, and archives them."""

from __future__ import annotations

import logging

import pytest

from pykbroker.share_leaders import dead_letter_flow
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker.share_leaders.leader_table import CLOSE_SECONDS
from pykbroker.share_partitions import acknowledged_ranges, settlement, share_partition
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE
from pykbroker_wire.errors import ErrorCode
from tests.replica.world import NODE
from tests.share_leaders.rig import ACCEPT, REJECT, RELEASE, Acknowledged, Result, Rig, Stored

LOCK_SECONDS = 30
NONE = ErrorCode.NONE


@pytest.fixture
def rig() -> Rig:
    """A group with a dead letter queue, whose member `m` has records 0 to 9 of one batch. Each delivery is the last but
    one."""
    return member_of(Rig(delivery_count_limit="2"))


def member_of(rig: Rig) -> Rig:
    rig.letters.wanted = True
    rig.leader()
    rig.append(10)
    assert rig.fetch().got == [(0, 9, 1)]
    rig.keeper.writes.clear()
    return rig


def deliver_again(rig: Rig) -> None:
    """All records are released, and delivered for the last time."""
    rig.acknowledge(0, 9, RELEASE)
    assert rig.fetch().got == [(0, 9, 2)]
    rig.keeper.writes.clear()


def test_a_rejected_record_is_archiving_until_its_letter_is_written(rig: Rig) -> None:
    rig.letters.holds = True
    assert rig.acknowledge(0, 2, REJECT).value is NONE
    rig.loop.settle()
    place = rig.place()
    assert rig.letters.came == [DeadLetters("g", place[0], place[1], 0, 2, 1, DeadLetterCause.REJECTED)]
    assert rig.keeper.writes == [(0, [(0, 2, ARCHIVING, 1)])]
    assert rig.leader().machine.start_offset == 0
    assert rig.acknowledge(0, 0, ACCEPT).value is ErrorCode.INVALID_RECORD_STATE
    rig.letters.end()
    rig.loop.settle()
    assert rig.keeper.writes == [(0, [(0, 2, ARCHIVING, 1)]), (0, [(0, 2, ARCHIVED, 1)])]
    assert rig.leader().machine.start_offset == 3


def test_it_is_answered_before_the_letter_is_written(rig: Rig) -> None:
    rig.keeper.holds = True
    result = rig.acknowledge(0, 9, REJECT)
    rig.loop.settle()
    assert rig.letters.came == []
    assert not result.is_there
    rig.keeper.answer()
    assert result.value is NONE
    assert rig.letters.came == []
    rig.loop.settle()
    assert len(rig.letters.came) == 1


def test_a_batch_with_one_state_is_one_letter_range(rig: Rig) -> None:
    rig.acknowledge(0, 9, *[REJECT] * 10)
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 9, 1, "REJECTED")]


def test_a_release_at_the_delivery_limit_has_another_cause(rig: Rig) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    rig.acknowledge(0, 9, REJECT, RELEASE, RELEASE, ACCEPT, REJECT, RELEASE, *[ACCEPT] * 4)
    rig.loop.settle()
    assert rig.letters.ranges == [
        (0, 0, 2, "REJECTED"),
        (1, 2, 2, "DELIVERY_LIMIT"),
        (4, 4, 2, "REJECTED"),
        (5, 5, 2, "DELIVERY_LIMIT"),
    ]
    assert rig.stored.states[0] == rig.stored.states[1] == (ARCHIVING, 2)
    assert rig.stored.states[3] == (ACKNOWLEDGED, 2)


def test_a_lock_that_ends_at_the_delivery_limit_leaves_a_letter(rig: Rig) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    rig.loop.advance(LOCK_SECONDS + 1)
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 9, 2, "DELIVERY_LIMIT")]
    assert rig.keeper.writes == [(0, [(0, 9, ARCHIVING, 2)])]
    rig.letters.end()
    rig.loop.settle()
    assert rig.keeper.writes[1:] == [(0, [(0, 9, ARCHIVED, 2)])]


@pytest.mark.parametrize("error", [NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_the_letter_of_an_ended_lock_waits_for_its_write_whatever_its_outcome(rig: Rig, error: ErrorCode) -> None:
    deliver_again(rig)
    rig.keeper.holds = True
    rig.loop.advance(LOCK_SECONDS + 1)
    rig.loop.settle()
    assert rig.letters.came == []
    rig.keeper.answer(error)
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 9, 2, "DELIVERY_LIMIT")]
    rig.keeper.answer()
    assert {rig.stored.states[at] for at in range(10)} == {(ARCHIVED, 2)}


def test_a_group_without_a_queue_stores_nothing_new(rig: Rig) -> None:
    rig.letters.wanted = False
    rig.acknowledge(0, 0, REJECT)
    rig.acknowledge(1, 9, RELEASE)
    assert rig.fetch().got == [(1, 9, 2)]
    rig.acknowledge(1, 4, RELEASE)
    rig.loop.advance(LOCK_SECONDS + 1)
    rig.loop.settle()
    assert ARCHIVING not in {state for _, batches in rig.keeper.writes for _, _, state, _ in batches}
    assert rig.letters.came == []
    assert rig.leader().machine.start_offset == 10


@pytest.mark.parametrize("end", ["the queue is taken away", "it stays"])
def test_what_is_archiving_ends_without_a_queue_too(rig: Rig, end: str) -> None:
    rig.keeper.holds = True
    result = rig.acknowledge(0, 9, REJECT)
    rig.letters.wanted = end == "it stays"
    rig.keeper.answer_all()
    rig.loop.settle()
    rig.keeper.answer_all()
    assert result.value is NONE
    assert rig.leader().machine.start_offset == 10


# -- what fails ------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_records_with_their_member_and_writes_no_letter(rig: Rig) -> None:
    rig.keeper.holds = True
    result = rig.acknowledge(0, 9, REJECT)
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.loop.settle()
    assert result.value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.letters.came == []
    assert [lock[:3] for lock in rig.leader().machine.locks()] == [(0, 9, "m")]
    rig.keeper.holds = False
    assert rig.acknowledge(0, 9, ACCEPT).value is NONE


def test_a_record_whose_lock_has_ended_when_its_write_fails_gets_its_letter(rig: Rig) -> None:
    deliver_again(rig)
    rig.keeper.holds = True
    rig.acknowledge(0, 9, REJECT)
    rig.loop.advance(LOCK_SECONDS + 1)
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 9, 2, "DELIVERY_LIMIT")]
    rig.keeper.answer()
    assert {rig.stored.states[at] for at in range(10)} == {(ARCHIVED, 2)}


def test_a_record_stays_archived_if_the_write_after_its_letter_fails(rig: Rig) -> None:
    rig.letters.holds = True
    rig.acknowledge(0, 2, REJECT)
    rig.loop.settle()
    rig.keeper.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.letters.end()
    rig.loop.settle()
    assert rig.stored.states[0] == (ARCHIVING, 1)
    assert rig.leader().machine.start_offset == 3
    rig.keeper.refuses = NONE
    rig.acknowledge(3, 9, ACCEPT)
    assert rig.stored.start == 3


def test_a_leader_that_leaves_archives_nothing_and_the_next_one_goes_on(rig: Rig) -> None:
    rig.letters.holds = True
    rig.acknowledge(0, 2, REJECT)
    rig.loop.settle()
    rig.world.change(rig.partition, leader=NODE)
    rig.letters.end()
    rig.loop.settle()
    assert rig.keeper.writes == [(0, [(0, 2, ARCHIVING, 1)])]
    rig.leader()
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 2, 1, "REJECTED")] * 2
    rig.letters.end()
    rig.loop.settle()
    assert rig.keeper.writes[1:] == [(0, [(0, 2, ARCHIVED, 1)])]


def test_letters_that_wait_are_dropped_with_their_leader(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_flow, "MOST_UNDER_WAY", 1)
    rig.letters.holds = True
    rig.acknowledge(0, 9, *[REJECT, ACCEPT] * 5)
    rig.loop.settle()
    rig.world.change(rig.partition, leader=NODE)
    rig.letters.end_all()
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 0, 1, "REJECTED")]


def test_a_leader_that_is_fenced_writes_no_letters(rig: Rig) -> None:
    rig.keeper.holds = True
    rig.acknowledge(0, 2, REJECT)
    rig.keeper.answer(ErrorCode.FENCED_LEADER_EPOCH)
    rig.loop.settle()
    assert rig.letters.came == []
    assert len(rig.leaders) == 0


def test_a_state_that_was_reset_meanwhile_drops_the_leader(rig: Rig) -> None:
    rig.letters.holds = True
    rig.acknowledge(0, 2, REJECT)
    rig.loop.settle()
    leader = rig.leader()
    rig.keeper.states[rig.key()] = Stored(7, state_epoch=9)
    rig.letters.end()
    rig.loop.settle()
    assert leader.has_left
    assert rig.stored == Stored(7, state_epoch=9)
    assert rig.fetch().got == [(7, 9, 1)]


def test_the_log_may_begin_after_records_whose_letters_are_under_way(rig: Rig) -> None:
    rig.letters.holds = True
    rig.acknowledge(0, 4, REJECT)
    rig.loop.settle()
    rig.leader().log_start_moved(3)
    rig.letters.end()
    rig.loop.settle()
    assert rig.keeper.writes[1:] == [(3, [(3, 4, ARCHIVED, 1)])]
    rig.acknowledge(5, 6, REJECT)
    rig.loop.settle()
    rig.leader().log_start_moved(8)
    rig.letters.end()
    rig.loop.settle()
    assert len(rig.keeper.writes) == 3
    assert rig.leader().machine.start_offset == 8


# -- the load --------------------------------------------------------------------------------------------------------


def test_a_loaded_state_is_gone_on_with_and_the_causes_follow_from_the_counts() -> None:
    rig = Rig(delivery_count_limit="3")
    rig.append(10)
    rig.letters.holds = True
    states = {1: (ARCHIVING, 1), 2: (ARCHIVING, 1), 4: (ARCHIVING, 3), 5: (AVAILABLE, 1), 6: (ARCHIVING, 2)}
    rig.keeper.states[rig.key()] = Stored(1, states=states)
    assert rig.fetch(most=100).got == [(3, 3, 1), (5, 5, 2), (7, 9, 1)]
    rig.loop.settle()
    assert rig.letters.ranges == [(1, 2, 1, "REJECTED"), (4, 4, 3, "DELIVERY_LIMIT"), (6, 6, 2, "REJECTED")]
    assert rig.leader().machine.start_offset == 1
    rig.letters.end_all()
    rig.loop.settle()
    assert rig.keeper.writes == [(1, [(1, 2, ARCHIVED, 1), (4, 4, ARCHIVED, 3), (6, 6, ARCHIVED, 2)])]
    assert rig.leader().machine.start_offset == 3


# -- sessions and the node -------------------------------------------------------------------------------------------


def test_a_leader_stays_until_its_letters_are_written(rig: Rig) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    ended = rig.leave()
    assert list(ended.value.values()) == [NONE]
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 9, 2, "DELIVERY_LIMIT")]
    assert len(rig.leaders) == 1
    rig.keeper.holds = True
    rig.letters.end()
    rig.loop.settle()
    assert len(rig.leaders) == 1
    rig.keeper.answer()
    assert len(rig.leaders) == 0
    assert rig.stored.states == dict.fromkeys(range(10), (ARCHIVED, 2))


@pytest.mark.parametrize("how", ["rejected", "a lock has ended"])
def test_a_leader_stays_while_a_write_may_bring_letters(rig: Rig, how: str) -> None:
    deliver_again(rig)
    rig.keeper.holds = True
    if how == "rejected":
        rig.acknowledge(0, 9, REJECT)
    else:
        rig.loop.advance(LOCK_SECONDS + 1)
    ended = rig.leave()
    assert list(ended.value.values()) == [NONE]
    assert len(rig.leaders) == 1
    rig.keeper.answer()
    rig.loop.settle()
    assert len(rig.letters.came) == 1
    rig.keeper.answer()
    rig.loop.settle()
    assert len(rig.leaders) == 0
    assert rig.stored.states == dict.fromkeys(range(10), (ARCHIVED, 2))


def test_a_session_that_comes_back_gets_a_leader_that_reads_the_state(rig: Rig) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    rig.leave()
    rig.loop.settle()
    rig.append(1)
    reads = rig.keeper.reads
    assert rig.fetch().got == [(10, 10, 1)]
    assert rig.keeper.reads == reads + 1
    # The letters of the earlier leader end for nobody, and this one has its own.
    rig.loop.settle()
    rig.letters.end_all()
    rig.loop.settle()
    assert len(rig.leaders) == 1
    assert rig.letters.ranges == [(0, 9, 2, "DELIVERY_LIMIT")] * 2
    assert rig.stored.states == dict.fromkeys(range(10), (ARCHIVED, 2))


def test_a_group_that_was_made_again_is_not_served_by_the_leader_of_the_one_before(rig: Rig) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    rig.leave()
    rig.loop.settle()
    [key] = rig.keeper.states
    rig.keeper.states[key] = Stored(0, leader_epoch=0, state_epoch=1)
    assert rig.fetch().got == [(0, 9, 1)]
    rig.letters.end()
    rig.loop.settle()
    assert rig.keeper.states[key].states == {}


def test_a_stop_waits_for_the_letters(rig: Rig) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    closed = rig.leaders.close()
    rig.loop.settle()
    assert not closed.done()
    rig.letters.end()
    rig.loop.settle()
    assert closed.done()
    assert rig.stored.states == dict.fromkeys(range(10), (ARCHIVED, 2))


def test_a_stop_does_not_wait_for_letters_for_ever(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    deliver_again(rig)
    rig.letters.holds = True
    closed = rig.leaders.close()
    rig.loop.settle()
    with caplog.at_level(logging.WARNING):
        rig.loop.advance(CLOSE_SECONDS + 1)
    assert closed.done()
    assert caplog.messages == ["Dead letters of 1 share partitions were not written before the stop"]
    rig.letters.end()
    rig.loop.settle()
    assert rig.stored.states == dict.fromkeys(range(10), (ARCHIVING, 2))


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_letters_are_under_way_in_bounded_number_and_archived_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_flow, "MOST_UNDER_WAY", 2)
    rig.letters.holds = True
    rig.acknowledge(0, 9, *[REJECT, ACCEPT] * 5)
    rig.loop.settle()
    assert rig.letters.ranges == [(0, 0, 1, "REJECTED"), (2, 2, 1, "REJECTED")]
    rig.letters.end(1)
    rig.letters.end(0)
    rig.loop.settle()
    assert rig.keeper.writes[1:] == [(0, [(0, 0, ARCHIVED, 1), (2, 2, ARCHIVED, 1)])]
    assert [each[0] for each in rig.letters.ranges] == [0, 2, 4, 6]
    rig.letters.holds = False
    rig.letters.end_all()
    rig.loop.settle()
    assert [each[0] for each in rig.letters.ranges] == [0, 2, 4, 6, 8]
    assert rig.leader().machine.start_offset == 10


def test_while_many_letters_wait_no_more_records_are_acquired(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_flow, "MOST_UNDER_WAY", 1)
    monkeypatch.setattr(dead_letter_flow, "MOST_WAITING", 2)
    rig.letters.holds = True
    rig.acknowledge(0, 9, *[REJECT, ACCEPT] * 3, *[ACCEPT] * 4)
    rig.loop.settle()
    rig.append(1)
    waiting = rig.fetch("n", wait_seconds=60)
    rig.loop.settle()
    assert waiting.got == []
    rig.letters.end()
    rig.loop.settle()
    assert waiting.got == [(10, 10, 1)]


def test_the_archival_of_many_records_takes_turns(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (share_partition, settlement, acknowledged_ranges):
        monkeypatch.setattr(module, "PER_TURN", 2)
    rig.letters.holds = True
    result = Result(
        rig.leader().acknowledge(
            "m", [Acknowledged(at, at, [(REJECT, ACCEPT)[at % 2]]) for at in range(10)], is_renewal=False
        )
    )
    rig.loop.settle()
    assert result.value is NONE
    rig.letters.end_all()
    rig.loop.turn()
    rig.loop.turn()
    assert len(rig.keeper.writes) == 1
    rig.loop.settle()
    assert rig.keeper.writes[1] == (0, [(at, at, ARCHIVED, 1) for at in range(0, 10, 2)])
