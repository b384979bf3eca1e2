"""A cluster around the writer's machine, and the rules that the machine must keep.

Orders, answers, failures, changes of leaders, reads and time come in random order. After each step the model takes all
that the machine wants to do, and raises `Violation` if a rule is broken.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pykbroker.dead_letters import letter_orders, writer_machine
from pykbroker.dead_letters.letter_batches import KeyAndValue, LetterFrame
from pykbroker.dead_letters.letter_orders import CreateTopic, LetterOrder, ReadSource, SendLetters
from pykbroker.dead_letters.letter_topics import LetterPartition, LetterTopic, MissingTopic, RefusedTopic
from pykbroker.dead_letters.source_records import CopiedRecords
from pykbroker.dead_letters.writer_machine import WriterMachine
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import BatchHeader
from pykbroker_wire.records.record import iter_records

NODES = (1, 2)
GROUPS = ("copies", "plain")
PASSING = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
FINAL = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
#: Small limits, so that runs meet them.
LIMITS = {
    "MOST_ORDERS": 9,
    "MOST_READS": 2,
    "MOST_HELD_BYTES": 40,
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
        self.exists = self.refused = False
        self.machine = self.machines(self.topic_of, self.copies_of, self.counts, random.Random(0))
        self.alive: set[LetterOrder] = set()
        self.reads: list[ReadSource] = []
        self.creations: list[CreateTopic] = []
        self.requests: list[SendLetters] = []
        #: letters that a leader has acknowledged, by group, source partition and offset, with the value
        self.written: Counter[tuple[str, int, int]] = Counter()
        self.expected: Counter[str] = Counter()

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
        if picks.random() < 0.2:
            self.machine.source_read(read.order, None, read.last)
        else:
            through = picks.randrange(first - 1, read.last + 1)
            records: dict[int, KeyAndValue] = {at: (None, b"%d" % at * 4) for at in range(first, through + 1) if at % 3}
            self.machine.source_read(read.order, CopiedRecords(records, through), read.last)
        self.pump()

    @rule(picks=PICKS)
    def create(self, picks: random.Random) -> None:
        if not self.creations:
            return
        name = self.creations.pop().name
        error = picks.choice([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_CONFIG])
        self.exists = self.exists or error is ErrorCode.NONE
        self.machine.created(name, error, self.now)
        self.pump()

    @rule(picks=PICKS)
    def answer(self, picks: random.Random) -> None:
        if not self.requests:
            return
        request = self.requests.pop(picks.randrange(len(self.requests)))
        chance = picks.random()
        if chance < 0.2:
            if picks.random() < 0.5:
                self.append(request)
            self.machine.failed(request, "the connection was lost", self.now)
        else:
            error = ErrorCode.NONE if chance < 0.7 else picks.choice(PASSING if chance < 0.95 else FINAL)
            errors = {(at.topic_id, at.partition): error for at in request.batches}
            if error is ErrorCode.NONE:
                self.append(request)
            self.machine.answered(request, errors, self.now)
        self.pump()

    def append(self, request: SendLetters) -> None:
        for target, batch in request.batches.items():
            header = BatchHeader.parse(batch)
            for letter in iter_records(batch, 0, header):
                headers = {name: str(value or b"", "utf-8") for name, value in letter.headers}
                group, partition = headers["__dlq.errors.group"], int(headers["__dlq.errors.partition"])
                offset = int(headers["__dlq.errors.offset"])
                must(partition % 3 == target.partition, "letters go to their partition")
                copied = b"%d" % offset * 4
                must(letter.value is None or (group == "copies" and letter.value == copied), "the copy is the record's")
                self.written[group, partition, offset] += 1

    @rule(picks=PICKS)
    def move(self, picks: random.Random) -> None:
        index = picks.randrange(3)
        self.leaders[index] = picks.choice([*NODES, -1])
        self.epochs[index] += 1
        self.machine.topics_changed()
        self.pump()

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.machine.wake(self.now)
        due = self.machine.next_wake()
        must(due is None or due > self.now, "what is due has been done")
        self.pump()

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
        must(len(self.machine) == len(self.alive), "orders are counted")
        must(all(order.failures < letter_orders.MOST_FAILURES for order in self.alive), "tries are bounded")
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
                self.creations.append(step)
            else:
                must(step.node_id not in [each.node_id for each in self.requests], "one request is under way to a node")
                must(len(step.batches) <= LIMITS["MOST_PARTITIONS"], "partitions of a request are bounded")
                self.requests.append(step)
                for target, batch in step.batches.items():
                    header = BatchHeader.parse(batch)
                    letters += header.record_count
                    must(len(batch) <= LIMITS["MOST_BATCH_BYTES"] or header.record_count == 1, "batches are bounded")
                    must(header.max_timestamp == 7, "letters have the time of their batch")
                    must(self.leaders[target.partition] == step.node_id, "letters go to the present leader")
                    for order, after in step.orders[target]:
                        decided = order.copies_through if self.copies_of(order) else after
                        must(after <= decided + 1, "letters wait for their copies")
                        must(order.next_offset < after <= order.letters.last_offset + 1, "an order gets on")
        must(letters <= LIMITS["MOST_LETTERS_A_TURN"], "letters of a turn are bounded")

    def check_end(self, order: LetterOrder) -> None:
        must(order in self.alive, "an order ends once")
        self.alive.discard(order)
        letters = order.letters
        if not order.problem:
            for offset in range(letters.first_offset, letters.last_offset + 1):
                place = (letters.group_id, letters.partition, offset)
                must(self.written[place] > 0, "an order that is written has all its letters", place)
        else:
            must(
                order.failures >= letter_orders.MOST_FAILURES or "tried" not in order.problem,
                "an order is given up after all its tries",
            )

    def teardown(self) -> None:
        """Everything heals: each order that is left is written."""
        self.refused, self.exists = False, True
        self.leaders = dict.fromkeys(self.leaders, 1)
        for index in self.epochs:
            self.epochs[index] += 1
        self.machine.topics_changed()
        self.pump()
        for _ in range(2_000):
            if not self.alive:
                break
            if self.creations:
                self.machine.created(self.creations.pop().name, ErrorCode.NONE, self.now)
            elif self.reads:
                read = self.reads.pop()
                self.machine.source_read(read.order, None, read.last)
            elif self.requests:
                request = self.requests.pop()
                self.append(request)
                none = {(at.topic_id, at.partition): ErrorCode.NONE for at in request.batches}
                self.machine.answered(request, none, self.now)
            else:
                due = self.machine.next_wake()
                assert due is not None
                self.now = due
                self.machine.wake(self.now)
            self.pump()
        must(not self.alive, "every order ends")
        must(self.counts.letters.total() <= sum(self.written.values()), "only acknowledged letters are counted")


def small_limits() -> dict[tuple[object, str], int]:
    """The limits of the model, for monkeypatch."""
    return {(writer_machine, name): value for name, value in LIMITS.items()}
