"""Places that have failed for all tries of an order a short time ago. Pure: the caller passes the times.

A place is the partition of a dead letter topic in one leader epoch, the name of a topic that cannot be created, or the
partition of a source log that cannot be read yet. A place is down after an order has used up its tries there. The other
orders get one try each, so that thousands of them do not hold the start of a share partition for the tries of each.
The place is no longer down after a try that succeeds, or when no try has failed for `DOWN_SECONDS`.

A broker that hangs lets each try last as long as the timeout of its request. A share partition has few orders here at a
time, so thousands of them would still take many such tries, one after the other. Therefore a try that has failed at a
place that is down also decides the orders that come soon after it. Soon means half of the time that the try took. A
leader that has answered does not hang. It may have refused one partition at once, and waited for the followers of
another one in the same request. So a try with an answer of the leader decides no other orders.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

DOWN_SECONDS: Final = 60.0
#: A failed try decides other orders for this share of the time that it took. After a timeout of 30 s that is enough
#: for ten thousand orders. The other two thirds of the time have a try under way, which succeeds as soon as the broker
#: answers again.
DECIDED_SHARE: Final = 0.5
#: A place beyond these takes the room of the place whose last failure is the longest ago.
MOST_PLACES: Final = 1_000


class FailedTry(NamedTuple):
    """A try that has failed: where, the reason as a whole sentence, and its begin and end."""

    place: Hashable
    reason: str
    began: float
    ended: float
    #: A factor for the rests of its orders (`rest_factor`). They have the same one, so that they share their next try.
    factor: float = 1.0
    #: True if the leader has answered.
    is_answered: bool = False
    #: True if the partition has another leader, or another leader epoch, when the try ends.
    is_moved: bool = False

    @property
    def decides_until(self) -> float:
        """The end of the time in which no order gets a try."""
        return self.ended if self.is_answered else self.ended + DECIDED_SHARE * (self.ended - self.began)


class DownPlaces:
    """The places of one writer."""

    def __init__(self) -> None:
        #: the last failed try of each place, in the order of their ends
        self._failed: dict[Hashable, FailedTry] = {}

    def is_down(self, place: Hashable, since: float) -> bool:
        """Return True if the place was down at this time, or became so later."""
        failed = self._failed.get(place)
        return failed is not None and failed.ended + DOWN_SECONDS > since

    def decided(self, place: Hashable, now: float) -> FailedTry | None:
        """Return the try that decides the orders which come now, None if they get a try of their own."""
        failed = self._failed.get(place)
        return failed if failed is not None and failed.decides_until > now else None

    def failed(self, failed: FailedTry) -> None:
        """Note that an order got its last try at a place, and it has failed."""
        self.succeeded(failed.place)
        if len(self._failed) >= MOST_PLACES:
            del self._failed[next(iter(self._failed))]
        self._failed[failed.place] = failed

    def succeeded(self, place: Hashable) -> None:
        """Note that a try has succeeded here."""
        self._failed.pop(place, None)
