"""The commit protocol: one writer at a time, and readers who need no lock.

**A commit** is the creation of the next entry of the log, which succeeds for exactly one driver (`Files.publish`). What
comes before it (staged files) nobody looks at; what comes after it (moves, removals) is finished by whoever comes next:
an entry is written only when the one before it has been carried out, so only the last one can be unfinished.

**The fence.** A driver that starts writes a `Claim` as the next entry. The driver before it, should it still live,
then finds the version that it wanted to write taken, or later ones beside it, and stops: `LakeTakenError`. Only after
its claim does a driver delete what lies in the staging folder, so it never deletes what could still be committed.
Nothing here looks at a clock.

**A repeated batch** is one whose number and plan the log knows: it is not written again, however differently it would
be split into files. A number that is neither the last nor the next one is refused: then the checkpoint or the lake
was exchanged or restored from a backup, and to go on would lose rows or write them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.lake.manifest import (
    LOG,
    STAGING,
    Batch,
    Claim,
    Compaction,
    Contents,
    DataFile,
    Entry,
    LakeError,
    LakeTakenError,
    Move,
    Position,
    Remove,
    decode,
    encode,
    log_path,
    staged,
    steps,
    version_of,
)

# After so many entries the log is folded into a claim and begins anew: what a reader has to read stays bounded.
FOLD_EVERY = 100
# Someone else's commit or fold can overtake a reader or a claim; so often in a row only if something is wrong.
ATTEMPTS = 20

ADOPTING = (
    "--adopt-lake goes on from here all the same: do that only if you know which events that repeats or leaves out"
)

# Writes data files into the staging folder of this name and says which: an attempt has a folder that nobody else has.
Write = Callable[[str], tuple[DataFile, ...]]


class Files(Protocol):
    """What the protocol needs of a file system. Paths are relative to the lake's root."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder ("" is the root); none if it does not exist."""

    def read(self, path: str) -> str:
        """A whole file. Raises FileNotFoundError."""

    def publish(self, path: str, text: str) -> bool:
        """Create a file with this text, whole or not at all; False, and nothing has changed, if it exists."""

    def exists(self, path: str) -> bool: ...

    def move(self, source: str, target: str) -> None:
        """Atomically, into a folder that is made if need be. Raises FileNotFoundError without a source."""

    def delete(self, path: str) -> None:
        """A file or a folder with all that is in it; nothing if it does not exist."""


@dataclass(slots=True)
class Loaded:
    version: int  # 0: there is no lake yet
    contents: Contents
    last: Entry | None


def _versions(files: Files) -> list[int]:
    return [version for name in files.names(LOG) if (version := version_of(name)) is not None]


def load(files: Files) -> Loaded:
    """The log as it is now: everything that was committed, and the last entry, which may not be carried out yet.

    Raises LakeError for a log with a hole or a damaged entry."""
    for _ in range(ATTEMPTS):
        versions = _versions(files)
        if not versions:
            return Loaded(0, Contents(), None)
        entries: list[Entry] = []
        try:
            for version in range(max(versions), 0, -1):
                entries.append(decode(files.read(log_path(version)), log_path(version)))
                if isinstance(entries[-1], Claim):
                    break
        except FileNotFoundError:
            continue  # folded while it was read: the claim that replaces it is listed now
        if not isinstance(entries[-1], Claim):
            break
        contents = Contents()
        for entry in reversed(entries):
            contents.apply(entry)
        return Loaded(max(versions), contents, entries[0])
    raise LakeError(
        "an entry in the middle of the lake's log is missing",
        f"Restore {LOG}/ from a backup: without it nobody can say which files belong to the lake",
    )


def locate(files: Files, loaded: Loaded) -> list[str]:
    """Where each file of the lake is now: in its place, or staged if the last entry is not carried out yet."""
    moves = [step for step in steps(loaded.last) if isinstance(step, Move)] if loaded.last else []
    waiting = {step.target: step.source for step in moves if files.exists(step.source)}
    return [waiting.get(path, path) for path in loaded.contents.files]


