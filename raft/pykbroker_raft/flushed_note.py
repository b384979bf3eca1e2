"""`pykbroker.flushed`: a note beside the metadata log of how far the log was made durable.

Kafka's files do not say where the metadata log ended, so a log that has lost its end looks like a shorter log. The note
says it. Apache Kafka ignores the file.

Responsible for the file. It is two lines of the same length that are written in turn, each an offset and its checksum;
the higher valid one counts. No fsync is spent on a line: after the death of the process the note is exact, after a loss
of power it may be too low. Invariants: the log was fsynced up to an offset before the note has it; before the log is
cut below the note, the note is lowered durably.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykbroker_log.disk import Disk, File, read_file, write_atomic
from pykbroker_wire.records.crc import crc32c

FILE = "pykbroker.flushed"


def _line(offset: int) -> bytes:
    digits = b"%020d" % offset
    return b"%s %08x\n" % (digits, crc32c(digits))


_LINE_BYTES = len(_line(0))


@dataclass(frozen=True, slots=True)
class Flushed:
    """What the note says."""

    offset: int = 0
    #: the file is there
    exists: bool = False
    #: the file is there, and says it
    is_known: bool = False


def read_note(disk: Disk, folder: str) -> Flushed:
    """What an earlier run has noted. Raises OSError."""
    path = f"{folder}/{FILE}"
    if not disk.exists(path):
        return Flushed()
    data = read_file(disk, path)
    lines = [data[start : start + _LINE_BYTES] for start in range(0, len(data), _LINE_BYTES)]
    offsets = [int(line[:20]) for line in lines if line[:20].isdigit() and line == _line(int(line[:20]))]
    return Flushed(max(offsets, default=0), exists=True, is_known=bool(offsets))


class FlushedNote:
    """The note of a log that is open. All methods raise OSError."""

    def __init__(self, disk: Disk, folder: str, found: Flushed) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE}"
        self._file: File | None = None
        self._turn = 0
        self.offset = found.offset
        if not found.is_known:
            self._rewrite(found.offset)

    def raise_to(self, offset: int) -> None:
        """The log is durable up to `offset`."""
        if offset <= self.offset:
            return
        if self._file is None:
            self._file = self._disk.open(self._path)
        turn = 1 - self._turn
        self._file.pwritev([_line(offset)], turn * _LINE_BYTES)
        # A line that was torn is written again: the other one stays.
        self._turn = turn
        self.offset = offset

    def lower_to(self, offset: int) -> None:
        """The log will end at `offset`. Durable when it returns."""
        if offset < self.offset:
            self._rewrite(offset)

    def _rewrite(self, offset: int) -> None:
        self.close()
        write_atomic(self._disk, self._path, _line(offset) * 2)
        self.offset = offset

    def sync(self) -> None:
        if self._file is not None:
            self._file.fsync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
