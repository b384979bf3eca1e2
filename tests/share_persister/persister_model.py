"""A cluster of share coordinators around the persister's machine, and the rules that the machine must keep.

Operations, answers, failures, changes of leaders and time come in random order. After each step the model takes
everything that the machine wants to send or to answer, and raises `Violation` if a rule is broken.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.retries.tries import MOST_FAILURES, QUICK_RESTS
from pykbroker.share_persister import persister_machine
from pykbroker.share_persister.persister_machine import (
    DEADLINE_GRAIN,
    CoordinatorLookup,
    LookupAnswer,
    PersisterMachine,
    RequestFailure,
    StateRequest,
)
from pykbroker.share_persister.state_operations import (
    ShareCoordinatorNode,
    ShareStateAnswer,
    Stage,
    StateCall,
    StateOperation,
)
from pykbroker_wire.errors import ErrorCode

NODES = (1, 2, 3)
KEYS = [
    SharePartitionKey(group, bytes([topic]) * 16, index) for group in ("g", "h") for topic in (1, 2) for index in (0, 1)
]
#: Passing errors come often, so that operations reach their last try.
PASSING = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]
FINAL = [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST]
#: A caller never gets these, because it can do nothing with them.
INNER = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION}
FAILURES = [RequestFailure.LOST, RequestFailure.TIMED_OUT, RequestFailure.NOT_SERVED]
#: Small limits, so that runs meet them.
LIMITS = {
    "MOST_OPERATIONS": 12,
    "MOST_SUMMARIES": 6,
    "MOST_PARTITIONS": 2,
    "MOST_PARTITIONS_OF_READ": 1,
    "MOST_LOOKUP_KEYS": 2,
}
#: Hypothesis' own source of chance is much slower.
PICKS = st.integers(0, 9_999).map(random.Random)
TRIES = len(QUICK_RESTS) + MOST_FAILURES
LONGEST_REST = 16 * 1.2


class Violation(AssertionError):
    """A rule that the machine has broken."""


def must(holds: bool, rule: str, *about: object) -> None:
    if not holds:
        raise Violation(rule, *about)


def place_of(operation: StateOperation) -> tuple[SharePartitionKey, bool]:
    """Operations of one place go one after another. Summaries of a key do not delay its other operations."""
    return operation.key, operation.call is StateCall.SUMMARIZE


class PersisterModel(RuleBasedStateMachine):
    """`make` is replaced by tests that plant a bug."""

    make: ClassVar[type[PersisterMachine]] = PersisterMachine

    @initialize(known=st.booleans())
    def begin(self, known: bool) -> None:
        self.now = 100.0
        self.epoch = 1
        self.changes = 0
        self.brokers = list(NODES)
        #: by partition of the keys, as in a topic of two partitions
        self.leaders: dict[int, ShareCoordinatorNode | None] = {
            each: ShareCoordinatorNode(1 + each, 1) if known else None for each in (0, 1)
        }
        self.machine = self.make(self.coordinator_of, lambda: list(self.brokers), random.Random(1))
        #: operations without an answer that are not given up, in order, by their key and by whether they are summaries;
        #: those given up while under way too
        self.live: dict[tuple[SharePartitionKey, bool], list[StateOperation]] = {
            (key, is_summary): [] for key in KEYS for is_summary in (False, True)
        }
        self.given_up: set[StateOperation] = set()
        self.answered: dict[StateOperation, ShareStateAnswer] = {}
        self.under_way: list[StateRequest | CoordinatorLookup] = []
        self.tries: Counter[StateOperation] = Counter()
        self.lookups: Counter[StateOperation] = Counter()
        #: answers that the machine has to give after the next step
        self.owed: dict[StateOperation, ShareStateAnswer] = {}
        #: the latest write that each coordinator has carried out, by key
        self.written: dict[SharePartitionKey, int] = {}
        self.serial = 0
        self.is_closed = False
        #: True after a violation
        self.is_broken = False

    def coordinator_of(self, key: SharePartitionKey) -> ShareCoordinatorNode | None:
        return self.leaders[key.partition]

    # -- what happens -------------------------------------------------------------------------------------------------

    @rule(
        call=st.sampled_from(StateCall),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        patience=st.sampled_from([None, None, 0.3, 3.0]),
    )
    def submit(self, call: StateCall, keys: list[SharePartitionKey], patience: float | None) -> None:
        for key in keys:
            self.serial += 1
            deadline = None if patience is None else self.now + patience
            operation = StateOperation(call, key, start_offset=self.serial, deadline=deadline)
            is_summary = call is StateCall.SUMMARIZE
            if self._count(is_summary) >= LIMITS["MOST_SUMMARIES" if is_summary else "MOST_OPERATIONS"]:
                self.owed[operation] = ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.live[place_of(operation)].append(operation)
            self.machine.submit(operation)
            self.take()

    @rule(pick=PICKS)
    def give_up(self, pick: random.Random) -> None:
        waiting = [each for of_place in self.live.values() for each in of_place if each not in self.given_up]
        if waiting:
            operation = pick.choice(waiting)
            self._forget(operation)
            self.machine.give_up(operation)
            self.take()

    @rule(pick=PICKS, passing=st.integers(0, 3), leaves_out=st.integers(0, 9))
    def answer_request(self, pick: random.Random, passing: int, leaves_out: int) -> None:
        """`passing`: how many of four operations get an error that passes."""
        request = self._end(pick, StateRequest)
        if request is None:
            return
        assert isinstance(request, StateRequest)
        answers = {}
        for operation in request.operations:
            error = pick.choice(PASSING if pick.randrange(4) < passing else FINAL)
            answer = ShareStateAnswer(error, f"about {operation.start_offset}")
            if error is ErrorCode.NONE:
                self._carry_out(operation)
            if leaves_out == 0 and pick.random() < 0.5:
                answer = ShareStateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                answers[operation.key.topic_id, operation.key.partition] = answer
            if answer.error not in PASSING:
                self._owe(operation, answer)
        self.machine.answered(request, answers, self.now)
        self._settle(request)

    @rule(pick=PICKS, failure=st.sampled_from(FAILURES), carried_out=st.booleans())
    def fail_request(self, pick: random.Random, failure: RequestFailure, carried_out: bool) -> None:
        request = self._end(pick, StateRequest)
        if request is not None:
            for operation in request.operations:
                if carried_out:
                    self._carry_out(operation)
            self.machine.failed(request, failure, self.now)
            self._settle(request)

    @rule(
        pick=PICKS,
        outcome=st.sampled_from([*FAILURES, ErrorCode.NONE, ErrorCode.NONE, *PASSING, ErrorCode.INVALID_REQUEST]),
    )
    def answer_lookup(self, pick: random.Random, outcome: RequestFailure | ErrorCode) -> None:
        lookup = self._end(pick, CoordinatorLookup)
        if lookup is None:
            return
        assert isinstance(lookup, CoordinatorLookup)
        if isinstance(outcome, RequestFailure):
            self.machine.failed(lookup, outcome, self.now)
        else:
            node_id = pick.choice(NODES) if outcome is ErrorCode.NONE else -1
            answer = LookupAnswer(outcome, node_id)
            for operation in lookup.operations:
                if outcome is ErrorCode.NONE and operation.stage is Stage.ASKED:
                    self.lookups[operation] = 0
            self.machine.found(lookup, {str(each.key): answer for each in lookup.operations}, self.now)
        self.take()

    @rule(partition=st.integers(0, 1), node_id=st.sampled_from([None, *NODES]))
    def elect(self, partition: int, node_id: int | None) -> None:
        self.epoch += 1
        self.changes += 1
        self.leaders[partition] = None if node_id is None else ShareCoordinatorNode(node_id, self.epoch)
        self.machine.leaders_changed()
        self.take()

    @rule(brokers=st.sets(st.sampled_from(NODES)))
    def change_brokers(self, brokers: set[int]) -> None:
        self.brokers = sorted(brokers)
        self.take()

    @rule(seconds=st.sampled_from([0.02, 0.1, 1.0, 5.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        """Let the driver wake the machine when it asks for it, and at the end."""
        until = self.now + seconds
        while (due := self.machine.next_wake()) is not None and due <= until:
            self.now = max(self.now, due)
            self._wake()
        self.now = until
        self._wake()

    @rule(
        rounds=st.integers(2, 16),
        outcome=st.sampled_from([*FAILURES, *PASSING]),
        pick=PICKS,
    )
    def outage(self, rounds: int, outcome: RequestFailure | ErrorCode, pick: random.Random) -> None:
        """Let every request fail for some time, as long as the machine may try."""
        for _ in range(rounds):
            for request in [each for each in self.under_way if isinstance(each, StateRequest)]:
                self.under_way.remove(request)
                if isinstance(outcome, RequestFailure):
                    self.machine.failed(request, outcome, self.now)
                else:
                    refused = ShareStateAnswer(outcome)
                    answers = {(each.key.topic_id, each.key.partition): refused for each in request.operations}
                    self.machine.answered(request, answers, self.now)
                self._settle(request)
            self.answer_lookup(pick, ErrorCode.NONE)
            self.pass_time(5.0)

    # -- what the machine wants ---------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return self._count(False) + self._count(True)

    def _count(self, is_summary: bool) -> int:
        return sum(len(of_place) for place, of_place in self.live.items() if place[1] is is_summary)

    def take(self) -> None:
        """Take everything from the machine, and check it."""
        self.is_broken = True
        self._take()
        self.is_broken = False

    def _take(self) -> None:
        while True:
            sends = self.machine.take_sends(self.now)
            answers = self.machine.take_answers()
            for operation, answer in answers:
                self._check_answer(operation, answer)
            for sent in sends:
                if isinstance(sent, StateRequest):
                    self._check_request(sent)
                else:
                    self._check_lookup(sent)
                self.under_way.append(sent)
            if not sends and not answers:
                break
        must(not self.owed, "an answer is missing", self.owed)
        self._check_rest()

    def _check_request(self, request: StateRequest) -> None:
        operations = request.operations
        line = (request.node_id, request.call, request.group_id)
        must(bool(operations), "a request is empty")
        most = LIMITS["MOST_PARTITIONS_OF_READ" if request.call is StateCall.READ else "MOST_PARTITIONS"]
        must(len(operations) <= most, "a request is too large", operations)
        must(len({each.key for each in operations}) == len(operations), "a request names a key twice", operations)
        for other in self.under_way:
            if isinstance(other, StateRequest):
                must(
                    (other.node_id, other.call, other.group_id) != line,
                    "two requests of a kind and a group are under way to a node",
                    other,
                )
        for operation in operations:
            must((operation.call, operation.key.group_id) == line[1:], "a request has a stranger", operation)
            must(operation not in self.given_up, "an operation that was given up is sent", operation)
            must(operation not in self.answered, "an operation that was answered is sent", operation)
            first = self.live[place_of(operation)][:1]
            must(first == [operation], "an operation overtakes another one on its key", first, operation)
            self.tries[operation] += 1
            # The quick rests begin anew with each leader.
            most = TRIES + len(QUICK_RESTS) * self.changes
            must(self.tries[operation] <= most, "an operation is tried without end", operation)

    def _check_lookup(self, lookup: CoordinatorLookup) -> None:
        busy = [each.node_id for each in self.under_way if isinstance(each, CoordinatorLookup)]
        must(lookup.node_id in self.brokers, "a broker is asked that is gone", lookup)
        must(lookup.node_id not in busy, "two lookups are under way to a node", lookup)
        must(0 < len(lookup.operations) <= LIMITS["MOST_LOOKUP_KEYS"], "a lookup has the wrong size", lookup)
        for operation in lookup.operations:
            must(
                self.live[place_of(operation)][:1] == [operation], "a lookup is not for the first of its key", operation
            )
            self.lookups[operation] += 1
            must(self.lookups[operation] <= TRIES + self.changes, "a coordinator is looked up without end", operation)

    def _check_answer(self, operation: StateOperation, answer: ShareStateAnswer) -> None:
        must(operation not in self.given_up, "an operation that was given up is answered", operation)
        must(operation not in self.answered, "an operation is answered twice", operation)
        must(answer.error not in INNER, "a caller gets an error that is none of its business", answer)
        owed = self.owed.pop(operation, None)
        if owed is not None:
            must(answer.error is owed.error, "the answer is not that of the coordinator", answer, owed)
        elif answer.error is ErrorCode.REQUEST_TIMED_OUT:
            must(operation.deadline is not None and self.now >= operation.deadline, "it was too early", operation)
        elif not self.is_closed:
            expected = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            must(answer.error in expected, "no coordinator gave this answer", answer)
            most = max(self.tries[operation], operation.lookups.failures)
            must(most >= MOST_FAILURES, "it was given up too early", operation)
        self.answered[operation] = answer
        self._forget(operation, given_up=False)

    def _check_rest(self) -> None:
        """Check what must hold between two steps."""
        must(self.machine.count == self.count, "operations are counted wrongly", self.machine.count, self.count)
        due = self.machine.next_wake()
        if due is not None:
            must(due <= self.now + LONGEST_REST, "a rest is too long", due - self.now)
        sent = {each for send in self.under_way for each in send.operations if each.stage in (Stage.SENT, Stage.ASKED)}
        busy = {(each.node_id, each.call, each.group_id) for each in self.under_way if isinstance(each, StateRequest)}
        asked = {each.node_id for each in self.under_way if isinstance(each, CoordinatorLookup)}
        for of_place in self.live.values():
            for at, operation in enumerate(of_place):
                if operation.deadline is not None and operation not in self.given_up:
                    must(self.now < operation.deadline + DEADLINE_GRAIN + 1e-9, "a deadline was missed", operation)
                if at > 0:
                    continue
                match operation.stage:
                    case Stage.SENT | Stage.ASKED:
                        must(operation in sent, "an operation waits for an answer that cannot come", operation)
                    case Stage.QUEUED:
                        assert operation.coordinator is not None
                        line = (operation.coordinator.node_id, operation.call, operation.key.group_id)
                        must(line in busy, "an operation waits for nothing in its line", operation)
                    case Stage.SOUGHT:
                        must(asked >= set(self.brokers), "an operation waits for a lookup without reason", operation)
                    case Stage.RESTING:
                        must(due is not None, "an operation rests for ever", operation)
                    case _:
                        raise Violation("the first operation of a key does not go", operation)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _end(
        self, pick: random.Random, kind: type[StateRequest] | type[CoordinatorLookup]
    ) -> StateRequest | CoordinatorLookup | None:
        """Return one that is under way no longer, None if there is none."""
        found = [each for each in self.under_way if isinstance(each, kind)]
        if not found:
            return None
        ended = pick.choice(found)
        self.under_way.remove(ended)
        return ended

    def _settle(self, request: StateRequest | CoordinatorLookup) -> None:
        """Forget operations of an ended request whose callers have given up."""
        for operation in request.operations:
            if operation in self.given_up and operation in self.live[place_of(operation)]:
                self.live[place_of(operation)].remove(operation)
        self.take()

    def _forget(self, operation: StateOperation, *, given_up: bool = True) -> None:
        if given_up:
            self.given_up.add(operation)
        if operation.stage is Stage.SENT and any(operation in each.operations for each in self.under_way):
            # Its key waits until the request has ended.
            self.given_up.add(operation)
        else:
            self.live[place_of(operation)].remove(operation)

    def _owe(self, operation: StateOperation, answer: ShareStateAnswer) -> None:
        if operation not in self.given_up:
            self.owed[operation] = answer

    def _carry_out(self, operation: StateOperation) -> None:
        if operation.call is StateCall.WRITE:
            latest = self.written.get(operation.key, 0)
            must(operation.start_offset >= latest, "a write is carried out after a later one", operation, latest)
            self.written[operation.key] = operation.start_offset

    def _wake(self) -> None:
        self.machine.wake(self.now)
        self.take()

    def teardown(self) -> None:
        """Let all coordinators answer: every operation then gets its answer, and nothing stays."""
        if not hasattr(self, "machine") or self.is_broken:
            return
        self.brokers = list(NODES)
        pick = random.Random(2)
        for _ in range(10_000):
            if not self.count and not self.under_way:
                break
            self.answer_request(pick, 0, 1)
            self.answer_lookup(pick, ErrorCode.NONE)
            if not self.under_way:
                self.pass_time(30.0)
        must(not self.count, "operations are never answered", self.live)
        must(not left_in(self.machine), "something stays in the machine", left_in(self.machine))
        self.is_closed = True
        self.machine.close()


def left_in(machine: PersisterMachine) -> list[str]:
    """The names of the containers and counts that are not empty."""
    parts = {name: value for name, value in vars(machine).items() if not callable(value) and name != "_chance"}
    return [name for name, value in parts.items() if (len(value) if hasattr(value, "__len__") else value)]


def small_limits(patch: Callable[..., object]) -> None:
    for name, value in LIMITS.items():
        patch(persister_machine, name, value)
