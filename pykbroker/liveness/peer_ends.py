"""Peers that are gone, judged by the ends of their connections alone. Pure.

The kernel of a process that dies ends its connections. Where a new connection is neither taken nor refused (a container
that was killed no longer has an address), it is the only evidence. So a peer is gone if it ended its connection and is
not back after RETURN_MS. The evidence does not count where it may be the network's or this node's:

* The connections of two or more peers ended within TOGETHER_MS and the peers do not refuse new ones.
* The loop of this node did not turn for STALL_MS, so its peers gave it up, and their new connections are not read yet.

Not responsible for peers that refuse, nor for sockets and timers: the owner calls `turned` several times a second.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: A peer that lives is back sooner.
RETURN_MS = 500
TOGETHER_MS = 1_000
STALL_MS = 1_000
#: A verdict that is later than this waits for AGAIN_MS, because this node has not read what arrived in the meantime.
LATE_MS = 100
AGAIN_MS = 200

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _End:
    ended_ms: int
    due_ms: int


class PeerEnds(Generic[K]):
    """`now_ms`: the loop's clock."""

    def __init__(self) -> None:
        self._waiting: dict[K, _End] = {}
        #: when peers that refuse no connection ended one
        self._ended_ms: dict[K, int] = {}
        self._turned_ms: int | None = None
        #: when this node turned again
        self._stalled_ms: int | None = None

    def turned(self, now_ms: int) -> None:
        """This node is at work."""
        if self._turned_ms is not None and now_ms - self._turned_ms >= STALL_MS:
            self._stalled_ms = now_ms
        self._turned_ms = now_ms

    def has_stalled_since(self, then_ms: int) -> bool:
        """Return True if this node stood still after `then_ms`, or shortly before."""
        return self._stalled_ms is not None and self._stalled_ms >= then_ms - STALL_MS

    def ended(self, peer: K, now_ms: int) -> None:
        """The peer has ended its connection."""
        self.turned(now_ms)
        self._ended_ms = {
            each: ended_ms for each, ended_ms in self._ended_ms.items() if now_ms - ended_ms <= 2 * TOGETHER_MS
        }
        self._ended_ms[peer] = now_ms
        self._waiting[peer] = _End(now_ms, now_ms + RETURN_MS)

    def back(self, peer: K) -> None:
        """The peer lives. The end of its connection still counts as a sign of a bad network."""
        self._waiting.pop(peer, None)

    def refused(self, peer: K) -> None:
        """The peer refuses connections. Its process has died, so its end is no sign of a bad network."""
        self._waiting.pop(peer, None)
        self._ended_ms.pop(peer, None)

    def clear(self) -> None:
        """Forget all peers."""
        self._waiting.clear()
        self._ended_ms.clear()
        self._turned_ms = None

    @property
    def deadline_ms(self) -> int | None:
        """When `clock` has something to do."""
        return min((end.due_ms for end in self._waiting.values()), default=None)

    def clock(self, now_ms: int) -> list[K]:
        """The peers that are gone, each once."""
        self.turned(now_ms)
        gone: list[K] = []
        for peer, end in list(self._waiting.items()):
            if end.due_ms > now_ms:
                continue
            if now_ms - end.due_ms > LATE_MS:
                end.due_ms = now_ms + AGAIN_MS
                continue
            del self._waiting[peer]
            is_alone = not any(
                abs(ended_ms - end.ended_ms) <= TOGETHER_MS
                for other, ended_ms in self._ended_ms.items()
                if other != peer
            )
            if is_alone and not self.has_stalled_since(end.ended_ms):
                gone.append(peer)
        return gone