class Writer:
    """The one driver that writes. `claim` first; after an exception it is of no more use."""

    def __init__(self, files: Files, new_id: Callable[[], str], place: str) -> None:
        """`place` names the lake in messages; `new_id` gives an id that nobody had before."""
        self._files = files
        self._new_id = new_id
        self._place = place
        self._writer = new_id()
        self._version = 0
        self._folded_at = 0
        self.contents = Contents()

    def claim(self, query: str | None) -> None:
        """Take the lake over for a query (None: it has not begun yet), finish what was committed, clear what was not.

        Raises LakeError if another query's events are in it."""
        self._take(lambda contents: self._refuse_stranger(query, contents))

    def release(self) -> None:
        """Take the lake from the query that has written it: whichever comes next goes on, from wherever it is."""
        self._take(lambda contents: None)
        self.contents.owner = None
        if not self._fold():
            raise self._taken()

    def _take(self, check: Callable[[Contents], None]) -> None:
        for _ in range(ATTEMPTS):
            loaded = load(self._files)
            if not loaded.version:
                self._refuse_strange_folder()
            check(loaded.contents)
            self._version, self.contents = loaded.version, loaded.contents
            try:
                self._carry_out(loaded.last)
            except LakeTakenError:
                continue  # the driver before this one still lives, and went on meanwhile
            if self._fold():
                self._files.delete(STAGING)
                return
        raise LakeTakenError(f"other drivers keep writing to the lake {self._place}", "Stop all but one of them")

    def commit(self, query: str, position: Position, write: Write) -> bool:
        """Commit a batch, which `write` stages; False, and nothing is written, if the log has it already.

        Raises LakeError for a batch that cannot be the next one, LakeTakenError if another driver has claimed the
        lake."""
        if self.is_committed(query, position):
            return False
        staging = f"{query}-{position.batch}-{self._new_id()}"
        self._append(Batch(query, position, staging, self._write(write, staging)))
        return True

    def replace(self, files: Sequence[DataFile], write: Write) -> None:
        """Put what `write` stages in the place of files whose rows it has. Raises LakeTakenError like `commit`."""
        staging = f"compaction-{self._new_id()}"
        adds = self._write(write, staging)
        before, after = sum(file.rows for file in files), sum(file.rows for file in adds)
        if before != after:
            raise LakeError(
                f"{before} rows of {files[0].partition} would have become {after}", "Nothing has changed yet"
            )
        self._append(Compaction(staging, adds, tuple(file.path for file in files)))

    def is_committed(self, query: str, position: Position) -> bool:
        """Whether the log has this batch already. Raises LakeError for a batch that is not the next one either."""
        known = self.contents.positions.get(query)
        if position == known:
            return True
        if self.contents.owner is None and self.contents.files:
            return False  # released
        self._refuse_stranger(query, self.contents)
        if known is None:
            if position.batch == 0:
                return False
            raise LakeError(
                f"the checkpoint is at batch {position.batch}, and the lake {self._place} has none of its batches",
                f"Give the lake that this checkpoint has written, or begin with a new checkpoint. {ADOPTING}",
            )
        if position.batch == known.batch + 1:
            return False
        if position.batch <= known.batch:
            raise LakeError(
                f"the checkpoint is older than the lake {self._place}: it plans batch {position.batch} anew, and the "
                f"lake has batches up to {known.batch}",
                f"Was the checkpoint restored from a backup? Restore the lake of the same time as well. {ADOPTING}",
            )
        raise LakeError(
            f"the lake {self._place} is older than the checkpoint: batch {known.batch + 1} should come next, not "
            f"{position.batch}",
            f"Was the lake restored from a backup? Restore the checkpoint of the same time as well. {ADOPTING}",
        )

    def _write(self, write: Write, staging: str) -> tuple[DataFile, ...]:
        try:
            return write(staging)
        except Exception as error:
            if self._is_taken():  # and its files were cleared away while Spark read or wrote them
                raise self._taken() from error
            raise

    def _append(self, entry: Batch | Compaction) -> None:
        if not self._publish(entry):
            raise self._taken()
        self.contents.apply(entry)
        self._carry_out(entry)
        self._files.delete(staged(entry.staging))
        if self._version - self._folded_at >= FOLD_EVERY and not self._fold():
            raise self._taken()

    def _publish(self, entry: Entry) -> bool:
        path, text = log_path(self._version + 1), encode(entry, self._writer)
        # A file system may report failure for a creation that it has retried with success: then the text is ours.
        if not self._files.publish(path, text) and self._text_of(path) != text:
            return False
        self._version += 1
        # The version may have been free only because whoever claimed the lake has folded its log since.
        return not self._is_taken()

    def _is_taken(self) -> bool:
        return max(_versions(self._files)) > self._version

    def _text_of(self, path: str) -> str | None:
        try:
            return self._files.read(path)
        except FileNotFoundError:
            return None

    def _fold(self) -> bool:
        """Say everything in one claim and drop the entries before it; False if another driver was faster."""
        if not self._publish(self.contents.claim()):
            return False
        self._folded_at = self._version
        for version in sorted(_versions(self._files)):
            if version < self._version:
                self._files.delete(log_path(version))
        return True

    def _carry_out(self, entry: Entry | None) -> None:
        for step in steps(entry) if entry else ():
            match step:
                case Remove(path):
                    self._files.delete(path)
                case Move(source, target):
                    try:
                        self._files.move(source, target)
                    except FileNotFoundError:
                        if not self._files.exists(target):
                            raise self._lost(target) from None

    def _lost(self, path: str) -> LakeError:
        if self._is_taken():
            return self._taken()
        return LakeError(
            f"the lake {self._place} has committed {path}, and the file is neither there nor in {STAGING}/",
            "Restore it from a backup; files of a lake must not be moved or deleted by hand",
        )

    def _taken(self) -> LakeTakenError:
        return LakeTakenError(
            f"another driver has claimed the lake {self._place}, so this one stops; nothing is lost",
            "Run one driver for each lake",
        )

    def _refuse_strange_folder(self) -> None:
        if strange := sorted(name for name in self._files.names("") if not name.startswith(("_", "."))):
            raise LakeError(
                f"{self._place} has no {LOG}/ and is not empty: it has {', '.join(strange[:3])}",
                "Name a new folder, or restore the lake's log: without it nobody can say what belongs to the lake",
            )

    def _refuse_stranger(self, query: str | None, contents: Contents) -> None:
        if contents.files and contents.owner not in (None, query):
            raise LakeError(
                f"the lake {self._place} holds the events of another checkpoint (query {contents.owner}); this one "
                f"would read the topics from its own beginning and write them a second time",
                f"Give the checkpoint that belongs to the lake, or another path for the lake. {ADOPTING}",
            )
