"""`pykbroker.flushed`: a note in the metadata log's folder of how far the log was made durable.

Kafka's files do not record where the metadata log ended, so a log that has lost its end looks like a shorter log. The
note records it. Apache Kafka ignores the file.

Responsible for the file, and for the mark in quorum-state that the note depends on. The note is two lines of the same
length that are written in turn, each an offset and its checksum; the higher valid offset counts. Lines are written
without an fsync: after the death of the process the note is exact, after a power loss it may be too low. Invariants:
the log is fsynced up to an offset before the note contains it; before the log is cut below the note, the note is
lowered durably.

Another program may use the directory between two runs of pykbroker. Apache Kafka may cut the log below the note,
because its leader has other records, and may append beyond the note, and leaves the note unchanged. Then the next start
would miss records that were never committed, or could cut acknowledged records off. So a note counts only while
quorum-state is as pykbroker has written it. The reasons why that is enough:

1. Apache Kafka writes quorum-state at each start, even if nothing in it changes, and makes it durable before its Raft
   client sends or appends anything (`QuorumState.initialize`, from 3.3 on). It reads one line of JSON and writes one
   line, without a blank at its end. pykbroker writes `MARK` there. So the mark is gone after each run of Apache Kafka,
   whatever the epoch.
2. If Apache Kafka cuts off damage when it opens the log, and ends before it has written quorum-state, the mark is still
   there, and the next start finds that records are missing.
3. A note that another program has outdated is removed durably before quorum-state gets the mark again. The next note is
   written when the log, as it was found, is fsynced.
4. Lines of releases that set no mark do not begin with `2 `. They count while quorum-state is not newer than the note,
   or has the mark, which the next release has set since. Such a release wrote quorum-state only before records, and the
   note after each fsync of records. Apache Kafka writes quorum-state and never the note. Such a release takes the lines
   with `2 ` for damage, and writes its own note.

An epoch in each line would not be enough. The leader of the current epoch can still make a voter that knows this epoch
cut its log. If Apache Kafka does so and stops, no file has a newer epoch. The same holds for records of the same epoch
that it appends beyond the note.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykbroker_log.disk import Disk, File, read_file, write_atomic
from pykbroker_raft import election_state
from pykbroker_wire.records.crc import crc32c

FILE = "pykbroker.flushed"
#: The end of a quorum-state that pykbroker has written. JSON allows it, and an editor adds only a line break.
MARK = b" \n"

#: The prefix of an offset that counts only together with the mark.
_NEEDS_MARK = b"2 "
_DIGITS = 20


def _line(offset: int, prefix: bytes = _NEEDS_MARK) -> bytes:
    text = b"%s%0*d" % (prefix, _DIGITS, offset)
    return b"%s %08x\n" % (text, crc32c(text))


_LINE_BYTES = len(_line(0))


@dataclass(frozen=True, slots=True)
class NotedFlush:
    """The content of the note."""

    offset: int = 0
    #: the file exists
    exists: bool = False
    #: the file exists and contains an offset that counts
    is_known: bool = False
    #: the offset counts only together with the mark
    needs_mark: bool = False
    #: the file exists and is readable, but another program has used the log since
    is_outdated: bool = False


def read_note(disk: Disk, folder: str) -> NotedFlush:
    """Return the note of an earlier run. Raises OSError."""
    path = f"{folder}/{FILE}"
    if not disk.exists(path):
        return NotedFlush()
    data = read_file(disk, path)
    offsets = _offsets(data, _NEEDS_MARK)
    needs_mark = bool(offsets)
    if not needs_mark:
        offsets = _offsets(data, b"")
    if not offsets:
        return NotedFlush(exists=True)
    if _lacks_mark(disk, folder) and (needs_mark or _is_older_than_state(disk, folder)):
        return NotedFlush(exists=True, needs_mark=needs_mark, is_outdated=True)
    return NotedFlush(max(offsets), exists=True, is_known=True, needs_mark=needs_mark)


def _offsets(data: bytes, prefix: bytes) -> list[int]:
    """Return the offsets of the valid lines with this prefix. Each line has its own place, even if the other is
    damaged."""
    size = len(_line(0, prefix))
    lines = (data[start : start + size] for start in range(0, len(data), size))
    digits = ((line, line[len(prefix) : len(prefix) + _DIGITS]) for line in lines)
    return [int(each) for line, each in digits if each.isdigit() and line == _line(int(each), prefix)]


def _lacks_mark(disk: Disk, folder: str) -> bool:
    """Return True if quorum-state exists without the mark. If the file is missing, Apache Kafka has not written it
    since."""
    path = f"{folder}/{election_state.FILE}"
    return disk.exists(path) and not read_file(disk, path).endswith(MARK)


def _is_older_than_state(disk: Disk, folder: str) -> bool:
    """Return True if the existing quorum-state was written after the note."""
    return disk.modified_ms(f"{folder}/{FILE}") < disk.modified_ms(f"{folder}/{election_state.FILE}")


def set_mark(disk: Disk, folder: str) -> None:
    """Add the mark to an existing quorum-state. Durable on return. Raises OSError."""
    if _lacks_mark(disk, folder):
        path = f"{folder}/{election_state.FILE}"
        write_atomic(disk, path, read_file(disk, path).rstrip() + MARK)


class FlushedNote:
    """The note of an open log. All methods raise OSError."""

    def __init__(self, disk: Disk, folder: str, found: NotedFlush) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE}"
        self._file: File | None = None
        self._turn = 0
        self._is_written = found.is_known and found.needs_mark
        self.offset = found.offset
        if found.exists and not found.is_known:
            # A note of 0 in its place would mean that no record was ever acknowledged.
            disk.unlink(self._path)
            disk.fsync_dir(folder)
        set_mark(disk, folder)

    def raise_to(self, offset: int) -> None:
        """Record that the log is durable up to `offset`."""
        if not self._is_written:
            self._rewrite(max(offset, self.offset))
        if offset <= self.offset:
            return
        if self._file is None:
            self._file = self._disk.open(self._path)
        turn = 1 - self._turn
        self._file.pwritev([_line(offset)], turn * _LINE_BYTES)
        # If the write is torn, the same line is written again next time, and the other one stays.
        self._turn = turn
        self.offset = offset

    def lower_to(self, offset: int) -> None:
        """Record that the log will end at `offset`. Durable on return."""
        if offset < self.offset:
            self._rewrite(offset)

    def _rewrite(self, offset: int) -> None:
        self.close()
        write_atomic(self._disk, self._path, _line(offset) * 2)
        self._is_written = True
        self.offset = offset

    def sync(self) -> None:
        if self._file is not None:
            self._file.fsync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
