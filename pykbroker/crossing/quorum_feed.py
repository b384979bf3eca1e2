"""The state of the quorum on its way to the broker half, which may stand still.

Responsible for which states are handed over, and when. Not responsible for applying them (broker_end.py). Pure.

Invariants:
* At most one message waits to be taken.
* When the receiver has taken every message, it has the newest state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykbroker.crossing.loop_messages import QuorumChanged

if TYPE_CHECKING:
    from pykbroker.quorum.known_quorum import KnownQuorum


class QuorumFeed:
    def __init__(self, put: Callable[[QuorumChanged], None]) -> None:
        self._put = put
        self._newest: KnownQuorum | None = None
        # The state that was last handed over; the receiver may not have taken it yet.
        self._handed_over: KnownQuorum | None = None
        self._waits = False

    def changed(self, known: KnownQuorum) -> None:
        """Hand over a new state, now or when the receiver has taken the last one."""
        self._newest = known
        self._hand_over()

    def taken(self) -> None:
        """Note that the receiver has taken the last message."""
        self._waits = False
        self._hand_over()

    def _hand_over(self) -> None:
        newest = self._newest
        if newest is not None and newest != self._handed_over and not self._waits:
            self._handed_over = newest
            self._waits = True
            self._put(QuorumChanged(newest))
