"""A cluster around the writer's machine, and the rules that the machine must keep.

Orders, answers, failures, changes of leaders, reads and time come in random order. After each step the model takes all
that the machine wants to do, and raises `Violation` if a rule is broken.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pykbroker.dead_letters import copy_reads, ready_orders, writer_machine
from pykbroker.dead_letters.down_places import DOWN_SECONDS
from pykbroker.dead_letters.letter_batches import KeyAndValue, LetterFrame
from pykbroker.dead_letters.letter_orders import CreateTopic, LetterOrder, OrderStage, ReadSource, SendLetters
from pykbroker.dead_letters.letter_topics import LetterPartition, LetterTopic, MissingTopic, RefusedTopic
from pykbroker.dead_letters.sent_requests import ANSWER_SECONDS
from pykbroker.dead_letters.source_records import CopiedRecords, NotReadable
from pykbroker.dead_letters.writer_machine import SOURCE_SECONDS, WriterMachine
from pykbroker.retries import tries
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import BatchHeader
from pykbroker_wire.records.record import iter_records

NODES = (1, 2)
GROUPS = ("copies", "plain")
PASSING = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
APPENDED = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT]
TOO_LARGE = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE]
#: The most bytes of a batch that a leader takes. Each letter fits without its copy, and some do not with it.
LEADER_LIMIT = 500
#: Small limits, so that runs meet them.
LIMITS = {
    "MOST_FAILURES": 3,
    "MOST_ORDERS": 9,
    "MOST_READS": 1,
    "MOST_HELD_BYTES": 400,
    "MOST_HELD_BYTES_OF_A_BROKER": 200,
    "MOST_ORDERS_A_TURN": 3,
    "MOST_LETTERS_A_TURN": 5,
    "MOST_BATCH_BYTES": 900,
    "MOST_REQUEST_BYTES": 1_500,
    "MOST_PARTITIONS": 2,
}
#: Hypothesis' own source of chance is much slower.
PICKS = st.integers(0, 9_999).map(random.Random)


class Violation(AssertionError):
    """A rule that the machine has broken."""


def must(holds: bool, rule: str, *about: object) -> None:
    if not holds:
        raise Violation(rule, *about)


def value_of(offset: int) -> bytes:
    """Return the value of a record. One in two is large."""
    return b"%d" % offset * (4 if offset % 2 else 400)


class Counts:
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.letters: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def sent(self, group_id: str) -> None:
        self.requests[group_id] += 1

    def written(self, group_id: str, letters: int) -> None:
        self.letters[group_id] += letters

    def failed(self, group_id: str) -> None:
        self.failures[group_id] += 1


class LetterModel(RuleBasedStateMachine):
    machines: ClassVar[type[WriterMachine]] = WriterMachine

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.counts = Counts()
        self.leaders = {0: 1, 1: 2, 2: 1}
        self.epochs = dict.fromkeys(self.leaders, 0)
        #: since when a partition has the leader that it has; never, if the topic was refused when the leader came
        self.led_since = dict.fromkeys(self.leaders, 0.0)
        self.exists = self.refused = self.short = False
        self.machine = self.machines(self.topic_of, self.copies_of, self.counts, random.Random(0))
        self.alive: set[LetterOrder] = set()
        self.reads: list[ReadSource] = []
        #: since when an order has found nothing in the source log
        self.waits: dict[LetterOrder, float] = {}
        self.creations: list[CreateTopic] = []
        self.requests: list[SendLetters] = []
        #: letters that a leader has acknowledged, by group, source partition and offset, with the value
        self.written: Counter[tuple[str, int, int]] = Counter()
        #: letters that a leader has appended without a final answer: the order, its place, and the letters
        self.unsure: list[tuple[LetterOrder, Hashable, list[tuple[str, int, int]]]] = []
        #: when the time of a place that is down ends
        self.down: dict[Hashable, float] = {}
        #: until when the last failed try at such a place decides all orders
        self.decided: dict[Hashable, float] = {}
        #: when the try that ends now began
        self.began = 0.0
        self.created_at = 0.0

    # -- the cluster --------------------------------------------------------------------------------------------------

    def topic_of(self, order: LetterOrder) -> LetterTopic:
        if self.refused:
            return RefusedTopic("refused")
        if not self.exists:
            return MissingTopic("dlq")
        index = order.letters.partition % 3
        return LetterPartition("dlq", b"d" * 16, index, self.leaders[index], self.epochs[index], 5_000)

    def copies_of(self, order: LetterOrder) -> bool:
        return order.letters.group_id == "copies"

    # -- events -------------------------------------------------------------------------------------------------------

    @rule(picks=PICKS)
    def order(self, picks: random.Random) -> None:
        self.submit(picks)

    def submit(self, picks: random.Random) -> None:
        """Give the machine a few orders."""
        for _ in range(picks.randrange(1, 5)):
            first = picks.randrange(1_000)
            last = first + picks.choice([0, 0, 3, 12])
            letters = DeadLetters(
                picks.choice(GROUPS), b"s" * 16, picks.randrange(5), first, last, 2, DeadLetterCause.REJECTED
            )
            frame = LetterFrame("s", letters.partition, letters.group_id, 2, letters.cause.value)
            order = LetterOrder(letters, frame)
            full = len(self.machine) >= LIMITS["MOST_ORDERS"]
            self.alive.add(order)
            self.machine.submit(order)
            must(full == bool(order.problem), "an order is refused only if too many wait")
        self.pump()

    @rule(picks=PICKS)
    def read(self, picks: random.Random) -> None:
        if not self.reads:
            return
        read = self.reads.pop(picks.randrange(len(self.reads)))
        first = read.order.next_offset
        if picks.random() < 0.4:
            unreadable = picks.choice([NotReadable.LOST, NotReadable.NOT_YET, NotReadable.NOT_YET])
            began = self.waits.get(read.order, self.now)
            if unreadable is NotReadable.NOT_YET:
                self.waits[read.order] = began
            self.machine.source_read(read.order, unreadable, read.last, self.now)
            waits = read.order.stage is OrderStage.RESTING
            must(not waits or unreadable is NotReadable.NOT_YET, "nothing waits for a record that is lost")
            must(not waits or self.now - began < SOURCE_SECONDS, "the wait for a record ends")
        else:
            through = picks.randrange(first - 1, read.last + 1)
            if through >= first:
                self.waits.pop(read.order, None)
            records: dict[int, KeyAndValue] = {at: (None, value_of(at)) for at in range(first, through + 1) if at % 3}
            self.machine.source_read(read.order, CopiedRecords(records, through), read.last, self.now)
        self.pump()

    @rule(picks=PICKS)
    def create(self, picks: random.Random) -> None:
        if not self.creations:
            return
        name = self.creations.pop().name
        self.began = self.created_at
        error = picks.choice([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_CONFIG])
        self.exists = self.exists or error is ErrorCode.NONE
        if error is ErrorCode.NONE:
            self.succeeded(name)
        self.machine.created(name, error, self.now)
        self.pump()

    @rule(picks=PICKS)
    def answer(self, picks: random.Random) -> None:
        if not self.requests:
            return
        request = self.requests.pop(picks.randrange(len(self.requests)))
        # The other letters have left the request for another leader, and are lost here.
        targets = [*request.orders]
        orders = [order for sent in request.orders.values() for order, _ in sent]
        self.began = request.began
        if picks.random() < 0.2:
            if picks.random() < 0.5:
                self.append(request, targets)
            doomed = [order for order in orders if self.is_down(order)]
            self.machine.failed(request, "the connection was lost", self.now)
        else:
            errors = {(at.topic_id, at.partition): self.verdict(request, at, picks) for at in request.batches}
            appended = [at for at in targets if errors[at.topic_id, at.partition] in (ErrorCode.NONE, *APPENDED)]
            self.append(request, appended)
            for at in appended:
                if errors[at.topic_id, at.partition] is ErrorCode.NONE:
                    self.succeeded(at.led_partition)
                else:
                    self.unsure += [
                        (order, at.led_partition, names(order, after)) for order, after in request.orders[at]
                    ]
            doomed = [
                order
                for at, sent in request.orders.items()
                for order, _ in sent
                if self.is_down(order) and errors[at.topic_id, at.partition] in PASSING
            ]
            self.machine.answered(request, errors, self.now)
        self.pump()
        must(self.alive.isdisjoint(doomed), "an order gets one try at a place that is down")
        self.check_rests(orders)

    @rule(picks=PICKS)
    def hang(self, picks: random.Random) -> None:
        """No broker answers for a while. Orders come in between."""
        for _ in range(picks.randrange(8)):
            self.submit(picks)
            self.now += 15.0
            # These wait for the end of the requests.
            self.submit(picks)
            if picks.random() < 0.3:
                self.move(picks)
            self.pass_time(ANSWER_SECONDS)
            self.now += 14.0
            for request in [*self.requests]:
                self.requests.remove(request)
                self.began = request.began
                orders = [order for sent in request.orders.values() for order, _ in sent]
                self.machine.failed(request, "no answer", self.now)
                self.pump()
                self.check_rests(orders)

    @rule(picks=PICKS)
    def refuse_slowly(self, picks: random.Random) -> None:
        """All leaders refuse all letters for a while, and each answer takes long. Orders come in between."""
        for _ in range(picks.randrange(6)):
            self.submit(picks)
            self.now += 20.0
            for request in [*self.requests]:
                self.requests.remove(request)
                self.began = request.began
                refused = {(at.topic_id, at.partition): ErrorCode.NOT_ENOUGH_REPLICAS for at in request.batches}
                self.machine.answered(request, refused, self.now)
                self.pump()

    def verdict(self, request: SendLetters, target: LetterPartition, picks: random.Random) -> ErrorCode:
        """Return the leader's answer for a batch."""
        if len(request.batches[target]) > LEADER_LIMIT:
            return picks.choice(TOO_LARGE)
        if self.short:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        chance = picks.random()
        if chance < 0.6:
            return ErrorCode.NONE
        if chance < 0.97:
            return picks.choice(PASSING if chance < 0.85 else APPENDED)
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def is_down(self, order: LetterOrder) -> bool:
        """Return True if the place to which an order was sent was down when the try began, or has become so, and is the
        newest place of the partition."""
        assert order.target is not None
        if order.target.leader_epoch != self.epochs[order.target.partition]:
            return False
        return self.down.get(order.target.led_partition, self.began) > self.began

    def succeeded(self, place: Hashable) -> None:
        self.down.pop(place, None)
        self.decided.pop(place, None)

    def append(self, request: SendLetters, targets: list[LetterPartition]) -> None:
        for target in targets:
            batch = request.batches[target]
            header = BatchHeader.parse(batch)
            for letter in iter_records(batch, 0, header):
                headers = {name: str(value or b"", "utf-8") for name, value in letter.headers}
                group, partition = headers["__dlq.errors.group"], int(headers["__dlq.errors.partition"])
                offset = int(headers["__dlq.errors.offset"])
                must(partition % 3 == target.partition, "letters go to their partition")
                if letter.value is not None:
                    is_copy = group == "copies" and bytes(letter.value) == value_of(offset)
                    must(is_copy, "the copy is the record's")
                self.written[group, partition, offset] += 1

    @rule(picks=PICKS)
    def move(self, picks: random.Random) -> None:
        index = picks.randrange(3)
        self.leaders[index] = picks.choice([*NODES, -1])
        self.epochs[index] += 1
        self.led_since[index] = math.inf if self.refused else self.now
        self.truncate(index)
        self.machine.topics_changed(self.now)
        self.pump()
        for order in self.alive:
            if order.stage is OrderStage.RESTING and order.target is not None:
                epoch = self.epochs[order.target.partition]
                must(order.target.leader_epoch == epoch, "no rest goes on when there is another leader")

    def check_rests(self, orders: list[LetterOrder]) -> None:
        """Check orders whose request has ended."""
        for order in orders:
            if order.stage is OrderStage.RESTING and order.target is not None and not self.refused:
                index = order.target.partition
                is_last = order.target.leader_epoch == self.epochs[index]
                must(is_last or self.leaders[index] == -1, "no rest begins when there is another leader")

    def truncate(self, index: int) -> None:
        """Lose letters that were not on enough replicas, unless the machine has counted them as written."""
        unsure, self.unsure = self.unsure, []
        for order, place, letters in unsure:
            if order.appended is None or order.appended.place != place:
                continue
            if place == (b"d" * 16, index, self.epochs[index] - 1):
                self.written.subtract(letters)
            else:
                self.unsure.append((order, place, letters))

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.began = self.now
        self.pump()

    @rule(picks=PICKS)
    def lose_replicas(self, picks: random.Random) -> None:
        """Leaders have too few replicas, or have enough again."""
        self.short = picks.random() < 0.25

    @rule()
    def refuse(self) -> None:
        self.refused = not self.refused

    # -- rules --------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        turns = 0
        while True:
            steps = self.machine.take_steps(self.now, 7)
            self.check_turn(steps)
            for order in self.machine.take_ended():
                self.check_end(order)
            turns += 1
            must(turns < 1_000, "the work of an event ends")
            if not self.machine.has_more:
                break
        due = self.machine.next_wake()
        must(due is None or due > self.now, "what is due has been done")
        for order in self.alive:
            if order.stage is OrderStage.SENT and order.target is not None and not self.refused:
                index = order.target.partition
                waits = self.leaders[index] not in (-1, order.target.leader)
                must(
                    not waits or self.now - self.led_since[index] < ANSWER_SECONDS,
                    "letters do not wait long for a leader that has lost its place",
                )
        must(len(self.machine) == len(self.alive), "orders are counted")
        must(all(order.tries.failures < tries.MOST_FAILURES for order in self.alive), "tries are bounded")
        must(len(self.reads) <= LIMITS["MOST_READS"], "reads are bounded")
        if not self.reads and not self.requests and not self.creations and self.alive:
            must(self.machine.next_wake() is not None, "something is awaited while orders wait")

    def check_turn(self, steps: list[ReadSource | CreateTopic | SendLetters]) -> None:
        letters = 0
        for step in steps:
            if isinstance(step, ReadSource):
                self.reads.append(step)
                must(self.copies_of(step.order), "only copies need the source")
            elif isinstance(step, CreateTopic):
                must(step not in self.creations, "a topic is created once at a time")
                must(
                    self.decided.get(step.name, self.now) <= self.now,
                    "a creation that took long is not tried again soon",
                )
                self.creations.append(step)
                self.created_at = self.now
            else:
                must(step.node_id not in [each.node_id for each in self.requests], "one request is under way to a node")
                must(len(step.batches) <= LIMITS["MOST_PARTITIONS"], "partitions of a request are bounded")
                must(step.began == self.now, "a request has the time at which it was made")
                self.requests.append(step)
                for target, batch in step.batches.items():
                    header = BatchHeader.parse(batch)
                    letters += header.record_count
                    must(len(batch) <= LIMITS["MOST_BATCH_BYTES"] or header.record_count == 1, "batches are bounded")
                    must(
                        len(batch) <= LIMITS["MOST_BATCH_BYTES"] or len(step.batches) == 1,
                        "a very large batch is alone in its request",
                    )
                    must(header.max_timestamp == 7, "letters have the time of their batch")
                    must(self.leaders[target.partition] == step.node_id, "letters go to the present leader")
                    decided = self.decided.get(target.led_partition, self.now)
                    must(decided <= self.now, "a try that took long is not repeated soon")
                    for order, after in step.orders[target]:
                        known = order.copies_through if self.copies_of(order) else after
                        must(after <= known + 1, "letters wait for their copies")
                        must(order.next_offset < after <= order.letters.last_offset + 1, "an order gets on")
        must(letters <= LIMITS["MOST_LETTERS_A_TURN"], "letters of a turn are bounded")

    def check_end(self, order: LetterOrder) -> None:
        must(order in self.alive, "an order ends once")
        self.alive.discard(order)
        letters = order.letters
        if not order.problem:
            for name in names(order, letters.last_offset + 1, letters.first_offset):
                must(self.written[name] > 0, "an order that is written has all its letters", name)
        else:
            must("TOO_LARGE" not in order.problem, "a letter that is too large goes without its copy")
            if "tried" in order.problem:
                place: Hashable = "dlq"
                if "could not be created" not in order.problem:
                    assert order.target is not None
                    place = order.target.led_partition
                if self.decided.get(place, self.now) > self.now:
                    return
                must("not tried" not in order.problem, "an order gets a try unless another decides it")
                is_down = self.down.get(place, self.began) > self.began
                must(order.tries.failures >= tries.MOST_FAILURES or is_down, "an order is given up after all its tries")
                if not any(error.name in order.problem for error in APPENDED):
                    # A look at a partition without a leader takes no time, and a leader that answers does not hang.
                    decides = "no leader" not in order.problem and " answers " not in order.problem
                    began = self.began if decides else self.now
                    self.down[place] = self.now + DOWN_SECONDS
                    self.decided[place] = self.now + (self.now - began) / 2

    def teardown(self) -> None:
        """Everything heals: each order that is left is written."""
        self.refused, self.exists = False, True
        self.leaders = dict.fromkeys(self.leaders, 1)
        for index in self.epochs:
            self.epochs[index] += 1
            self.led_since[index] = self.now
            self.truncate(index)
        self.machine.topics_changed(self.now)
        self.pump()
        for _ in range(2_000):
            if not self.alive:
                break
            if self.creations:
                self.machine.created(self.creations.pop().name, ErrorCode.NONE, self.now)
            elif self.reads:
                read = self.reads.pop()
                self.machine.source_read(read.order, NotReadable.LOST, read.last, self.now)
            elif self.requests:
                request = self.requests.pop()
                self.append(request, [*request.batches])
                none = {(at.topic_id, at.partition): ErrorCode.NONE for at in request.batches}
                self.machine.answered(request, none, self.now)
            else:
                due = self.machine.next_wake()
                assert due is not None
                self.now = due
            self.pump()
        must(not self.alive, "every order ends")
        must(self.counts.letters.total() <= sum(self.written.values()), "only acknowledged letters are counted")


def names(order: LetterOrder, after: int, first: int | None = None) -> list[tuple[str, int, int]]:
    """Return the letters of an order from its next offset, or from `first`, to the one before `after`."""
    letters = order.letters
    begin = order.next_offset if first is None else first
    return [(letters.group_id, letters.partition, offset) for offset in range(begin, after)]


def small_limits() -> dict[tuple[object, str], int]:
    """The limits of the model, for monkeypatch."""
    modules = (copy_reads, ready_orders, tries, writer_machine)
    found: dict[tuple[object, str], int] = {
        (module, name): value for name, value in LIMITS.items() for module in modules if hasattr(module, name)
    }
    assert len(found) == len(LIMITS), "each limit is in one module"
    return found
