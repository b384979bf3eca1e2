"""From the bytes of a connection to frames: a four-byte size, then that many bytes.

Memory grows with the received bytes, never with a declared size. For clients and tests: the broker's listener receives
into a buffer of its own and only shares the limit and the error.
"""

from __future__ import annotations

from typing import Final

from pykbroker_wire.primitives import Buffer, DecodeError

SIZE_BYTES: Final = 4
# `socket.request.max.bytes` of Apache Kafka.
DEFAULT_MAX_FRAME_BYTES: Final = 104_857_600


def check_size(size: int, max_bytes: int) -> None:
    if not 0 <= size <= max_bytes:
        raise DecodeError(f"a frame of {size} bytes, at most {max_bytes} are accepted")


class FrameSplitter:
    """Splits received bytes into frames. Feed pieces of any length; each returned frame is complete and without its
    size."""

    __slots__ = ("_max_bytes", "_pieces", "_received")

    def __init__(self, max_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._received = 0

    def feed(self, data: Buffer) -> list[memoryview]:
        """Return the frames that `data` completes. Raises DecodeError for a size beyond the limit; feed nothing after
        that."""
        self._pieces.append(bytes(data))
        self._received += len(self._pieces[-1])
        if self._received < SIZE_BYTES or self._received < SIZE_BYTES + self._size():
            return []
        view = memoryview(b"".join(self._pieces))
        frames: list[memoryview] = []
        start = 0
        while len(view) - start >= SIZE_BYTES:
            size = int.from_bytes(view[start : start + SIZE_BYTES], "big", signed=True)
            check_size(size, self._max_bytes)
            end = start + SIZE_BYTES + size
            if end > len(view):
                break
            frames.append(view[start + SIZE_BYTES : end])
            start = end
        rest = bytes(view[start:])
        self._pieces = [rest] if rest else []
        self._received = len(rest)
        return frames

    def _size(self) -> int:
        if len(self._pieces[0]) < SIZE_BYTES:
            self._pieces = [b"".join(self._pieces)]
        size = int.from_bytes(self._pieces[0][:SIZE_BYTES], "big", signed=True)
        check_size(size, self._max_bytes)
        return size

    @property
    def pending_bytes(self) -> int:
        """The number of received bytes that are not yet part of a complete frame."""
        return self._received
