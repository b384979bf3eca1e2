"""The lake's commit protocol on a file system in memory: killed before every step, and overtaken after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compat_tests.spark.pipeline.memory_files import Killed, MemoryFiles, Rows
from pipeline.lake import compaction, log
from pipeline.lake.log import Writer, load, locate
from pipeline.lake.manifest import Batch, Compaction, DataFile, LakeError, LakeTakenError, Position, steps

QUERY = "11111111-query"
PARTITIONS = ("date=2026-01-01/topic=clicks", "date=2026-01-01/topic=orders", "date=2026-01-02/topic=clicks")
ROWS_PER_BATCH = 5


@pytest.fixture(autouse=True)
def _short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FOLD_EVERY", 4)


def rows_of(batch: int) -> Rows:
    return tuple(f"{batch}-{number}" for number in range(ROWS_PER_BATCH))


@dataclass
class World:
    """A lake, what Spark's checkpoint says, and the checks that hold after every single step of anybody."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    checkpointed: int = -1  # the last batch that Spark counts as done
    ids: Iterator[int] = field(default_factory=count)
    committed_before: int = -1

    def __post_init__(self) -> None:
        self.files.after_step = self.check

    def driver(self) -> Driver:
        return Driver(self, Writer(self.files, lambda: str(next(self.ids)), "the-lake"))

    def check(self) -> None:
        loaded = load(self.files)
        known = loaded.contents.positions.get(QUERY)
        committed = known.batch if known else -1
        assert committed >= self.committed_before, "a commit is never taken back"
        self.committed_before = committed
        expected = {row for batch in range(committed + 1) for row in rows_of(batch)}

        read = self.files.rows(locate(self.files, loaded))
        assert sorted(read) == sorted(expected), "read() sees every committed row once, at any moment"

        listed = Counter(self.files.listed())
        assert not [row for row, times in listed.items() if times > 1], "a listing never sees a row twice"
        assert listed.keys() <= expected, "a listing sees committed rows only"
        moving = isinstance(loaded.last, Batch | Compaction)
        waiting = {row for file in loaded.last.adds for row in self._rows(loaded.last, file)} if moving else set()
        assert expected - listed.keys() <= waiting, "what a listing misses is what is being moved"

    def _rows(self, entry: Batch | Compaction, file: DataFile) -> Rows:
        places = (file.path, f"_staging/{entry.staging}/{file.path}")
        return next(rows for place in places if isinstance(rows := self.files.content.get(place), tuple))

    def finished(self, batches: int) -> None:
        self.check()
        assert sorted(self.files.listed()) == sorted(row for batch in range(batches) for row in rows_of(batch))
        assert not [path for path in self.files.content if path.startswith("_staging")], "nothing is left behind"
        assert len(self.files.names("_log")) <= log.FOLD_EVERY + 1


@dataclass
class Driver:
    world: World
    writer: Writer

    def batch(self, batch: int, split: int = 1) -> None:
        """Spark's next batch. `split` changes into which files its rows go: a repetition may differ in that."""

        def write(staging: str) -> tuple[DataFile, ...]:
            files: dict[str, Rows] = {}
            for number, row in enumerate(rows_of(batch)):
                name = f"{PARTITIONS[number % len(PARTITIONS)]}/part-{number % split}-{staging}.parquet"
                files[name] = (*files.get(name, ()), row)
            return self.world.files.write_rows(staging, files)

        self.writer.commit(QUERY, Position(batch, f"plan {batch}"), write)
        self.world.checkpointed = max(batch, self.world.checkpointed)

    def compact(self, min_files: int = 2) -> None:
        for group in compaction.choose(self.writer.contents.files.values(), min_files, 1000):

            def write(staging: str, group: list[DataFile] = group) -> tuple[DataFile, ...]:
                rows = tuple(self.world.files.rows([file.path for file in group]))
                return self.world.files.write_rows(staging, {f"{group[0].partition}/part-{staging}.parquet": rows})

            self.writer.replace(group, write)

    def run(self, batches: int, split: int = 1) -> None:
        """A driver's whole life: from where the checkpoint is to the end, with compactions."""
        self.writer.claim(QUERY)
        for batch in range(self.world.checkpointed + 1, batches):
            self.batch(batch, split)
            self.compact()


