"""Flow control of one connection: the reasons to stop reading and dispatching, and the pauses of its transport.

Responsible for pausing and resuming the transport in pairs. The reasons are muting, a transport that is full, and bytes
that have to wait because too many requests are unanswered. Not responsible for finding them (connection.py).

Invariant: while there is a reason to stop, the transport reads nothing.
"""

from __future__ import annotations

from typing import Protocol


class ReadingTransport(Protocol):
    """The part of a transport that reads."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FlowControl:
    """The flow control of one connection. It pauses nothing before `begin` and nothing after `end`."""

    __slots__ = (
        "_transport",
        "is_reading_paused",
        "is_stalled",
        "is_writing_paused",
        "mutes",
        "peer_sends_more",
    )

    def __init__(self) -> None:
        self._transport: ReadingTransport | None = None
        self.peer_sends_more = True
        self.is_reading_paused = False
        #: True while too many bytes wait for the client to read them
        self.is_writing_paused = False
        #: the calls of `mute` that `unmute` has not undone yet
        self.mutes = 0
        #: True if bytes that were received wait in the buffer because of a reason to stop
        self.is_stalled = False

    def begin(self, transport: ReadingTransport) -> None:
        self._transport = transport

    def end(self) -> None:
        """Leave the transport alone, because the connection has ended."""
        self._transport = None

    @property
    def may_go_on(self) -> bool:
        """True if reading is paused, and neither muting nor the transport is a reason for it now."""
        return self.is_reading_paused and not self.is_writing_paused and not self.mutes and self._transport is not None

    def stall(self) -> None:
        """Stop reading, because bytes that were received have to wait."""
        self.is_stalled = True
        self.pause()

    def writing_is_full(self) -> None:
        """Stop reading until the client has read more of its responses."""
        self.is_writing_paused = True
        self.pause()

    def mute(self) -> None:
        """Stop reading until `unmute` was called as often as `mute`."""
        self.mutes += 1
        self.pause()

    def unmute(self) -> bool:
        """Undo one `mute`. Return True if it was the last one."""
        self.mutes -= 1
        return not self.mutes

    def pause(self) -> None:
        if not self.is_reading_paused and self._transport is not None:
            self.is_reading_paused = True
            if self.peer_sends_more:
                self._transport.pause_reading()

    def resume(self) -> bool:
        """Read again, unless received bytes still wait. Return True if reading is no longer paused by this call."""
        if self.is_stalled or not self.is_reading_paused or self._transport is None:
            return False
        self.is_reading_paused = False
        if self.peer_sends_more:
            self._transport.resume_reading()
        return True
