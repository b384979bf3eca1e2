"""The commit of a partition by itself: the callbacks, their order, and their codes."""

from __future__ import annotations

import pytest

from pykbroker.replica.commit import NEVER, Commit, Waiter
from pykbroker.runtime.later import OnOutcome
from pykbroker_wire.errors import ErrorCode


class Heard:
    def __init__(self) -> None:
        self.codes: list[tuple[str, ErrorCode]] = []

    def as_(self, name: str) -> OnOutcome:
        return lambda code: self.codes.append((name, code))

    def take(self) -> list[str]:
        """Return the names that were called back without an error since the last call."""
        assert all(code == ErrorCode.NONE for _, code in self.codes)
        names = [name for name, _ in self.codes]
        self.codes.clear()
        return names


@pytest.fixture
def commit() -> Commit:
    return Commit()


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_what_waits_for_one_commit_waits_for_no_other(commit: Commit, heard: Heard) -> None:
    other = Commit()
    commit.when_committed(1, heard.as_("committed"))
    commit.owe_flush(0)
    commit.when_flushed(1, heard.as_("flushed"))
    other.reached(9)
    other.tell_flushed()
    other.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert heard.take() == []
    commit.reached(1)
    commit.flushed()
    commit.tell_flushed()
    assert heard.take() == ["committed", "flushed"]


def test_commits_are_told_by_offset_and_of_one_offset_in_the_order_of_the_requests(
    commit: Commit, heard: Heard
) -> None:
    for offset, name in ((3, "three"), (1, "one"), (3, "three again"), (2, "two")):
        commit.when_committed(offset, heard.as_(name))
    commit.reached(0)
    assert heard.take() == []
    commit.reached(2)
    assert heard.take() == ["one", "two"]
    commit.reached(9)
    assert heard.take() == ["three", "three again"]
    commit.reached(9)
    assert heard.take() == []


def test_nothing_that_owes_a_flush_is_answered_before_it(commit: Commit, heard: Heard) -> None:
    commit.owe_flush(5)
    assert (commit.owed_from, commit.readable_to) == (5, 5)
    commit.when_flushed(5, heard.as_("before"))
    commit.when_flushed(6, heard.as_("first"))
    commit.when_flushed(9, heard.as_("last"))
    assert heard.take() == ["before"]
    commit.flushed()
    # Records that were appended in the meantime owe the next flush.
    commit.owe_flush(7)
    commit.tell_flushed()
    assert heard.take() == ["first"]
    commit.flushed()
    commit.tell_flushed()
    assert heard.take() == ["last"]
    assert (commit.owed_from, commit.readable_to, commit.owes_flush) == (NEVER, NEVER, False)


def test_readers_may_see_further_than_what_is_answered(commit: Commit) -> None:
    commit.owe_flush(5, readable_to=8)
    assert (commit.owed_from, commit.readable_to) == (5, 8)


def test_what_fails_is_told_once_first_what_waits_for_a_flush(commit: Commit, heard: Heard) -> None:
    commit.owe_flush(0)
    commit.when_committed(9, heard.as_("late offset"))
    commit.when_committed(1, heard.as_("early offset"))
    commit.when_flushed(1, heard.as_("flush"))
    commit.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert heard.codes == [
        (name, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name in ("flush", "late offset", "early offset")
    ]
    heard.codes.clear()
    commit.flushed()
    commit.tell_flushed()
    commit.reached(9)
    commit.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert heard.codes == []


def test_a_callback_may_wait_again(commit: Commit, heard: Heard) -> None:
    """A produce request that waited for its flush then waits for its commit in this way."""
    commit.owe_flush(0)

    def wait_again(code: ErrorCode) -> None:
        commit.when_committed(1, heard.as_("committed"))

    commit.when_flushed(1, wait_again)
    commit.flushed()
    commit.tell_flushed()
    assert heard.take() == []
    commit.reached(1)
    assert heard.take() == ["committed"]


def test_what_is_forgotten_is_not_called_and_not_kept(commit: Commit, heard: Heard) -> None:
    kept = [commit.when_committed(offset, heard.as_(f"{offset}")) for offset in (5, 3, 9)]
    for offset in range(100):
        commit.forget(commit.when_committed(offset, heard.as_("no")))
    assert len(commit._waiting) <= 2 * len(kept)
    commit.forget(kept[1])
    commit.forget(kept[1])
    commit.reached(5)
    assert heard.take() == ["5"]
    commit.forget(kept[0])
    assert [entry[2] for entry in commit._waiting] == [kept[2]]
    commit.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert heard.codes == [("9", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_may_have_others_forgotten(commit: Commit, heard: Heard, fails: bool) -> None:
    """An answer that waits for several appends does so: with the first one that fails, or after the last one."""
    others: list[Waiter] = []

    def forget_others(code: ErrorCode) -> None:
        for other in others:
            commit.forget(other)

    commit.when_committed(1, forget_others)
    others += [commit.when_committed(offset, heard.as_("no")) for offset in (2, 3, 4)]
    if fails:
        commit.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        commit.reached(9)
    assert (heard.codes, commit._waiting) == ([], [])
    commit.when_committed(1, heard.as_("yes"))
    commit.reached(1)
    assert heard.take() == ["yes"]