BATCHES = 3


def steps_of_a_life() -> int:
    world = World()
    world.driver().run(BATCHES)
    world.finished(BATCHES)
    return world.files.steps


@pytest.mark.slow
def test_killed_before_every_step() -> None:
    """Kill, look, start again: after each restart each row is there once, and the checks held after each step."""
    for lives in range(steps_of_a_life()):
        world = World()
        world.files.lives = lives
        with pytest.raises(Killed):
            world.driver().run(BATCHES)
        world.files.lives = -1
        world.driver().run(BATCHES, split=3)
        world.finished(BATCHES)


def test_killed_between_the_commit_and_the_checkpoint() -> None:
    """The batch comes again, split differently: the log knows it, and nothing of it is written."""
    world = World()
    world.driver().run(2)
    world.checkpointed = 0
    files = set(world.files.content)
    driver = world.driver()
    driver.writer.claim(QUERY)
    written = world.files.steps
    driver.batch(1, split=3)
    assert world.files.steps == written
    assert {path for path in world.files.content if path.endswith(".parquet")} <= files
    world.finished(2)


@pytest.mark.slow
def test_overtaken_after_every_step() -> None:
    """A second driver starts, on the same checkpoint, while the first stands still after a step; then the first goes
    on.

    The second completes the work; the first stops with a message or had nothing left to write."""
    stopped = 0
    for step in range(1, steps_of_a_life() + 1):
        world = World()
        overtaken = False

        def overtake(world: World = world, step: int = step) -> None:
            nonlocal overtaken
            world.check()
            if not overtaken and world.files.steps == step:
                overtaken = True
                world.driver().run(BATCHES, split=3)

        world.files.after_step = overtake
        try:
            world.driver().run(BATCHES)
        except LakeTakenError:
            stopped += 1
        assert overtaken
        world.driver().run(BATCHES)  # clears what the stopped one left in the staging folder
        world.finished(BATCHES)
    assert stopped > step / 2


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 120), st.integers(1, 5), st.booleans()),
        max_size=12,
    )
)
def test_any_sequence_of_kills(lives: list[tuple[int, int, bool]]) -> None:
    """Drivers that live for so many steps, split their batches so, and compact eagerly or not."""
    world = World()
    batches = 6

    def life(split: int, eager: bool) -> None:
        driver = world.driver()
        driver.writer.claim(QUERY)
        for batch in range(world.checkpointed + 1, batches):
            driver.batch(batch, split)
            driver.compact(2 if eager else 6)

    for steps_to_live, split, eager in lives:
        world.files.lives = steps_to_live
        try:
            life(split, eager)
        except Killed:
            pass
    world.files.lives = -1
    life(1, False)
    world.finished(batches)


def test_removals_come_before_moves() -> None:
    entry = Compaction("s", (DataFile("p/new.parquet", 2, 20),), ("p/a.parquet", "p/b.parquet"))
    assert [type(step).__name__ for step in steps(entry)] == ["Remove", "Remove", "Move"]


def test_a_compaction_that_loses_a_row_is_not_committed() -> None:
    world = World()
    driver = world.driver()
    driver.run(1)
    group = list(driver.writer.contents.files.values())[:1]
    with pytest.raises(LakeError, match="would have become 0"):
        driver.writer.replace(group, lambda staging: ())
    world.check()


def test_the_log_stays_short() -> None:
    world = World()
    world.driver().run(30)
    world.finished(30)
    assert load(world.files).version > 30


def test_an_empty_batch_is_committed() -> None:
    files = MemoryFiles()
    writer = Writer(files, iter("abcdef").__next__, "lake")
    writer.claim(QUERY)
    assert writer.commit(QUERY, Position(0, "p"), lambda staging: ())
    assert not writer.commit(QUERY, Position(0, "p"), lambda staging: ())
    assert writer.commit(QUERY, Position(1, "p"), lambda staging: ())


