"""The number of connections that each listener of a node may have, so that the node never runs out of descriptors.

Responsible for dividing the places among listeners. Each listener has some places of its own, and the other places are
common, first come, first served. Not responsible for Apache Kafka's bounds (admission.py), which decide which
connections are served. A connection that waits because of these bounds also takes a place, because it has a descriptor.
Pure.

Invariants
* The connections of all listeners are never more than `total`.
* A listener that has fewer connections than its own places can take one more, whatever the other listeners have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

#: The most own places of a listener for other nodes, and of a listener for clients. The listeners of each kind together
#: have at most a quarter of all places as their own.
_OF_NODES: Final = 256
_OF_CLIENTS: Final = 64


def own_places(total: int, nodes: Collection[str], clients: Collection[str]) -> dict[str, int]:
    """Return how many of `total` places each listener has of its own; `nodes` are listeners for other nodes."""
    own = {name: min(_OF_NODES, total // 4 // len(nodes)) for name in nodes}
    own |= {name: min(_OF_CLIENTS, total // 4 // len(clients)) for name in clients}
    return own


class Places:
    """The places of the listeners of a node."""

    def __init__(self, total: int, own: Mapping[str, int]) -> None:
        """`own`: listener name -> the number of its own places; the sum is at most `total`."""
        self._own = own
        self._common_left = total - sum(own.values())
        assert self._common_left >= 0
        self._taken: Counter[str] = Counter()

    def taken(self, name: str) -> int:
        """Return how many places this listener has taken."""
        return self._taken[name]

    def take(self, name: str) -> bool:
        """Take a place for a connection of this listener. Return False if there is none."""
        if self._taken[name] >= self._own.get(name, 0):
            if not self._common_left:
                return False
            self._common_left -= 1
        self._taken[name] += 1
        return True

    def give_back(self, name: str) -> None:
        """Free the place of a connection that has ended."""
        assert self._taken[name] > 0
        if self._taken[name] > self._own.get(name, 0):
            self._common_left += 1
        self._taken[name] -= 1
