"""Decides which dead letters go to which broker and when (KIP-1191). Pure: orders, answers, failures and times go in;
reads of the source log, creations of topics, requests, and ended orders come out.

Responsible for the order of the work, for batches, repetitions and limits. Not responsible for the rules of the topic
(letter_topics.py), for the bytes of a batch (letter_batches.py), nor for sockets, clocks and logs (letter_writer.py).
The behaviour is that of Apache Kafka's ShareGroupDLQStateManager, with the differences below.

An order looks at its topic first. A topic that is missing is created. If letters copy their records, the source log is
read. Then the order waits until no request is under way to the leader of its partition. The letters of all orders for a
partition share a batch, and all batches for a broker share a request. An order whose letters do not fit into one batch
goes the same way again with the rest of them.

Invariants
* Each order ends once: when all its letters are written, or when it is given up.
* One request is under way to a broker, with at most `MOST_PARTITIONS` batches. It gets no further batch once it has
  `MOST_REQUEST_BYTES`.
* At most `MOST_ORDERS` orders are here. An order beyond them is given up at once.
* At most `MOST_READS` reads are under way. No read begins while orders hold `MOST_HELD_BYTES` of copies.
* One call of `take_steps` looks at `MOST_ORDERS_A_TURN` orders and makes `MOST_LETTERS_A_TURN` letters, then `has_more`
  is True.

An order is given up if the rules refuse its topic, after an error that does not pass with time, and after
`MOST_FAILURES` failures in a row. Differences from Apache Kafka
* It tries again after each retriable error of the leader, and at once when the partition has a new leader. There, any
  error but NOT_LEADER_OR_FOLLOWER gives the order up.
* Parts of an order share batches with other orders.
* A try after a failure reads the source log again, so that an order which rests holds no copies.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pykbroker.dead_letters.letter_batches import LetterBatch
from pykbroker.dead_letters.letter_orders import (
    CreateTopic,
    LetterOrder,
    LetterPlace,
    OrderStage,
    ReadSource,
    SendLetters,
)
from pykbroker.dead_letters.letter_topics import LetterPartition, LetterTopic, MissingTopic, RefusedTopic
from pykbroker.share_persister.due_times import DueTimes
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.dead_letters.source_records import CopiedRecords

MOST_ORDERS: Final = 100_000
MOST_READS: Final = 4
MOST_HELD_BYTES: Final = 8 << 20
MOST_ORDERS_A_TURN: Final = 500
MOST_LETTERS_A_TURN: Final = 4_000
#: A batch of more bytes has one letter, or its topic accepts no larger one.
MOST_BATCH_BYTES: Final = 1 << 20
MOST_REQUEST_BYTES: Final = 4 << 20
MOST_PARTITIONS: Final = 100
_TOO_MANY: Final = f"{MOST_ORDERS} ranges of records wait already."


class LetterCounts(Protocol):
    """Counts letters by group (letter_metrics.py)."""

    def sent(self, group_id: str) -> None:
        """Letters of an order are part of a request."""

    def written(self, group_id: str, letters: int) -> None:
        """The leader has acknowledged letters."""

    def failed(self, group_id: str) -> None:
        """An order is given up after a request."""


class WriterMachine:
    """Call `take_steps` and `take_ended` after each call that gives something in, and again while `has_more` is
    True."""

    def __init__(
        self,
        topic_of: Callable[[LetterOrder], LetterTopic],
        copies_of: Callable[[LetterOrder], bool],
        counts: LetterCounts,
        chance: random.Random,
    ) -> None:
        """`topic_of` judges the topic of an order now. `copies_of` returns True if its letters copy their records."""
        self._topic_of = topic_of
        self._copies_of = copies_of
        self._counts = counts
        self._chance = chance
        self._count = 0
        self._queued: deque[LetterOrder] = deque()
        #: orders that wait for the creation of a topic
        self._creating: dict[str, list[LetterOrder]] = {}
        self._resting: DueTimes[LetterOrder] = DueTimes()
        self._unread: deque[LetterOrder] = deque()
        self._reads = 0
        self._held_bytes = 0
        #: ready orders by broker and partition
        self._ready: dict[int, dict[LetterPlace, dict[LetterOrder, None]]] = {}
        self._busy: set[int] = set()
        self._steps: list[ReadSource | CreateTopic | SendLetters] = []
        self._ended: list[LetterOrder] = []
        self.has_more = False

    def __len__(self) -> int:
        return self._count

    # -- inputs -------------------------------------------------------------------------------------------------------

    def submit(self, order: LetterOrder) -> None:
        """Take a new order."""
        self._count += 1
        if self._count > MOST_ORDERS:
            self._give_up(order, _TOO_MANY)
        else:
            self._queue(order)

    def source_read(self, order: LetterOrder, found: CopiedRecords | None, last: int) -> None:
        """Take the end of a read up to `last`. `found` is None if the source log cannot be read now. Then the letters
        have headers only, as in Apache Kafka. The same is so if the read has found no batch."""
        self._reads -= 1
        if found is None or found.through < order.next_offset:
            order.copies, order.copies_through = {}, last
        else:
            order.copies, order.copies_through = found.records, found.through
            order.held_bytes = found.size
            self._held_bytes += order.held_bytes
        # The partition may have another leader by now.
        self._queue(order)

    def created(self, name: str, error: ErrorCode, now: float) -> None:
        """Take the end of a creation. NONE if this broker's metadata has the topic."""
        for order in self._creating.pop(name):
            if error is ErrorCode.NONE:
                self._queue(order)
            elif error.retriable or error is ErrorCode.TOPIC_ALREADY_EXISTS:
                self._try_later(order, f"The dead letter topic {name} could not be created: {error.name}.", now)
            else:
                self._give_up(order, f"The dead letter topic {name} could not be created: {error.name}.")

    def answered(self, request: SendLetters, errors: Mapping[tuple[bytes, int], ErrorCode], now: float) -> None:
        """Take the answer to a request: the error of each partition, by topic id and index."""
        self._busy.discard(request.node_id)
        for target, orders in request.orders.items():
            error = errors.get((target.topic_id, target.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            for order, after in orders:
                if error is ErrorCode.NONE:
                    self._written(order, after)
                elif error.retriable:
                    self._failed(order, _refusal(target, error), now)
                else:
                    self._counts.failed(order.letters.group_id)
                    self._give_up(order, _refusal(target, error))

    def failed(self, request: SendLetters, reason: str, now: float) -> None:
        """Take the failure of a request that has no answer. Its letters may have been written all the same."""
        self._busy.discard(request.node_id)
        for target, orders in request.orders.items():
            for order, _ in orders:
                self._failed(order, f"Broker {target.leader} did not answer: {reason}.", now)

    def topics_changed(self) -> None:
        """Look again at the topics of orders whose partition has another leader now."""
        # The orders of a place have one partition.
        firsts = [next(iter(orders)) for places in self._ready.values() for orders in places.values()]
        for first in self._moved(firsts):
            for order in self._take_ready(first.place):
                self._queue(order)
        for order in self._moved(self._resting.items()):
            self._resting.withdraw(order)
            self._queue(order)

    def wake(self, now: float) -> None:
        """Take the time: rests end."""
        for order in self._resting.take(now):
            self._queue(order)

    # -- outputs ------------------------------------------------------------------------------------------------------

    def take_steps(self, now: float, now_ms: int) -> list[ReadSource | CreateTopic | SendLetters]:
        """Return what has to be done now. `now_ms` is the timestamp of the letters. If `has_more` is True afterwards,
        call it again in the next turn of the loop."""
        self._judge(now)
        while self._unread and self._reads < MOST_READS and self._held_bytes < MOST_HELD_BYTES:
            self._read(self._unread.popleft())
        letters = MOST_LETTERS_A_TURN
        for node_id in [node_id for node_id in self._ready if node_id not in self._busy]:
            if letters <= 0:
                break
            letters -= self._send(node_id, letters, now_ms)
        self.has_more = bool(self._queued) or any(node_id not in self._busy for node_id in self._ready)
        steps, self._steps = self._steps, []
        return steps

    def take_ended(self) -> list[LetterOrder]:
        """Return the orders that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def next_wake(self) -> float | None:
        """Return the time at which `wake` has something to do, None if nothing waits for time."""
        return self._resting.next_due()

    # -- the way of an order ------------------------------------------------------------------------------------------

    def _queue(self, order: LetterOrder) -> None:
        order.stage = OrderStage.QUEUED
        self._queued.append(order)

    def _judge(self, now: float) -> None:
        for _ in range(min(len(self._queued), MOST_ORDERS_A_TURN)):
            order = self._queued.popleft()
            topic = self._topic_of(order)
            if isinstance(topic, RefusedTopic):
                self._give_up(order, topic.reason)
            elif isinstance(topic, MissingTopic):
                order.stage = OrderStage.CREATING
                if topic.name not in self._creating:
                    self._creating[topic.name] = []
                    self._steps.append(CreateTopic(topic.name))
                self._creating[topic.name].append(order)
            else:
                order.target = topic
                if topic.leader < 0:
                    self._try_later(order, f"Partition {topic.topic}-{topic.index} has no leader.", now)
                elif self._copies_of(order) and order.copies is None:
                    order.stage = OrderStage.UNREAD
                    self._unread.append(order)
                else:
                    self._make_ready(order)

    def _read(self, order: LetterOrder) -> None:
        assert order.target is not None
        order.stage = OrderStage.READING
        self._reads += 1
        last = min(order.letters.last_offset, order.next_offset + MOST_LETTERS_A_TURN - 1)
        self._steps.append(ReadSource(order, last, order.target.most_bytes))

    def _make_ready(self, order: LetterOrder) -> None:
        order.stage = OrderStage.READY
        place = order.place
        self._ready.setdefault(place.node_id, {}).setdefault(place, {})[order] = None

    def _take_ready(self, place: LetterPlace) -> dict[LetterOrder, None]:
        """Remove a place and return its orders."""
        places = self._ready[place.node_id]
        orders = places.pop(place)
        if not places:
            del self._ready[place.node_id]
        return orders

    def _send(self, node_id: int, most_letters: int, now_ms: int) -> int:
        """Make the request for a broker. Return how many letters it has."""
        batches: dict[LetterPartition, LetterBatch] = {}
        sent: dict[LetterPartition, list[tuple[LetterOrder, int]]] = {}
        letters = size = 0
        for place in list(self._ready[node_id]):
            if letters >= most_letters or size >= MOST_REQUEST_BYTES or len(batches) >= MOST_PARTITIONS:
                break
            orders = self._take_ready(place)
            target = next(iter(orders)).target
            assert target is not None
            batch = batches[target] = LetterBatch(target.most_bytes, MOST_BATCH_BYTES)
            taken = sent[target] = []
            for order in orders:
                if batch.is_full or letters >= most_letters:
                    break
                after = self._add(order, batch, most_letters - letters)
                if after > order.next_offset:
                    letters += after - order.next_offset
                    taken.append((order, after))
                    order.stage = OrderStage.SENT
                    self._counts.sent(order.letters.group_id)
            for order, _ in taken:
                del orders[order]
            size += batch.size
            if orders:
                # The place goes last, so that the other partitions have their turn.
                self._ready.setdefault(node_id, {})[place] = orders
        self._busy.add(node_id)
        sealed = {target: batch.seal(now_ms) for target, batch in batches.items()}
        self._steps.append(SendLetters(node_id, sealed, sent))
        return letters

    def _add(self, order: LetterOrder, batch: LetterBatch, most_letters: int) -> int:
        last = order.letters.last_offset
        copies = order.copies
        if copies is None:
            copies = {}
        else:
            last = min(last, order.copies_through)
        return batch.add(order.frame, order.next_offset, min(last, order.next_offset + most_letters - 1), copies)

    def _written(self, order: LetterOrder, after: int) -> None:
        self._counts.written(order.letters.group_id, after - order.next_offset)
        order.next_offset = after
        order.failures = 0
        if after > order.letters.last_offset:
            self._end(order)
            return
        if after > order.copies_through:
            self._drop_copies(order)
        self._queue(order)

    def _failed(self, order: LetterOrder, reason: str, now: float) -> None:
        if not self._try_later(order, reason, now):
            self._counts.failed(order.letters.group_id)

    def _try_later(self, order: LetterOrder, reason: str, now: float) -> bool:
        """Let an order rest. Return False if it is given up instead."""
        rest = order.rest()
        if rest is None:
            self._give_up(order, f"{reason} It was tried {order.failures} times.")
            return False
        self._drop_copies(order)
        order.stage = OrderStage.RESTING
        # 20 % up or down, as Apache Kafka's.
        self._resting.set(order, now + rest * (0.8 + 0.4 * self._chance.random()))
        return True

    def _drop_copies(self, order: LetterOrder) -> None:
        self._held_bytes -= order.held_bytes
        order.copies, order.copies_through, order.held_bytes = None, -1, 0

    def _give_up(self, order: LetterOrder, reason: str) -> None:
        order.problem = reason
        self._end(order)

    def _end(self, order: LetterOrder) -> None:
        self._drop_copies(order)
        order.stage = OrderStage.ENDED
        self._count -= 1
        self._ended.append(order)

    def _moved(self, orders: Iterable[LetterOrder]) -> list[LetterOrder]:
        """Return the orders whose partition has another leader now, or another leader epoch."""
        # All orders of a place have the same answer, and there are few places.
        known: dict[LetterPartition, bool] = {}
        moved = []
        for order in orders:
            if order.target is None:
                continue
            if order.target not in known:
                now = self._topic_of(order)
                known[order.target] = not isinstance(now, LetterPartition) or (
                    now.topic_id,
                    now.leader,
                    now.leader_epoch,
                ) != (order.target.topic_id, order.target.leader, order.target.leader_epoch)
            if known[order.target]:
                moved.append(order)
        return moved


def _refusal(target: LetterPartition, error: ErrorCode) -> str:
    return f"Broker {target.leader} answers {error.name} for partition {target.topic}-{target.partition}."
