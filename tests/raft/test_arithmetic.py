"""Majorities, voter sets, and queries of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_raft.log_view import FetchVerdict, LogView, OffsetAndEpoch
from pykbroker_raft.majority import Tally, majority, majority_offset
from pykbroker_raft.voters import Endpoint, History, ReplicaKey, VoterNode, VoterSet


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(voters: int, needed: int) -> None:
    assert majority(voters) == needed


@given(st.lists(st.integers(-1, 100), min_size=1, max_size=7))
def test_majority_offset_is_held_by_a_majority(ends: list[int]) -> None:
    offset = majority_offset(ends)
    assert sum(end >= offset for end in ends) >= majority(len(ends))
    assert sum(end > offset for end in ends) < majority(len(ends))


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(id, bytes([id]) * 16), (Endpoint("C", "h", id),)) for id in ids)


def test_tally() -> None:
    tally = Tally.of(voters(1, 2, 3), 1)
    assert not tally.won
    tally.record(9, True)
    assert not tally.won
    tally.record(2, False)
    assert not tally.lost
    tally.record(3, True)
    assert tally.won
    tally = Tally.of(voters(1, 2, 3), 1)
    tally.record(2, False)
    tally.record(3, False)
    assert tally.lost
    assert tally.unheard() == []


def test_voter_set_round_trip_and_changes() -> None:
    three = voters(1, 2, 3)
    assert VoterSet.from_record(three.to_record()) == three
    assert three.is_voter(ReplicaKey(2, bytes([2]) * 16))
    assert not three.is_voter(ReplicaKey(2, bytes([9]) * 16))
    assert three.without_directories().is_voter(ReplicaKey(2, bytes([9]) * 16))
    assert three.added(three.voters[0]) is None
    removed = three.removed(three.voters[0].key)
    assert removed is not None
    assert removed.ids() == (2, 3)
    moved = VoterNode(three.voters[0].key, (Endpoint("C", "elsewhere", 1),))
    assert three.needs_update(moved)
    assert not three.needs_update(three.voters[0])
    with pytest.raises(ValueError, match="same id"):
        VoterSet.of([*three.voters, moved])


def test_history() -> None:
    history: History[str] = History()
    history.add(-1, "a")
    history.add(5, "b")
    history.add(9, "c")
    assert [history.at(offset) for offset in (-2, -1, 4, 5, 8, 9, 99)] == [None, "a", "a", "b", "b", "c", "c"]
    history.truncate(9)
    assert history.last() == "b"
    history.forget_before(7)
    assert history.offsets == [5]
    with pytest.raises(ValueError, match="not above"):
        history.add(5, "again")


# A log with epochs 1 at 0, 3 at 10 and 4 at 15, ending at 20.
LOG = LogView(0, 20, 20, [(1, 0), (3, 10), (4, 15)])


@pytest.mark.parametrize(
    ("offset", "epoch", "verdict", "where"),
    [
        (0, 0, FetchVerdict.VALID, (0, 0)),
        (5, 1, FetchVerdict.VALID, (5, 1)),
        (10, 1, FetchVerdict.VALID, (10, 1)),
        (12, 1, FetchVerdict.DIVERGING, (10, 1)),
        (12, 2, FetchVerdict.DIVERGING, (10, 1)),
        (12, 3, FetchVerdict.VALID, (12, 3)),
        (16, 3, FetchVerdict.DIVERGING, (15, 3)),
        (20, 4, FetchVerdict.VALID, (20, 4)),
        (21, 4, FetchVerdict.DIVERGING, (20, 4)),
        (20, 5, FetchVerdict.DIVERGING, (20, 4)),
    ],
)
def test_verdicts(offset: int, epoch: int, verdict: FetchVerdict, where: tuple[int, int]) -> None:
    assert LOG.validate(offset, epoch) == (verdict, OffsetAndEpoch(*where))


@pytest.mark.parametrize(
    ("offset", "epoch", "verdict"),
    [
        (0, 0, FetchVerdict.SNAPSHOT),
        (9, 1, FetchVerdict.SNAPSHOT),
        (12, 2, FetchVerdict.SNAPSHOT),
        (12, 3, FetchVerdict.VALID),
        (16, 4, FetchVerdict.VALID),
        (13, 1, FetchVerdict.SNAPSHOT),
    ],
)
def test_verdicts_above_a_snapshot(offset: int, epoch: int, verdict: FetchVerdict) -> None:
    log = LogView(12, 20, 20, [(3, 12), (4, 15)], {OffsetAndEpoch(12, 3): 100, OffsetAndEpoch(18, 4): 100})
    found, where = log.validate(offset, epoch)
    assert found is verdict
    if verdict is FetchVerdict.SNAPSHOT:
        assert where == OffsetAndEpoch(18, 4)


@st.composite
def logs(draw: st.DrawFn) -> list[int]:
    """Draw the epoch of each record."""
    return sorted(draw(st.lists(st.integers(1, 5), max_size=12)))


def view_of(epochs: list[int]) -> LogView:
    view = LogView()
    for offset, epoch in enumerate(epochs):
        view.appended(offset, offset + 1, epoch)
    return view


@given(logs(), logs())
def test_divergence_ends_in_the_common_prefix(leader_epochs: list[int], follower_epochs: list[int]) -> None:
    """Cutting a log at each diverging epoch of the leader ends at the common prefix, in finitely many steps."""
    leader, follower = view_of(leader_epochs), view_of(follower_epochs)
    for _ in range(20):
        verdict, where = leader.validate(follower.end_offset, follower.last_epoch)
        if verdict is FetchVerdict.VALID:
            break
        before = follower.end_offset
        follower.truncated(follower.truncation_point(where))
        assert follower.end_offset < before
    else:
        raise AssertionError("never valid")
    # Log matching: the same (offset, epoch) at the end means the same records before it, if both come from Raft
    # leaders.
    assert follower.end_offset <= leader.end_offset


def test_started_at_keeps_the_epoch_in_force() -> None:
    log = LogView(0, 20, 20, [(1, 0), (3, 10), (4, 15)], {OffsetAndEpoch(12, 3): 1})
    log.started_at(12)
    assert log.epochs == [(3, 12), (4, 15)]
    log.started_at(15)
    assert log.epochs == [(4, 15)]
    assert log.snapshots == {}
