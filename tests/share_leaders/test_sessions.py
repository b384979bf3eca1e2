"""The end of a session releases what its member holds, and the last one of a group ends its leaders."""

from __future__ import annotations

import pytest

from pykbroker.share_leaders import leader_table
from pykbroker.share_leaders.leader_states import LeaderState
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, AVAILABLE
from pykbroker.share_partitions.share_sessions import SessionMember
from pykbroker_wire.errors import ErrorCode
from tests.share_leaders.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Members `m` and `n` have three records each."""
    rig = Rig()
    rig.leader()
    rig.append(6)
    assert rig.fetch("m", most=3).got == [(0, 2, 1)]
    assert rig.fetch("n", most=3).got == [(3, 5, 1)]
    rig.keeper.writes.clear()
    return rig


def test_the_end_of_a_session_releases_its_locks(rig: Rig) -> None:
    ended = rig.leave("m")
    assert ended.value == {rig.place(): ErrorCode.NONE}
    assert rig.keeper.writes == [(0, [(0, 2, AVAILABLE, 1)])]
    assert rig.fetch("n").got == [(0, 2, 2)]


def test_the_last_session_ends_the_leaders_when_its_releases_are_stored(rig: Rig) -> None:
    leader = rig.leader()
    rig.leader("other", "x")
    rig.keeper.holds = True
    first, last = rig.leave("m"), rig.leave("n")
    rig.keeper.answer()
    assert (first.is_there, last.is_there, leader.state) == (True, False, LeaderState.ACTIVE)
    rig.keeper.answer()
    assert (first.is_there, last.is_there, leader.state) == (True, True, LeaderState.ENDED)
    assert rig.leaders.find("g", *rig.place()) is None
    assert rig.leaders.find("other", *rig.place()) is not None
    assert [leader.key.group_id for leader in rig.leaders] == ["other"]


def test_a_session_that_opens_meanwhile_keeps_the_leaders(rig: Rig) -> None:
    rig.keeper.holds = True
    leader = rig.leader()
    rig.leave("m")
    rig.leave("n")
    rig.join("o")
    rig.keeper.answer_all()
    assert rig.leaders.find("g", *rig.place()) is leader


def test_a_release_that_cannot_be_stored_still_ends_the_locks(rig: Rig) -> None:
    rig.keeper.holds = True
    ended = rig.leave("m")
    rig.keeper.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert ended.value == {rig.place(): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert rig.fetch("n").got == [(0, 2, 2)]


def test_an_acknowledgement_that_is_out_is_not_released(rig: Rig) -> None:
    rig.keeper.holds = True
    acknowledged = rig.acknowledge(0, 1)
    rig.leave("m")
    rig.keeper.answer_all()
    assert acknowledged.value is ErrorCode.NONE
    assert [batches for _, batches in rig.keeper.writes] == [[(0, 1, ACKNOWLEDGED, 1)], [(2, 2, AVAILABLE, 1)]]


def test_a_partition_that_no_member_has_fetched_has_nothing_to_release(rig: Rig) -> None:
    rig.join("o", "unread")
    assert rig.leave("o", "unread").value == {rig.place(): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_session_without_partitions_ends_at_once(rig: Rig) -> None:
    rig.leaders.sessions.open(SessionMember("g", "o"), "o", [], has_acknowledgements=False)
    assert rig.leave("o").value == {}


def test_the_records_of_a_forgotten_partition_are_released_with_the_session(rig: Rig) -> None:
    rig.leaders.sessions.fetch(SessionMember("g", "m"), 1, [], [rig.place()])
    assert rig.leave("m").value == {rig.place(): ErrorCode.NONE}
    assert rig.fetch("n").got == [(0, 2, 2)]


def test_a_connection_that_ends_ends_all_its_sessions() -> None:
    rig = Rig()
    for member in ("m", "n"):
        rig.join(member, connection="shared")
    rig.join("o", connection="other")
    rig.leader()
    rig.append(6)
    for member in ("m", "n"):
        assert rig.fetch(member, most=3).got
    rig.leaders.disconnected("shared")
    rig.leaders.disconnected("unknown")
    assert rig.fetch("o").got == [(0, 5, 2)]
    assert len(rig.leaders.sessions) == 1


def test_switched_off_share_groups_release_and_end_everything(rig: Rig) -> None:
    waiting = rig.fetch("n", wait_seconds=60)
    rig.leaders.turn_off()
    rig.loop.settle()
    assert len(rig.leaders.sessions) == len(rig.leaders) == 0
    assert waiting.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert rig.stored.states == dict.fromkeys(range(6), (AVAILABLE, 1))
    assert rig.loop.sleeping() == 1, "only the deadline of the fetch is left"


# -- the stop of a node -----------------------------------------------------------------------------------------------


def test_a_stop_waits_until_the_locks_are_released(rig: Rig) -> None:
    rig.keeper.holds = True
    closed = rig.leaders.close()
    rig.keeper.answer()
    assert not closed.done()
    rig.keeper.answer()
    assert closed.done()
    assert rig.stored.states == dict.fromkeys(range(6), (AVAILABLE, 1))
    assert len(rig.leaders) == 0
    rig.loop.settle()
    assert rig.loop.sleeping() == 0


def test_a_stop_does_not_wait_for_ever(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.keeper.holds = True
    closed = rig.leaders.close()
    rig.loop.advance(leader_table.CLOSE_SECONDS - 0.1)
    assert not closed.done()
    rig.loop.advance(0.1)
    assert closed.done()
    assert "The locks of 2 share sessions could not be released" in caplog.text
    assert len(rig.leaders) == 0
    assert rig.loop.sleeping() == 0
    rig.keeper.answer_all()


def test_a_stop_without_sessions_does_not_wait() -> None:
    assert Rig().leaders.close().done()
