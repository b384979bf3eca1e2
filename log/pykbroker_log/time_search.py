"""Looking for a timestamp among the records of a batch, which a turn of an event loop does up to a budget.

Responsible for what is looked at in a turn, and for what is too much for one: a batch of 700 bytes can hold a million
records. Not responsible for finding the batch (segments.py), nor for where else the work is done.
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
#: What is looked for in which batch: its base offset and CRC, then the timestamp and the first offset delta.
SearchKey = tuple[int, int, int, int]
#: Bytes that are not compressed count for less.
_PLAIN_FOR_ONE = MOST_PLAIN_AT_ONCE // AT_ONCE_BYTES


class BatchSearch(NamedTuple):
    """The first record of `payload` that is at least as new as `target`, from an offset delta on. Pickles."""

    codec: int
    payload: bytes
    record_count: int
    base_timestamp: int
    target: int
    first_delta: int

    def run(self) -> FoundRecord | None:
        """However long it takes: for a thread or another process. The steps let other threads run, and the content
        is not joined at once, because that would keep the lock of the interpreter."""
        data: bytes | bytearray = self.payload
        if self.codec:
            data = bytearray()
            for chunk in stream(self.codec, self.payload, DEFAULT_LIMIT):
                data += chunk
        return self._in(data)

    def _in(self, data: bytes | bytearray) -> FoundRecord | None:
        return find_timestamp(data, self.record_count, self.base_timestamp, self.target, self.first_delta)

    def run_at_once(self, left: int) -> tuple[FoundRecord | None, int]:
        """Return what is found, and how many bytes of the turn it takes. Raises TooLarge beyond `left`."""
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
    """As much was looked at as one turn of the event loop may: go on in the next one."""


class TooMuchToSearch(Exception):  # no error of the log
    """This batch takes longer than a whole turn: run `read()` elsewhere, put what it finds into `TimeSearch.found`, and
    look again."""

    def __init__(self, key: SearchKey, read: Callable[[], BatchSearch]) -> None:
        super().__init__(key)
        self.key = key
        self.read = read


class TimeSearch:
    """One look-up by time on an event loop, in as many turns as it takes."""

    __slots__ = ("_left", "found")

    def __init__(self) -> None:
        #: what was found elsewhere
        self.found: dict[SearchKey, FoundRecord | None] = {}
        self._left = AT_ONCE_BYTES

    def begin_turn(self) -> None:
        self._left = AT_ONCE_BYTES

    def look(self, key: SearchKey, read: Callable[[], BatchSearch]) -> FoundRecord | None:
        """Raises TurnIsOver, TooMuchToSearch, and what `read` raises."""
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
