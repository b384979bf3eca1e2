"""Places that have failed for all tries of an order a short time ago. Pure: the caller passes the time.

A place is the partition of a dead letter topic in one leader epoch, the name of a topic that cannot be created, or the
partition of a source log that cannot be read yet. A place is down after an order has used up its tries there. The other
orders get one try each, so that thousands of them do not hold the start of a share partition for the tries of each.
The place is no longer down after a try that succeeds, or when no try has failed for `DOWN_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

DOWN_SECONDS: Final = 60.0
#: A place beyond these takes the room of the place whose last failure is the longest ago.
MOST_PLACES: Final = 1_000


class DownPlaces:
    """The places of one writer."""

    def __init__(self) -> None:
        #: the end of each place, in the order of the ends
        self._ends: dict[Hashable, float] = {}

    def is_down(self, place: Hashable, now: float) -> bool:
        return self._ends.get(place, now) > now

    def failed(self, place: Hashable, now: float) -> None:
        """Note that an order got its last try here, and it has failed."""
        self.succeeded(place)
        while self._ends and (len(self._ends) >= MOST_PLACES or next(iter(self._ends.values())) <= now):
            del self._ends[next(iter(self._ends))]
        self._ends[place] = now + DOWN_SECONDS

    def succeeded(self, place: Hashable) -> None:
        """Note that a try has succeeded here."""
        self._ends.pop(place, None)
