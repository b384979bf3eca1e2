"""Brokers whose processes are gone although the metadata does not show it yet, and the answers that wait until that is
known.

Each broker half has one `DeadBrokers`. It holds the findings about other brokers until an image has the controller's
decision. Not responsible for the findings (lost_peers.py), nor for the answers to clients
(client_view/cluster_view.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from pykbroker.metadata.image import MetadataImage
from pykbroker.net.promise import Promise

R = TypeVar("R")

#: When a process has died, the other processes on its machine have read the end of their connections to it after this
#: time. A client of the dead process may ask this node within 1 ms.
UNREAD_SECONDS = 0.002


class DeadBrokers:
    """The brokers that one broker half has found to be gone. A publisher of the loader."""

    __slots__ = ("_call_later", "_doubts", "_has_others", "_waiting", "ids")

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        """`call_later(seconds, callback)`. It is None if no part watches which brokers are gone."""
        #: the ids of the brokers that are gone; each change puts a new set here
        self.ids: frozenset[int] = frozenset()
        self._doubts: set[Hashable] = set()
        self._waiting: list[Callable[[], None]] = []
        self._call_later = call_later
        self._has_others = False

    def when_settled(self, answer: Callable[[], R]) -> R | Promise:
        """Return `answer()`, or a Promise of it. If there are other brokers and this node watches them, the answer
        waits for UNREAD_SECONDS. A broker may have died just now, and this node may not have read the end of its
        connection yet. The answer also waits while it is unknown if a broker is gone. A client that gets the name of a
        dead leader may ask again only after a second (librdkafka)."""
        wait = self._call_later if self._has_others else None
        if wait is None and not self._doubts:
            return answer()
        promise = Promise()

        def go_on() -> None:
            if promise.done():
                return
            try:
                promise.set_result(answer())
            except Exception as error:  # noqa: BLE001  # the connection answers as it does for any handler
                promise.set_exception(error)

        if wait is None:
            self._waiting.append(go_on)
        else:
            wait(UNREAD_SECONDS, lambda: self._waiting.append(go_on) if self._doubts else go_on())
        return promise

    def doubt(self, peer: Hashable) -> None:
        """Record that it is unknown if this peer is gone, until `settle` is called for it."""
        self._doubts.add(peer)

    def settle(self, peer: Hashable) -> None:
        self._doubts.discard(peer)
        if not self._doubts:
            waiting, self._waiting = self._waiting, []
            for go_on in waiting:
                go_on()

    def lose(self, broker_ids: Iterable[int]) -> None:
        """Record that these brokers refuse connections."""
        self.ids |= frozenset(broker_ids)

    def find_again(self, broker_ids: Iterable[int]) -> None:
        self.ids -= frozenset(broker_ids)

    def publish(self, delta: object, old: MetadataImage, new: MetadataImage) -> None:
        """Forget a broker if its entry in the image has changed, because the controller may have decided about it.
        Other changes of the metadata do not show a decision, because a new active controller writes other records
        before it fences a broker."""
        self._has_others = len(new.brokers) > 1
        if self.ids:
            self.ids = frozenset(each for each in self.ids if new.brokers.get(each) is old.brokers.get(each))
