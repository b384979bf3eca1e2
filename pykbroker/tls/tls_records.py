"""The received bytes of a TLS stream, cut into records. OpenSSL gets one record at a time.

OpenSSL reads on until a record has data, so one call would process all records without data that OpenSSL has got. Each
update of keys is such a record: it has 27 bytes, and costs a quarter of a millisecond. Responsible for the bytes that
wait, and for the number of records without data that a peer may send. Not responsible for the content of a record.

Invariant: the pieces together are all bytes that were added, in their order.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

HEADER_BYTES: Final = 5
_LENGTH: Final = Struct(">H")
#: A peer may send this many records without data, and one more for each record with data, in either direction. Session
#: tickets follow a handshake. When a record reaches the limit of a key, Java sends an update of keys. It sends another
#: update for each further record that it reads before the response to the first update. In that time at most MOST_SAVED
#: records are in flight.
FIRST_WITHOUT_DATA: Final = 16
MOST_SAVED: Final = 4096
_RECORD_DATA_BYTES: Final = 16 * 1024
_NOTHING: Final = memoryview(b"")


class TlsRecords:
    """The records of one connection."""

    __slots__ = ("_allowed", "_held", "_missing", "_position", "is_whole")

    def __init__(self) -> None:
        self._held = _NOTHING
        self._position = 0
        #: the missing bytes of a record whose first bytes were returned
        self._missing = 0
        #: True if the last piece was the end of a record
        self.is_whole = False
        self._allowed = FIRST_WITHOUT_DATA

    def add(self, received: memoryview) -> None:
        """Append received bytes. They must not change before `keep`."""
        rest = self._held[self._position :]
        self._held = memoryview(b"".join((rest, received))) if len(rest) else received
        self._position = 0

    def keep(self) -> None:
        """Copy the waiting bytes, because another connection may receive into the same memory next."""
        rest = self._held[self._position :]
        self._held = memoryview(bytes(rest)) if len(rest) else _NOTHING
        self._position = 0

    def next_piece(self) -> memoryview | None:
        """Return the bytes of one record, or the part of it that has come. Return None if there are no bytes, or only a
        part of a header."""
        held, begin = self._held, self._position
        left = len(held) - begin
        size = self._missing
        if not size:
            if left < HEADER_BYTES:
                return None
            size = HEADER_BYTES + _LENGTH.unpack_from(held, begin + 3)[0]
        elif not left:
            return None
        self.is_whole = size <= left
        if self.is_whole:
            self._missing = 0
            self._position = end = begin + size
            return held[begin:end]
        self._missing = size - left
        self._position = len(held)
        return held[begin:]

    def had_data(self, count: int) -> None:
        """Count the records that `count` bytes of received or sent data take."""
        if self._allowed < MOST_SAVED:
            self._allowed += -(-count // _RECORD_DATA_BYTES)

    def had_none(self) -> bool:
        """Count a record without data. Return True if the peer may send more."""
        self._allowed -= 1
        return self._allowed >= 0
