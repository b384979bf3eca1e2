"""Followers that must soon fetch in a leader epoch that has just begun, although their last fetch may still wait here.

A follower asks for a new partition in its next Fetch. If its last Fetch is parked here, for up to
replica.fetch.wait.max.ms, a Produce with acks=all waits as long. So the parked fetch is answered at once when the
leader epoch begins. The follower may get the metadata of the epoch a little later than the leader, so its next fetches
are parked only for a short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

#: For this time after a leader epoch began, no fetch of its followers is parked for longer than SHORT_SECONDS.
AWAITED_SECONDS = 0.5
SHORT_SECONDS = 0.02


class EndsEarly(Protocol):
    """A fetch that is parked (parked.py)."""

    future: asyncio.Future[object]

    def end(self) -> None: ...


class AwaitedFollowers:
    """The followers that one leader waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: broker id -> the time until which its fetches are parked only for SHORT_SECONDS
        self._until: dict[int, float] = {}
        self._parked: dict[int, dict[EndsEarly, None]] = {}
        self._to_end: set[int] = set()

    def expect(self, followers: Iterable[int]) -> None:
        """Begin to await fetches of these followers, because a leader epoch begins."""
        until = self._loop.time() + AWAITED_SECONDS
        for follower in followers:
            self._until[follower] = until
            if self._parked.get(follower):
                if not self._to_end:
                    # Do not end them now, because the metadata is still being applied.
                    self._loop.call_soon(self._end)
                self._to_end.add(follower)

    def _end(self) -> None:
        followers, self._to_end = self._to_end, set()
        for follower in sorted(followers):
            for parked in list(self._parked.get(follower, ())):
                parked.end()

    def wait_seconds(self, follower: int, wanted: float) -> float:
        """Return how long a fetch of this follower may be parked."""
        until = self._until.get(follower)
        if until is None:
            return wanted
        if until <= self._loop.time():
            del self._until[follower]
            return wanted
        return min(wanted, SHORT_SECONDS)

    def park(self, follower: int, parked: EndsEarly) -> None:
        """Remember a parked fetch, which ends early if a leader epoch begins before it is answered."""
        self._parked.setdefault(follower, {})[parked] = None
        parked.future.add_done_callback(lambda _: self._answered(follower, parked))

    def _answered(self, follower: int, parked: EndsEarly) -> None:
        here = self._parked[follower]
        del here[parked]
        if not here:
            # Keep no empty entry, because a client may name any number as its replica id.
            del self._parked[follower]
