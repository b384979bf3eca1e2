"""Decides if a TLS layer reads from the transport below it, and how long it decrypts in one turn of the loop.

Responsible for the last call to the transport, so that `pause_reading` and `resume_reading` alternate. Not responsible
for the bytes.

Invariant: nothing is read while the connection above wants no bytes, while a thread uses the TLS object, or while
received bytes wait for the next turn.
"""

from __future__ import annotations

import asyncio
from typing import Final

TURN_SECONDS: Final = 0.005


class PacedReading:
    """Set the three reasons, then call `update`."""

    __slots__ = (
        "_below",
        "_goes_on",
        "_is_reading",
        "_loop",
        "_turn_ends",
        "is_put_off",
        "is_stepping",
        "is_wanted",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._below: asyncio.Transport | None = None
        self.is_wanted = True
        #: True while a thread uses the TLS object, or is about to
        self.is_stepping = False
        #: True while bytes that were received wait for the next turn of the loop
        self.is_put_off = False
        #: the last call to the transport below
        self._is_reading = True
        #: The end of the loop's present turn for this connection. A read that filled the buffer is followed by another
        #: in the same turn if there is more.
        self._turn_ends = 0.0
        self._goes_on = False

    def attach(self, below: asyncio.Transport) -> None:
        self._below = below

    def detach(self) -> None:
        """Leave the transport alone, because it is lost."""
        self._below = None

    def update(self) -> None:
        reading = self.is_wanted and not self.is_stepping and not self.is_put_off
        below = self._below
        if reading == self._is_reading or below is None or below.is_closing():
            return
        self._is_reading = reading
        if reading:
            below.resume_reading()
        else:
            below.pause_reading()

    def received(self, *, filled: bool) -> None:
        """Note a read. `filled`: it filled the buffer, so another read follows in the same turn if there is more."""
        if not self._goes_on:
            self._turn_ends = self._loop.time() + TURN_SECONDS
        self._goes_on = filled

    def begin_turn(self) -> None:
        """Begin a turn that was not caused by a read."""
        self._goes_on = False
        self._turn_ends = self._loop.time() + TURN_SECONDS

    def is_turn_over(self) -> bool:
        return self._loop.time() > self._turn_ends
