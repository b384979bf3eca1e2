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
* One request is under way to a broker, and it is bounded (ready_orders.py).
* At most `MOST_ORDERS` orders are here. An order beyond them is given up at once.
* Reads and the memory of copies are bounded (copy_reads.py).
* One call of `take_steps` does `MOST_ORDERS_A_TURN` steps of each kind, such as the ends of rests, and makes
  `MOST_LETTERS_A_TURN` letters. Then `has_more` is True.

An order is given up if the rules refuse its topic, after an error that does not pass with time, and after
`MOST_FAILURES` failures in a row. At a place that is down one failure is enough. Soon after a try that took
long and had no answer, no other is made there (down_places.py). Differences from Apache Kafka
* It tries again after each retriable error of the leader, and at once when the partition has a new leader. There, any
  error but NOT_LEADER_OR_FOLLOWER gives the order up.
* Letters for a leader that hangs leave their request once the partition has a new leader (sent_requests.py).
* Letters that a leader has appended, but not to enough replicas, are sent again only if the leader epoch ends.
* Letters of a batch that is too large for the leader are sent again in smaller batches, and then without their copies.
* A record that cannot be read yet, because the leader of its partition is new, is waited for.
* Parts of an order share batches with other orders.
* A try after a failure reads the source log again, so that an order which rests holds no copies.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

from pykbroker.dead_letters.awaited_topics import AwaitedTopics
from pykbroker.dead_letters.copy_reads import CopyReads
from pykbroker.dead_letters.down_places import DownPlaces, FailedTry
from pykbroker.dead_letters.letter_orders import (
    AppendedLetters,
    CreateTopic,
    LetterOrder,
    OrderStage,
    ReadSource,
    SendLetters,
)
from pykbroker.dead_letters.letter_topics import LetterPartition, LetterTopic, MissingTopic, RefusedTopic, next_leader
from pykbroker.dead_letters.ready_orders import ReadyOrders
from pykbroker.dead_letters.sent_requests import SentRequests
from pykbroker.dead_letters.source_records import NotReadable
from pykbroker.retries.due_times import DueTimes
from pykbroker.retries.tries import Tries, rest_factor
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.dead_letters.source_records import SourceOutcome

