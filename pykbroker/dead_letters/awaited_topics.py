"""Orders that wait for the creation of their topic, or for their turn after its end. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from pykbroker.dead_letters.letter_orders import LetterOrder, OrderStage
from pykbroker_wire.errors import ErrorCode


@dataclass(slots=True, eq=False)
class TopicWait:
    """The orders of one creation, with the times of its begin and its end, and its outcome."""

    name: str
    began: float
    orders: deque[LetterOrder] = field(default_factory=deque)
    error: ErrorCode = ErrorCode.NONE
    ended: float = 0.0


class AwaitedTopics:
    """The waiting orders of one writer. A topic has one creation at a time."""

    def __init__(self) -> None:
        self._under_way: dict[str, TopicWait] = {}
        #: creations that have ended and have orders left
        self._ended: deque[TopicWait] = deque()

    @property
    def has_ended(self) -> bool:
        """True if `turn` has something to return."""
        return bool(self._ended)

    def add(self, order: LetterOrder, name: str, now: float) -> bool:
        """Let an order wait. Return True if the creation has to begin now."""
        order.stage = OrderStage.CREATING
        begins = name not in self._under_way
        if begins:
            self._under_way[name] = TopicWait(name, now)
        self._under_way[name].orders.append(order)
        return begins

    def end(self, name: str, error: ErrorCode, now: float) -> None:
        """Note the outcome of a creation."""
        wait = self._under_way.pop(name)
        wait.error, wait.ended = error, now
        self._ended.append(wait)

    def turn(self, most: int) -> Iterator[tuple[TopicWait, list[LetterOrder]]]:
        """Remove and return orders whose creation has ended, with their creation. Altogether no more than `most`."""
        while self._ended and most:
            wait = self._ended[0]
            orders = [wait.orders.popleft() for _ in range(min(most, len(wait.orders)))]
            most -= len(orders)
            if not wait.orders:
                self._ended.popleft()
            yield wait, orders