def test_a_lake_of_another_checkpoint_is_refused_and_can_be_released() -> None:
    world = World()
    world.driver().run(2)
    for query in (None, "another"):
        with pytest.raises(LakeError, match="another checkpoint") as refused:
            world.driver().writer.claim(query)
        assert "--adopt-lake" in refused.value.advice
    world.driver().run(2)  # a refused driver has not taken it

    other = world.driver().writer
    other.release()
    other = world.driver().writer
    other.claim("another")
    assert other.commit("another", Position(7, "p"), lambda staging: ())
    with pytest.raises(LakeError, match="another checkpoint"):
        world.driver().writer.claim(QUERY)
    again = world.driver().writer
    again.claim("another")
    assert not again.commit("another", Position(7, "p"), lambda staging: ())


def test_a_folder_with_other_files_is_no_lake() -> None:
    """Or the log of a lake was deleted: a new one beside the old files would be wrong from its first entry on."""
    files = MemoryFiles()
    files.content["date=2026-01-01/a.parquet"] = ("row",)
    with pytest.raises(LakeError, match="has no _log/ and is not empty: it has date=2026-01-01"):
        Writer(files, iter("abc").__next__, "lake").claim(None)


def test_an_empty_lake_belongs_to_nobody() -> None:
    files = MemoryFiles()
    ids = iter("abcdef")
    first = Writer(files, ids.__next__, "lake")
    first.claim(None)
    first.commit("first", Position(0, "p"), lambda staging: ())
    second = Writer(files, ids.__next__, "lake")
    second.claim("second")
    assert second.commit("second", Position(0, "p"), lambda staging: ())


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (Position(1, "other"), "the checkpoint is older than the lake"),
        (Position(0, "plan 0"), "the checkpoint is older than the lake"),
        (Position(3, "plan 3"), "is older than the checkpoint"),
    ],
)
def test_a_batch_that_cannot_be_the_next_one(position: Position, message: str) -> None:
    """A checkpoint or a lake from a backup: to go on would repeat or leave out events."""
    world = World()
    world.driver().run(2)
    writer = world.driver().writer
    writer.claim(QUERY)
    with pytest.raises(LakeError, match=message):
        writer.commit(QUERY, position, lambda staging: ())
    world.finished(2)


def test_a_new_lake_for_an_old_checkpoint() -> None:
    writer = World().driver().writer
    writer.claim(QUERY)
    with pytest.raises(LakeError, match="none of its batches"):
        writer.commit(QUERY, Position(5, "p"), lambda staging: ())


@pytest.mark.parametrize("damage", ["", "{", '{"format": 1, "kind": "claim"}', '{"format": 1, "kind": "dance"}', "[]"])
def test_a_damaged_entry_is_named(damage: str) -> None:
    world = World()
    world.driver().run(1)
    path = sorted(path for path in world.files.content if path.startswith("_log"))[-1]
    world.files.content[path] = damage
    with pytest.raises(LakeError, match=path):
        load(world.files)


def test_a_hole_in_the_log_is_noticed() -> None:
    world = World()
    driver = world.driver()
    driver.writer.claim(QUERY)
    driver.batch(0)
    driver.batch(1)
    for missing in sorted(path for path in world.files.content if path.startswith("_log"))[:2]:
        text = world.files.content.pop(missing)
        with pytest.raises(LakeError, match="missing"):
            load(world.files)
        world.files.content[missing] = text
    assert load(world.files).version == 3


def test_a_newer_format_is_refused() -> None:
    world = World()
    world.driver().run(1)
    path = sorted(path for path in world.files.content if path.startswith("_log"))[-1]
    world.files.content[path] = '{"format": 2}'
    with pytest.raises(LakeError, match="format 2, this program knows 1"):
        load(world.files)


def test_a_lost_file_is_named() -> None:
    """Deleted by hand between the commit and the move."""
    world = World()
    world.files.after_step = lambda: None
    driver = world.driver()
    driver.writer.claim(QUERY)
    with pytest.raises(LakeError, match="neither there nor in _staging"):
        driver.writer.commit(QUERY, Position(0, "p"), lambda staging: (DataFile("p/gone.parquet", 1, 10),))
