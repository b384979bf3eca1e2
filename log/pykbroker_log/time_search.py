"""The search for a timestamp among the records of a batch; on an event loop each turn has a budget.

Responsible for how much a turn examines, and for detecting a batch that is too large for one turn: a batch of 700 bytes
can hold a million records. Not responsible for finding the batch (segments.py), nor for where the search in such a
batch runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pykbroker_log.validate import AT_ONCE_BYTES, MOST_COMPRESSED_AT_ONCE, MOST_PLAIN_AT_ONCE
from pykbroker_wire.records.compression import DEFAULT_LIMIT, TooLarge, decompress, stream
from pykbroker_wire.records.walk import find_timestamp

#: Offset, timestamp and leader epoch of a record.
TimedRecord = tuple[int, int, int]
#: Offset delta and timestamp of a record.
FoundRecord = tuple[int, int]
#: The batch and the target of a search: base offset and CRC, then timestamp and first offset delta.
SearchKey = tuple[int, int, int, int]
#: This many uncompressed bytes take as much of a turn's budget as one decompressed byte.
_PLAIN_FOR_ONE = MOST_PLAIN_AT_ONCE // AT_ONCE_BYTES


class BatchSearch(NamedTuple):
    """A search for the first record of `payload` that is at least as new as `target`, from an offset delta on.
    Pickles."""

    codec: int
    payload: bytes
    record_count: int
    base_timestamp: int
    target: int
    first_delta: int

    def run(self) -> FoundRecord | None:
        """Search, however long it takes; call it on a thread or in another process. The content is decompressed and
        joined in steps, because one long step would hold the lock of the interpreter, and other threads could not
        run."""
        data: bytes | bytearray = self.payload
        if self.codec:
            data = bytearray()
            for chunk in stream(self.codec, self.payload, DEFAULT_LIMIT):
                data += chunk
        return self._in(data)

    def _in(self, data: bytes | bytearray) -> FoundRecord | None:
        return find_timestamp(data, self.record_count, self.base_timestamp, self.target, self.first_delta)

    def run_at_once(self, left: int) -> tuple[FoundRecord | None, int]:
        """Return the record found, and how many bytes of the turn's budget it took. Raises TooLarge beyond `left`."""
        if not self.codec:
            count = len(self.payload) // _PLAIN_FOR_ONE
            if count > left:
                raise TooLarge(f"{len(self.payload)} bytes")
            return self._in(self.payload), count
        if len(self.payload) > MOST_COMPRESSED_AT_ONCE:
            raise TooLarge(f"{len(self.payload)} bytes, compressed")
        data = decompress(self.codec, self.payload, left)
        return self._in(data), len(data)


class TurnIsOver(Exception):  # no error of the log
    """The budget of this turn of the event loop is used up: continue in the next one."""


class TooMuchToSearch(Exception):  # no error of the log
    """This batch takes longer than a whole turn. Run `read()` elsewhere, put the result into `TimeSearch.found`, and
    call `look` again."""

    def __init__(self, key: SearchKey, read: Callable[[], BatchSearch]) -> None:
        super().__init__(key)
        self.key = key
        self.read = read


class TimeSearch:
    """One lookup by time on an event loop, in as many turns as it needs."""

    __slots__ = ("_left", "found")

    def __init__(self) -> None:
        #: results of searches that ran elsewhere
        self.found: dict[SearchKey, FoundRecord | None] = {}
        self._left = AT_ONCE_BYTES

    def begin_turn(self) -> None:
        self._left = AT_ONCE_BYTES

    def look(self, key: SearchKey, read: Callable[[], BatchSearch]) -> FoundRecord | None:
        """Return the record found, or None. Raises TurnIsOver, TooMuchToSearch, and the errors of `read`."""
        if key in self.found:
            return self.found[key]
        if self._left <= 0:
            raise TurnIsOver
        try:
            found, count = read().run_at_once(self._left)
        except TooLarge:
            if self._left < AT_ONCE_BYTES:
                raise TurnIsOver from None
            raise TooMuchToSearch(key, read) from None
        self._left -= count
        return found
