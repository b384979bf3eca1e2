"""The state that a lake's log adds up to, over histories of drivers that others overtake and adopt; and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pipeline.lake.commits import BATCH, CLAIM, COMPACTION, Commit, Note, Position, State
from pipeline.lake.positions import LakeError, is_committed, known, refuse_foreign, refuse_stranger

THEIRS = Commit(0, "DELETE", None, "Spark", None, (), (), "rows")


@dataclass
class Log:
    """Commits in a list; the oldest may be cleaned away."""

    commits: list[Commit] = field(default_factory=list)
    begins: int = 0

    def add(self, note: Note | None, changes: str | None = None) -> None:
        self.commits.append(Commit(len(self.commits), "WRITE", None, "Spark", note, (), (), changes))

    def read(self, version: int) -> Commit:
        if version < self.begins:
            raise FileNotFoundError(version)
        return self.commits[version]

    @property
    def newest(self) -> int:
        return len(self.commits) - 1


@dataclass
class Model:
    """The state of a driver: its epoch, and the positions that it believes to be in the lake."""

    epoch: int
    state: State


class Drivers(RuleBasedStateMachine):
    """The claim is two steps, as it is in the world: between the look and the commit the old driver may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.truth = State()
        self.driver: Model | None = None
        self.looked: tuple[int, int, State, bool] | None = None
        self.foreign = 0

    @initialize()
    def created(self) -> None:
        self.log.add(Note(CLAIM, "w", 1, "lake", State(), follows=-1))
        self.driver = Model(1, State())

    @precondition(lambda self: self.driver is not None)
    @rule(query=st.sampled_from(["a", "b"]))
    def commits_a_batch(self, query: str) -> None:
        assert self.driver is not None
        last = self.driver.state.position
        position = Position(last.batch + 1 if last else 0, f"plan {len(self.log.commits)}")
        try:
            assert not is_committed("lake", self.driver.state, query, position)
        except LakeError:
            assert self.truth.checkpoint not in (None, query) and not self.truth.released  # noqa: PT018
            return
        self.driver.state = self.truth = State(query, position)
        self.log.add(Note(BATCH, "w", self.driver.epoch, "lake", self.truth))

    @precondition(lambda self: self.driver is not None)
    @rule()
    def compacts(self) -> None:
        assert self.driver is not None
        self.log.add(Note(COMPACTION, "w", self.driver.epoch, "lake", self.driver.state))

    @rule(changes=st.sampled_from([None, "rows"]))
    def another_writer_commits(self, changes: str | None) -> None:
        self.log.add(None, changes)
        self.foreign += changes is not None

    @rule(release=st.booleans())
    def a_driver_looks(self, release: bool) -> None:
        found = known(self.log.read, self.log.newest)
        assert found.state == self.truth
        if found.foreign and not release:
            return
        state = State(self.truth.checkpoint, self.truth.position, True) if release else self.truth
        self.looked = (self.log.newest, found.epoch + 1, state, release)

    @precondition(lambda self: self.looked is not None)
    @rule()
    def and_claims(self) -> None:
        assert self.looked is not None
        newest, epoch, state, release = self.looked
        self.looked = None
        if any(each.note and each.note.kind == CLAIM for each in self.log.commits[newest + 1 :]):
            return  # Delta finds the conflict
        self.foreign = sum(each.changes is not None for each in self.log.commits[newest + 1 :])
        self.log.add(Note(CLAIM, "w", epoch, "lake", state, follows=newest, releases=release))
        if release:
            self.truth = State(self.truth.checkpoint, self.truth.position, True)
        self.driver = Model(epoch, self.truth)

    @invariant()
    def the_log_says_it(self) -> None:
        if self.log.commits:
            found = known(self.log.read, self.log.newest)
            assert found.state == self.truth
            assert self.driver is not None
            assert found.epoch == self.driver.epoch


TestDrivers = pytest.mark.slow(Drivers.TestCase)
TestDrivers.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


def test_a_log_that_was_cleaned_too_far_says_nothing() -> None:
    log = Log()
    log.add(Note(CLAIM, "w", 1, "lake", State()))
    log.add(Note(BATCH, "w", 1, "lake", State("query", Position(0, "plan"))))
    log.add(None)
    log.begins = 2
    found = known(log.read, log.newest)
    assert found.state is None
    with pytest.raises(LakeError, match="its log has no commit of this pipeline") as refused:
        refuse_stranger("lake", "query", found.state)
    assert "--adopt-lake" in refused.value.advice


KNOWN = State("query", Position(5, "plan"))


@pytest.mark.parametrize(
    ("state", "position", "is_there"),
    [
        (State(), Position(0, "plan"), False),
        (KNOWN, Position(5, "plan"), True),
        (KNOWN, Position(6, "plan"), False),
        (State("query", Position(5, "plan"), released=True), Position(5, "plan"), True),
        (State("query", Position(5, "plan"), released=True), Position(0, "plan"), False),
        (State("another", Position(5, "plan"), released=True), Position(5, "plan"), False),
    ],
)
def test_what_may_come(state: State, position: Position, is_there: bool) -> None:
    assert is_committed("lake", state, "query", position) is is_there


@pytest.mark.parametrize(
    ("state", "position", "message"),
    [
        (State(), Position(3, "plan"), "the checkpoint is at batch 3, and the lake lake has none of its batches"),
        (State("another", Position(5, "plan")), Position(6, "plan"), "of another checkpoint .query another."),
        (State("another", Position(5, "plan")), Position(5, "plan"), "of another checkpoint"),
        (KNOWN, Position(5, "other offsets"), "older than the lake lake: it plans batch 5 anew"),
        (KNOWN, Position(0, "plan"), "older than the lake lake: it plans batch 0 anew"),
        (KNOWN, Position(7, "plan"), "the lake lake is older than the checkpoint: batch 6 should come next, not 7"),
    ],
)
def test_what_is_refused(state: State, position: Position, message: str) -> None:
    with pytest.raises(LakeError, match=message) as refused:
        is_committed("lake", state, "query", position)
    assert "--adopt-lake" in refused.value.advice


def test_another_writers_first_commit_is_named() -> None:
    refuse_foreign("lake", ())
    later = Commit(9, "UPDATE", None, "Trino", None, (), (), "rows")
    first = Commit(7, "DELETE", 0, "Spark", None, (), (), "rows")
    with pytest.raises(
        LakeError, match=r"rows of the lake lake: version 7 \(DELETE, by Spark\), and 1 later"
    ) as refused:
        refuse_foreign("lake", (later, first))
    assert "Version 6 of the table" in refused.value.advice


def test_a_release_is_used_up_by_the_batch_that_a_claim_has_not_read() -> None:
    log = Log()
    batch = State("a", Position(0, "plan"))
    log.add(Note(CLAIM, "w", 1, "lake", State(released=True), releases=True))
    log.add(Note(BATCH, "w", 1, "lake", batch))
    log.add(Note(CLAIM, "v", 2, "lake", State(released=True), follows=0))
    assert known(log.read, log.newest).state == batch
