"""Cuts received bytes into the frames of responses; each byte is copied at most once.

Responsible for the receive memory of one connection that this node makes: `space` is the memory where the transport
writes next, and `received` returns the complete frames. Not responsible for the content of a frame.

Invariants
* Memory grows with the bytes received, never with the size that a frame declares.
* A frame is a view of its own memory: it stays valid, and holds no other frame in memory.
"""

from __future__ import annotations

from struct import Struct

from pykbroker_wire.primitives import DecodeError

_SIZE = Struct(">i")
#: Most responses fit into a buffer of this size, and an idle connection has no more memory.
FIRST_BYTES = 16 * 1024
#: The pieces of a large frame grow up to this.
PIECE_BYTES = 1024 * 1024


class Frames:
    """Responses that fit into `FIRST_BYTES` are cut out of one buffer. A larger one is received into pieces, which are
    joined when the last piece is full. That is the only copy."""

    __slots__ = ("_begin", "_filled", "_held", "_most_bytes", "_pieces", "_size", "_space")

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._space = memoryview(bytearray(FIRST_BYTES))
        #: positions in `_space`: the end of the received bytes, and the begin of the unfinished frame
        self._filled = 0
        self._begin = 0
        #: full pieces of a frame of `_size` bytes (with its four bytes of size), and the bytes that they hold
        self._pieces: list[memoryview] = []
        self._held = 0
        self._size = 0

    def space(self) -> memoryview:
        """Return the memory for the next received bytes. It is never empty."""
        return self._space[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that `count` more bytes complete, without their size. Raises DecodeError for an impossible
        size; do not call it after that."""
        self._filled += count
        if self._pieces:
            return self._continue()
        frames: list[memoryview] = []
        begin, filled = self._begin, self._filled
        size = 0
        while filled - begin >= 4:
            (length,) = _SIZE.unpack_from(self._space, begin)
            # A response has at least its correlation id.
            if not 4 <= length <= self._most_bytes:
                raise DecodeError(f"an answer of {length} bytes, allowed are 4 to {self._most_bytes}")
            size = length + 4
            if filled - begin < size:
                break
            frames.append(memoryview(bytes(self._space[begin + 4 : begin + size])))
            begin += size
            size = 0
        if begin == filled:
            self._begin = self._filled = 0
        elif filled == len(self._space):
            self._begin = 0
            if size:
                self._take_piece(begin, size)
            else:
                # The rest is up to three bytes of the next frame's size.
                rest = bytes(self._space[begin:])
                self._space[: len(rest)] = rest
                self._filled = len(rest)
        else:
            self._begin = begin
        return frames

    def _take_piece(self, begin: int, size: int) -> None:
        """Make the buffer the first piece of the unfinished frame, which continues in another one."""
        self._pieces = [self._space[begin:]]
        self._held = len(self._pieces[0])
        self._size = size
        self._next_piece()

    def _next_piece(self) -> None:
        missing = self._size - self._held
        self._space = memoryview(bytearray(min(missing, max(FIRST_BYTES, min(self._held, PIECE_BYTES)))))
        self._filled = 0

    def _continue(self) -> list[memoryview]:
        if self._filled < len(self._space):
            return []
        self._pieces.append(self._space)
        self._held += len(self._space)
        if self._held < self._size:
            self._next_piece()
            return []
        frame = memoryview(b"".join(self._pieces))[4:]
        self._pieces = []
        self._space = memoryview(bytearray(FIRST_BYTES))
        self._filled = 0
        return [frame]
