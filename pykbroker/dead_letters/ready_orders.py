"""Orders whose next letters can be sent, and the batches that they become. Pure.

Responsible for who shares a batch and a request. Not responsible for what follows an answer (writer_machine.py).

Invariants
* One request is under way to a broker, with at most `MOST_PARTITIONS` batches. It gets no further batch once it has
  `MOST_REQUEST_BYTES`.
* A batch has the letters of orders with one target. A batch of more than `MOST_BATCH_BYTES` is alone in its request,
  because the leader may refuse the whole request for it.
* The partitions of a broker take turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykbroker.dead_letters.letter_batches import LetterBatch
from pykbroker.dead_letters.letter_orders import LetterOrder, LetterPlace, OrderStage
from pykbroker.dead_letters.letter_topics import LetterPartition

#: A batch of more bytes has one letter.
MOST_BATCH_BYTES: Final = 1 << 20
MOST_REQUEST_BYTES: Final = 4 << 20
MOST_PARTITIONS: Final = 100


class RequestParts:
    """The batches of one request, and the orders in them."""

    def __init__(self) -> None:
        self.batches: dict[LetterPartition, LetterBatch] = {}
        #: each order of a batch, and the offset after its last letter in the batch
        self.orders: dict[LetterPartition, list[tuple[LetterOrder, int]]] = {}
        self.letters = 0
        self.size = 0

    def add(self, batch: LetterBatch, orders: list[tuple[LetterOrder, int]]) -> None:
        target = orders[0][0].target
        assert target is not None
        self.batches[target], self.orders[target] = batch, orders
        self.letters += len(batch)
        self.size += batch.size


class ReadyOrders:
    """The ready orders of one writer by broker and partition, and the brokers that have a request."""

    def __init__(self) -> None:
        self._places: dict[int, dict[LetterPlace, dict[LetterOrder, None]]] = {}
        self._busy: set[int] = set()

    def add(self, order: LetterOrder) -> None:
        """Take an order whose target is known, and whose copies are read if it has some."""
        order.stage = OrderStage.READY
        self._places.setdefault(order.place.node_id, {}).setdefault(order.place, {})[order] = None

    def firsts(self) -> list[LetterOrder]:
        """Return the first order of each place. The orders of a place have one partition."""
        return [next(iter(orders)) for places in self._places.values() for orders in places.values()]

    def take(self, place: LetterPlace) -> dict[LetterOrder, None]:
        """Remove a place and return its orders. There may be none."""
        places = self._places.get(place.node_id, {})
        orders = places.pop(place, {})
        if orders and not places:
            del self._places[place.node_id]
        return orders

    def answered(self, node_id: int) -> None:
        """Note that the request of a broker has its end."""
        self._busy.discard(node_id)

    def brokers(self) -> list[int]:
        """Return the brokers that can get a request now."""
        return [node_id for node_id in self._places if node_id not in self._busy]

    def request(self, node_id: int, most_letters: int) -> RequestParts:
        """Take orders for a request to a broker that `brokers` has returned."""
        made = RequestParts()
        for place, orders in list(self._places[node_id].items()):
            if made.letters >= most_letters or made.size >= MOST_REQUEST_BYTES or len(made.batches) >= MOST_PARTITIONS:
                break
            batch, taken = _batch(orders, most_letters - made.letters)
            is_alone = batch.size > MOST_BATCH_BYTES
            if is_alone and made.batches:
                continue
            made.add(batch, taken)
            self.take(place)
            for order, _ in taken:
                del orders[order]
                order.stage = OrderStage.SENT
            if orders:
                # The place goes last, so that the other partitions have their turn.
                self._places.setdefault(node_id, {})[place] = orders
            if is_alone:
                break
        self._busy.add(node_id)
        return made


def _batch(orders: Iterable[LetterOrder], most_letters: int) -> tuple[LetterBatch, list[tuple[LetterOrder, int]]]:
    """Make a batch of the first orders of a place. Orders whose batches must be smaller share none with others. Return
    with it each order and the offset after its last letter."""
    first = next(iter(orders))
    assert first.target is not None
    batch = LetterBatch(first.target.most_bytes, first.most_bytes or MOST_BATCH_BYTES)
    taken: list[tuple[LetterOrder, int]] = []
    for order in orders:
        if batch.is_full or len(batch) >= most_letters or order.most_bytes != first.most_bytes:
            break
        last = min(order.last_known(), order.next_offset + most_letters - len(batch) - 1)
        after = batch.add(order.frame, order.next_offset, last, order.copies or {})
        if after > order.next_offset:
            taken.append((order, after))
    return batch, taken
