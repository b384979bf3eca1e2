"""Decides that peers are gone from the ends of their connections alone. Pure.

When a process dies, its kernel ends its connections. If a new connection is neither accepted nor refused (a container
that was killed no longer has an address), this end is the only evidence. So a peer is gone if it ended its connection
and is not back after RETURN_MS. In two cases the end of a connection does not count, because the network or this node
may be its cause:

* The connections of two or more peers ended within TOGETHER_MS, and these peers do not refuse new connections.
* The loop of this node did not turn for STALL_MS. Its peers may have ended their connections for that reason, and this
  node may not have read their new connections yet.

Not responsible for peers that refuse, nor for sockets and timers: the owner calls `turned` several times a second.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: A peer that is alive is back before this time.
RETURN_MS = 500
TOGETHER_MS = 1_000
STALL_MS = 1_000
#: A decision that is late by more than this waits for AGAIN_MS more, because this node may not yet have read the bytes
#: that arrived in the meantime.
LATE_MS = 100
AGAIN_MS = 200

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _End:
    ended_ms: int
    due_ms: int


class PeerEnds(Generic[K]):
    """The peers of one owner. `now_ms`: the loop's clock."""

    def __init__(self) -> None:
        self._waiting: dict[K, _End] = {}
        #: peer -> when it ended its connection, for peers that have refused no connection since
        self._ended_ms: dict[K, int] = {}
        self._turned_ms: int | None = None
        #: when the loop of this node turned again after a stall
        self._stalled_ms: int | None = None

    def turned(self, now_ms: int) -> None:
        """Record that the loop of this node turns."""
        if self._turned_ms is not None and now_ms - self._turned_ms >= STALL_MS:
            self._stalled_ms = now_ms
        self._turned_ms = now_ms

    def has_stalled_since(self, then_ms: int) -> bool:
        """Return True if the loop of this node stood still after `then_ms`, or shortly before."""
        return self._stalled_ms is not None and self._stalled_ms >= then_ms - STALL_MS

    def ended(self, peer: K, now_ms: int) -> None:
        """Record that the peer has ended its connection."""
        self.turned(now_ms)
        self._ended_ms = {
            each: ended_ms for each, ended_ms in self._ended_ms.items() if now_ms - ended_ms <= 2 * TOGETHER_MS
        }
        self._ended_ms[peer] = now_ms
        self._waiting[peer] = _End(now_ms, now_ms + RETURN_MS)

    def back(self, peer: K) -> None:
        """Record that the peer is alive. The end of its connection still counts as a sign of a bad network."""
        self._waiting.pop(peer, None)

    def refused(self, peer: K) -> None:
        """Record that the peer refuses connections. Its process has died, so the end of its connection is not a sign of
        a bad network."""
        self._waiting.pop(peer, None)
        self._ended_ms.pop(peer, None)

    def clear(self) -> None:
        """Forget all peers."""
        self._waiting.clear()
        self._ended_ms.clear()
        self._turned_ms = None

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `clock` must be called, or None."""
        return min((end.due_ms for end in self._waiting.values()), default=None)

    def clock(self, now_ms: int) -> list[K]:
        """Return the peers that are gone, each once."""
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
