"""The requests that are under way, and the letters in them whose partition has another leader by now. Pure.

A leader that has lost its place answers soon, and its answer decides its letters. A leader that hangs does not answer.
After `ANSWER_SECONDS` its letters leave the request, and go to the next leader. From then on the answer decides them no
longer. So they are written twice if the old leader has written them too.

Letters stay in their request while the partition has no leader. They also stay if the same broker leads it in another
epoch, because a broker has one request at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pykbroker.dead_letters.letter_orders import LetterOrder, SendLetters
from pykbroker.dead_letters.letter_topics import LetterPartition, LetterTopic, next_leader
from pykbroker.retries.due_times import DueTimes

ANSWER_SECONDS: Final = 1.0


class SentRequests:
    """The requests of one writer."""

    def __init__(self) -> None:
        self._requests: dict[SendLetters, None] = {}
        #: when letters leave their request
        self._moved: DueTimes[tuple[SendLetters, LetterPartition]] = DueTimes()

    def add(self, request: SendLetters) -> None:
        """Note that a request is under way."""
        self._requests[request] = None

    def ended(self, request: SendLetters) -> None:
        """Note the end of a request."""
        del self._requests[request]
        for target in request.orders:
            self._moved.withdraw((request, target))

    def topics_changed(self, topic_of: Callable[[LetterOrder], LetterTopic], now: float) -> None:
        """Look for partitions that another broker leads now. `topic_of` judges the topic of an order."""
        for request in self._requests:
            for target, orders in request.orders.items():
                place = request, target
                if next_leader(topic_of(orders[0][0]), target) in (-1, request.node_id):
                    self._moved.withdraw(place)
                elif place not in self._moved:
                    self._moved.set(place, now + ANSWER_SECONDS)

    def take(self, now: float) -> Iterator[tuple[SendLetters, LetterPartition, list[LetterOrder]]]:
        """Remove letters from their requests if the old leader has had its time. Return the request and the partition
        with the orders."""
        for request, target in self._moved.take(now):
            yield request, target, [order for order, _ in request.orders.pop(target)]

    def next_due(self) -> float | None:
        """Return the time at which `take` has something to return, None if nothing is awaited."""
        return self._moved.next_due()