MOST_ORDERS: Final = 100_000
MOST_ORDERS_A_TURN: Final = 500
MOST_LETTERS_A_TURN: Final = 4_000
#: An order waits so long for its next record while the source log cannot be read yet, and looks so often.
SOURCE_SECONDS: Final = 10.0
_LOOKS_A_SECOND: Final = 2
#: Rests end at so many times in a second, because thousands of orders may rest.
_ENDS_A_SECOND: Final = 10
#: After this time letters that a leader has appended count as written, if the leader epoch has not ended. The epoch of
#: a leader that dies ends with its session, which lasts 9 s if broker.session.timeout.ms has its default.
CONFIRM_SECONDS: Final = 12.0
#: The leader has appended the letters, but not enough replicas have them.
APPENDED: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_AT_A_DOWN_PLACE: Final = ", because earlier letters had failed there in all tries"
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
        self._awaited = AwaitedTopics()
        self._resting: DueTimes[LetterOrder] = DueTimes()
        #: orders whose partition may have another leader now
        self._unlooked: dict[LetterOrder, None] = {}
        self._copies = CopyReads()
        self._down = DownPlaces()
        self._ready = ReadyOrders()
        self._sent = SentRequests()
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
            self._end(order, _TOO_MANY)
        else:
            self._queue(order)

    def source_read(self, order: LetterOrder, found: SourceOutcome, last: int, now: float) -> None:
        """Take the end of a read up to `last`. If the source log has lost the records, the letters have headers only,
        as in Apache Kafka. The same is so if the read has found no batch, and if the log could not be read for
        `SOURCE_SECONDS`."""
        self._copies.ended(order)
        source = (order.letters.topic_id, order.letters.partition)
        if found is NotReadable.NOT_YET and self._waits(order, source, now):
            return
        if isinstance(found, NotReadable) or found.through < order.next_offset:
            order.copies, order.copies_through = {}, last
        else:
            self._down.succeeded(source)
            order.patient_until = None
            order.copies, order.copies_through = dict(found.records), found.through
            self._copies.hold(order, found.size)
        # The partition may have another leader by now.
        self._queue(order)

    def created(self, name: str, error: ErrorCode, now: float) -> None:
        """Take the end of a creation. NONE if this broker's metadata has the topic."""
        self._awaited.end(name, error, now)
        if error is ErrorCode.NONE:
            self._down.succeeded(name)

    def answered(self, request: SendLetters, errors: Mapping[tuple[bytes, int], ErrorCode], now: float) -> None:
        """Take the answer to a request: the error of each partition, by topic id and index. It does not decide letters
        that have left the request."""
        self._ready.answered(request.node_id)
        self._sent.ended(request)
        for target, orders in request.orders.items():
            error = errors.get((target.topic_id, target.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            if error is ErrorCode.NONE:
                self._down.succeeded(target.led_partition)
                for order, after in orders:
                    self._written(order, after)
                continue
            if error in TOO_LARGE and self._smaller(orders, len(request.batches[target])):
                continue
            refusal = _refusal(target, error)
            failed = self._failed_request(request, orders[0][0], refusal, now, is_answered=True)
            for order, after in orders:
                if error in APPENDED:
                    self._confirm(order, AppendedLetters(target.led_partition, after), failed)
                elif error.retriable:
                    self._failed(order, failed)
                else:
                    self._counts.failed(order.letters.group_id)
                    self._end(order, failed.reason)

    def failed(self, request: SendLetters, reason: str, now: float) -> None:
        """Take the failure of a request that has no answer. Its letters may have been written all the same."""
        self._ready.answered(request.node_id)
        self._sent.ended(request)
        for target, orders in request.orders.items():
            why = f"Broker {target.leader} did not answer: {reason}."
            failed = self._failed_request(request, orders[0][0], why, now)
            for order, _ in orders:
                self._failed(order, failed)

    def topics_changed(self, now: float) -> None:
        """Look again at the topics of orders whose partition has another leader now."""
        for first in _moved(self._ready.firsts(), self._topic_of):
            for order in self._ready.take(first.place):
                self._queue(order)
        self._sent.topics_changed(self._topic_of, now)
        self._unlooked |= dict.fromkeys(self._copies.unread())
        self._unlooked |= dict.fromkeys(self._resting.items())

    # -- outputs ------------------------------------------------------------------------------------------------------

    def take_steps(self, now: float, now_ms: int) -> list[ReadSource | CreateTopic | SendLetters]:
        """Return what has to be done now. `now_ms` is the timestamp of the letters. If `has_more` is True afterwards,
        call it again in the next turn of the loop."""
        for order in self._resting.take(now, MOST_ORDERS_A_TURN):
            self._queue(order)
        self._look_again()
        self._take_back(now)
        self._go_on_after_creations()
        self._judge(now)
        for order in self._copies.begin():
            self._read(order)
        letters = MOST_LETTERS_A_TURN
        for node_id in self._ready.brokers():
            if letters <= 0:
                break
            letters -= self._send(node_id, letters, now, now_ms)
        due = self.next_wake()
        self.has_more = bool(
            self._queued
            or self._unlooked
            or self._awaited.has_ended
            or self._ready.brokers()
            or (due is not None and due <= now)
        )
        steps, self._steps = self._steps, []
        return steps

    def take_ended(self) -> list[LetterOrder]:
        """Return the orders that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def next_wake(self) -> float | None:
        """Return the time at which `take_steps` has something to do, None if nothing waits for time."""
        return min((due for due in (self._resting.next_due(), self._sent.next_due()) if due is not None), default=None)

    # -- the way of an order ------------------------------------------------------------------------------------------

    def _queue(self, order: LetterOrder) -> None:
        order.stage = OrderStage.QUEUED
        self._queued.append(order)

    def _judge(self, now: float) -> None:
        for _ in range(min(len(self._queued), MOST_ORDERS_A_TURN)):
            order = self._queued.popleft()
            topic = self._topic_of(order)
            if isinstance(topic, RefusedTopic):
                self._end(order, topic.reason)
            elif isinstance(topic, MissingTopic):
                if (failed := self._down.decided(topic.name, now)) is not None:
                    self._decided(order, failed)
                elif self._awaited.add(order, topic.name, now):
                    self._steps.append(CreateTopic(topic.name))
            else:
                order.target = topic
                if self._was_appended(order):
                    continue
                if topic.leader < 0:
                    reason = f"Partition {topic.topic}-{topic.partition} has no leader."
                    failed = FailedTry(topic.led_partition, reason, now, now, rest_factor(self._chance))
                    self._try_later(order, failed)
                elif (failed := self._down.decided(topic.led_partition, now)) is not None:
                    self._decided(order, failed)
                elif self._copies_of(order) and order.copies is None:
                    order.stage = OrderStage.UNREAD
                    self._copies.add(order)
                else:
                    self._ready.add(order)

    def _go_on_after_creations(self) -> None:
        for wait, orders in self._awaited.turn(MOST_ORDERS_A_TURN):
            error = wait.error
            reason = f"The dead letter topic {wait.name} could not be created: {error.name}."
            failed = FailedTry(wait.name, reason, wait.began, wait.ended, rest_factor(self._chance))
            for order in orders:
                if error is ErrorCode.NONE:
                    self._queue(order)
                elif error.retriable or error is ErrorCode.TOPIC_ALREADY_EXISTS:
                    self._try_later(order, failed)
                else:
                    self._end(order, reason)

    def _look_again(self) -> None:
        """Queue orders that rest, or wait for their read, if their partition has another leader now."""
        orders = list(islice(self._unlooked, MOST_ORDERS_A_TURN))
        for order in orders:
            del self._unlooked[order]
        for order in _moved(orders, self._topic_of):
            if order.stage is OrderStage.UNREAD:
                self._copies.withdraw(order)
            elif order.stage is OrderStage.RESTING:
                self._resting.withdraw(order)
            else:
                continue
            self._queue(order)

    def _take_back(self, now: float) -> None:
        """Let the next leaders have letters for which another leader has given no answer."""
        for request, target, orders in self._sent.take(now):
            reason = f"Broker {target.leader} did not answer before the partition had another leader."
            failed = self._failed_request(request, orders[0], reason, now)
            for order in orders:
                self._failed(order, failed)

    def _read(self, order: LetterOrder) -> None:
        assert order.target is not None
        order.stage = OrderStage.READING
        last = min(order.letters.last_offset, order.next_offset + MOST_LETTERS_A_TURN - 1)
        self._steps.append(ReadSource(order, last, order.target.most_bytes))

    def _send(self, node_id: int, most_letters: int, now: float, now_ms: int) -> int:
        """Make the request for a broker. Return how many letters it has."""
        made = self._ready.request(node_id, most_letters)
        for orders in made.orders.values():
            for order, _ in orders:
                self._counts.sent(order.letters.group_id)
        sealed = {target: batch.seal(now_ms) for target, batch in made.batches.items()}
        request = SendLetters(node_id, sealed, made.orders, now)
        self._sent.add(request)
        self._steps.append(request)
        return made.letters

    def _written(self, order: LetterOrder, after: int) -> None:
        self._counts.written(order.letters.group_id, after - order.next_offset)
        order.next_offset = after
        order.tries = Tries()
        if after > order.letters.last_offset:
            self._end(order)
            return
        if after > order.copies_through:
            self._drop_copies(order)
        self._queue(order)

    def _confirm(self, order: LetterOrder, appended: AppendedLetters, failed: FailedTry) -> None:
        """Look at letters that a leader has appended after a rest. It is bounded how often that happens."""
        if order.tries.rest() is None:
            self._counts.failed(order.letters.group_id)
            self._end(order, f"{failed.reason} {_tried(order)}.")
            return
        if failed.is_moved:
            self._queue(order)
            return
        order.appended = appended
        self._drop_copies(order)
        self._rest(order, failed.ended + CONFIRM_SECONDS)

    def _was_appended(self, order: LetterOrder) -> bool:
        """Take an order on whose letters the leader had no final answer. If it still leads in the same epoch, they are
        in its log, and were written."""
        appended, order.appended = order.appended, None
        if appended is None or order.target is None or appended.place != order.target.led_partition:
            return False
        self._written(order, appended.after)
        return True

    def _smaller(self, orders: Sequence[tuple[LetterOrder, int]], size: int) -> bool:
        """Let the orders of a batch that is too large go on with smaller batches. A letter that was alone goes on
        without its copy. Return False if nothing can be smaller."""
        first, after = orders[0]
        is_alone = len(orders) == 1 and after == first.next_offset + 1
        if is_alone and (first.copies is None or first.copies.pop(first.next_offset, None) is None):
            return False
        for order, _ in orders:
            order.most_bytes = order.most_bytes if is_alone else size // 2
            self._queue(order)
        return True

    def _failed_request(
        self, request: SendLetters, order: LetterOrder, reason: str, now: float, *, is_answered: bool = False
    ) -> FailedTry:
        """Return the failed try of all orders of a request that have the partition of this order."""
        assert order.target is not None
        is_moved = next_leader(self._topic_of(order), order.target) >= 0
        place, factor = order.target.led_partition, rest_factor(self._chance)
        return FailedTry(place, reason, request.began, now, factor, is_answered, is_moved)

    def _failed(self, order: LetterOrder, failed: FailedTry) -> None:
        if self._try_later(order, failed):
            return
        self._counts.failed(order.letters.group_id)
        if self._down.decided(failed.place, failed.ended) is not None:
            # The try has decided these orders too.
            for other in self._ready.take(order.place):
                self._queue(other)

    def _try_later(self, order: LetterOrder, failed: FailedTry) -> bool:
        """Let an order rest, or go to the next leader at once. Return False if it is given up instead."""
        rest = order.tries.rest()
        # That the last leader is down does not matter for the next one.
        is_down = not failed.is_moved and self._down.is_down(failed.place, failed.began)
        if rest is None or is_down:
            self._down.failed(failed)
            self._end(order, f"{failed.reason} {_tried(order)}{_AT_A_DOWN_PLACE if is_down else ''}.")
            return False
        if failed.is_moved:
            self._queue(order)
            return True
        self._drop_copies(order)
        due = failed.ended + rest * failed.factor
        self._rest(order, ceil(due * _ENDS_A_SECOND) / _ENDS_A_SECOND)
        return True

    def _decided(self, order: LetterOrder, failed: FailedTry) -> None:
        """Give an order up without a try, because another has failed at its place a short time ago."""
        if order.tries.failures and order.target is not None:
            self._counts.failed(order.letters.group_id)
        self._end(order, f"{failed.reason} {_tried(order)}{_AT_A_DOWN_PLACE}.")

    def _rest(self, order: LetterOrder, due: float) -> None:
        order.stage = OrderStage.RESTING
        self._resting.set(order, due)

    def _waits(self, order: LetterOrder, source: Hashable, now: float) -> bool:
        """Let an order wait for its source log. Return False if it has waited long enough."""
        if order.patient_until is None:
            order.patient_until = now if self._down.is_down(source, now) else now + SOURCE_SECONDS
        if now < order.patient_until:
            # Few times, because of the heap.
            self._rest(order, (int(now * _LOOKS_A_SECOND) + 1) / _LOOKS_A_SECOND)
            return True
        self._down.failed(FailedTry(source, "The source log cannot be read yet.", now, now))
        return False

    def _drop_copies(self, order: LetterOrder) -> None:
        self._copies.release(order)
        order.copies, order.copies_through = None, -1

    def _end(self, order: LetterOrder, problem: str = "") -> None:
        """End an order. `problem` is the reason for which it is given up."""
        order.problem = problem
        self._drop_copies(order)
        order.stage = OrderStage.ENDED
        self._count -= 1
        self._ended.append(order)


def _moved(orders: Iterable[LetterOrder], topic_of: Callable[[LetterOrder], LetterTopic]) -> list[LetterOrder]:
    """Return the orders whose partition has another leader now, or another leader epoch."""
    # All orders of a place have the same answer, and there are few places.
    known: dict[LetterPartition, bool] = {}
    moved = []
    for order in orders:
        if order.target is None:
            continue
        if order.target not in known:
            now = topic_of(order)
            known[order.target] = not isinstance(now, LetterPartition) or (
                now.topic_id,
                now.leader,
                now.leader_epoch,
            ) != (order.target.topic_id, order.target.leader, order.target.leader_epoch)
        if known[order.target]:
            moved.append(order)
    return moved


def _tried(order: LetterOrder) -> str:
    failures = order.tries.failures
    return f"It was {'not tried' if not failures else 'tried once' if failures == 1 else f'tried {failures} times'}"


def _refusal(target: LetterPartition, error: ErrorCode) -> str:
    return f"Broker {target.leader} answers {error.name} for partition {target.topic}-{target.partition}."
