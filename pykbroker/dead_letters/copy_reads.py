"""The turns of orders to read the source log, and the memory of the copies that were read. Pure.

Copies of an order stay in memory until the leader of its dead letter partition has acknowledged them. So a broker that
hangs keeps those of its orders for long. The memory is divided among the brokers for that reason.

Invariants
* At most `MOST_READS` reads are under way.
* No read begins for a broker whose orders hold `MOST_HELD_BYTES_OF_A_BROKER`, and one read at a time is under way for
  a broker.
* While all orders hold `MOST_HELD_BYTES`, reads begin only for brokers whose orders hold nothing. So the orders of each
  broker make progress, and the memory has a bound: one read more for each broker.
* Brokers take turns.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from pykbroker.dead_letters.letter_orders import LetterOrder

MOST_READS: Final = 4
MOST_HELD_BYTES: Final = 8 << 20
MOST_HELD_BYTES_OF_A_BROKER: Final = MOST_HELD_BYTES // 2


class CopyReads:
    """The reads and the copies of one writer. The broker of an order is the leader of its target at the read."""

    def __init__(self) -> None:
        #: orders that wait for their read, by broker
        self._unread: dict[int, dict[LetterOrder, None]] = {}
        #: the brokers for whose orders a read is under way
        self._reading: dict[LetterOrder, int] = {}
        self._held: Counter[int] = Counter()

    def unread(self) -> list[LetterOrder]:
        """Return the orders that wait for their read."""
        return [order for orders in self._unread.values() for order in orders]

    def add(self, order: LetterOrder) -> None:
        """Let an order wait for its read."""
        self._unread.setdefault(order.place.node_id, {})[order] = None

    def withdraw(self, order: LetterOrder) -> None:
        """Remove an order that waits. Its target is still that of `add`."""
        node_id = order.place.node_id
        orders = self._unread[node_id]
        del orders[order]
        if not orders:
            del self._unread[node_id]

    def begin(self) -> list[LetterOrder]:
        """Return the orders whose reads begin now."""
        begun: list[LetterOrder] = []
        while len(self._reading) < MOST_READS and (order := self._next()) is not None:
            self._reading[order] = order.place.node_id
            begun.append(order)
        return begun

    def ended(self, order: LetterOrder) -> None:
        """Note the end of an order's read."""
        del self._reading[order]

    def hold(self, order: LetterOrder, size: int) -> None:
        """Count the bytes of an order's copies. It must hold none so far."""
        order.held_bytes, order.held_by = size, order.place.node_id
        self._held[order.held_by] += size

    def release(self, order: LetterOrder) -> None:
        """Count the bytes of an order's copies no longer."""
        if order.held_bytes:
            self._held[order.held_by] -= order.held_bytes
            if not self._held[order.held_by]:
                del self._held[order.held_by]
            order.held_bytes = 0

    def _next(self) -> LetterOrder | None:
        has_room = self._held.total() < MOST_HELD_BYTES
        reading = self._reading.values()
        for node_id in self._unread:
            held = self._held[node_id]
            if node_id not in reading and (not held or (has_room and held < MOST_HELD_BYTES_OF_A_BROKER)):
                break
        else:
            return None
        orders = self._unread.pop(node_id)
        order = next(iter(orders))
        del orders[order]
        if orders:
            self._unread[node_id] = orders
        return order
