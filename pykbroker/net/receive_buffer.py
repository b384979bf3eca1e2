"""The bytes that one connection has received and not dispatched yet, and the times at which they came.

Pure: no socket and no clock. Responsible for the memory of an unfinished frame, which stays with its connection until
the frame is complete. Methods return the bytes of memory that they take or free, for the bound on the memory of all
connections (connection_home.py). Not responsible for cutting frames out (connection.py).

Invariant: memory grows with the bytes received, never with the length that a client declares.
"""

from __future__ import annotations

from struct import Struct

SIZE = Struct(">i")
#: After a large request a connection keeps its own receive buffer up to this size; an idle connection frees it.
KEEP_BUFFER_BYTES = 2 * 1024 * 1024


class ReceiveBuffer:
    """The receive buffer of one connection. It has no memory of its own while the connection is between two frames."""

    __slots__ = ("_read_goes_on", "filled", "frame_began", "frame_bytes", "turn_began", "view")

    def __init__(self, frame_bytes: int, now: float) -> None:
        #: the size of the largest frame
        self.frame_bytes = frame_bytes
        #: the connection's own memory; None while it receives into the memory that all connections share
        self.view: memoryview | None = None
        #: the bytes in `view`
        self.filled = 0
        #: when the first byte of the unfinished frame came
        self.frame_began = now
        #: when the loop's present turn for this connection began
        self.turn_began = now
        #: True if the memory was full, so that the transport reads again in the same turn if there is more
        self._read_goes_on = False

    @property
    def memory_bytes(self) -> int:
        return 0 if self.view is None else len(self.view)

    def add(self, count: int, shared: memoryview, now: float) -> tuple[memoryview, int]:
        """Count bytes that the transport has put into this memory, or into `shared` if there is none. Return the memory
        and the bytes in it."""
        if not self._read_goes_on:
            self.turn_began = now
        view = self.view
        if view is None:
            view = shared
            end = count
        else:
            if not self.filled:
                # The buffer is empty but not freed after the last frame; the time of the next frame begins here.
                self.frame_began = now
            self.filled = end = self.filled + count
        self._read_goes_on = end == len(view)
        return view, end

    def keep(self, view: memoryview, position: int, end: int, now: float) -> int:
        """Move the unfinished rest, view[position:end], to the front of the connection's own memory. Return the bytes
        of memory that this takes."""
        rest = end - position
        taken = 0
        if position or self.view is None:
            self.frame_began = now
        if self.view is None:
            taken = max(4096, 1 << (rest + 1).bit_length())
            self.view = memoryview(bytearray(taken))
            self.view[:rest] = view[position:end]
        elif position:
            self.view[:rest] = bytes(view[position:end])
        self.filled = rest
        return taken

    def grow(self) -> int:
        """Double the memory, so that the cost of copying stays linear in the bytes received. Return the bytes of memory
        that this takes."""
        old, filled = self.view, self.filled
        assert old is not None
        (size,) = SIZE.unpack_from(old, 0) if filled >= 4 else (0,)
        capacity = len(old) * 2
        if 0 < size <= self.frame_bytes:
            capacity = min(max(capacity, 8192), max(size + 4, len(old) + 1))
        self.view = memoryview(bytearray(capacity))
        self.view[:filled] = old[:filled]
        return capacity - len(old)

    def release(self) -> int:
        """Free the memory. Return its bytes."""
        freed = self.memory_bytes
        self.view = None
        self.filled = 0
        return freed

    def take_again(self, now: float) -> tuple[memoryview, int] | None:
        """Return the memory and the bytes in it after a pause, or None if there are none.

        The time of a frame begins again, because nothing could arrive during the pause.
        """
        self.frame_began = self.turn_began = now
        self._read_goes_on = False
        view, end = self.view, self.filled
        if view is None or not end:
            return None
        self.filled = 0
        return view, end

    def is_late(self, now: float, seconds: float) -> bool:
        """Return True if a frame is unfinished for longer than `seconds`."""
        return self.filled > 0 and now - self.frame_began > seconds
