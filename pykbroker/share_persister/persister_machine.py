"""Decides which operations on share states are sent to which node and when. Pure: operations, answers, failures and
times go in; lookups, requests and answers come out.

Responsible for the order of operations, for the coordinator of each, for batches, repetitions, deadlines and limits.
Not responsible for connections and timers (persister.py), nor for the bytes of requests (state_requests.py). The
behaviour is that of Apache Kafka's PersisterStateManager, with the differences that follow the invariants.

Invariants
* Each operation gets one answer, or none if its caller has given it up.
* Operations on one key go one at a time, in the order in which they came. So no write overtakes another, and a request
  names each key once, as Apache Kafka's coordinator needs it. Summaries of a key have an order of their own, because
  any client may ask for many of them, and a leader's write must not wait for them.
* One request of a kind and a group is under way to a node. All operations that come in the meantime wait for the next
  one, up to the limits of a request.
* One lookup is under way to a node.
* The operations here are at most `MOST_OPERATIONS` without summaries, and take at most `MOST_BYTES` in requests.
* Summaries are at most `MOST_SUMMARIES`. They are counted apart, so that clients that describe many groups can fill
  neither the place of leaders nor that of initializations.

An operation is tried again after a rest (`Tries`) if its error passes with time, or if its request got no answer. After
the last try its answer is COORDINATOR_NOT_AVAILABLE, into which Apache Kafka's callers translate most of these errors.
UNKNOWN_TOPIC_OR_PARTITION stays itself. Any other error is the answer at once. A node that does not serve the request
may be one of an earlier release, so it counts as a coordinator that is not available.

Differences from Apache Kafka
* It tries again sooner after the first failures (`QUICK_RESTS`), and at once when the metadata has another leader.
* There, a write that is tried again may be overtaken by a later write of its key.
* Lookups of many keys share a request.

A request that got no answer may have been carried out, and is repeated as in Apache Kafka. Each operation sets a state,
so that carrying it out twice is the same as once.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.retries.due_times import DueTimes
from pykbroker.retries.tries import rest_factor
from pykbroker.share_persister.state_operations import (
    ShareCoordinatorNode,
    ShareStateAnswer,
    Stage,
    StateCall,
    StateOperation,
)
from pykbroker_wire.errors import ErrorCode

logger = logging.getLogger(__name__)

MOST_OPERATIONS: Final = 20_000
MOST_SUMMARIES: Final = 20_000
MOST_BYTES: Final = 64 * 1024 * 1024
#: Limits of one request; a single operation may be larger. The answer to a read has all batches of its partitions. They
#: are at most 10,000 each (group.share.max.partition.max.record.locks), and a decoder allows 1,000,000.
MOST_REQUEST_BYTES: Final = 1024 * 1024
MOST_PARTITIONS: Final = 1_000
MOST_PARTITIONS_OF_READ: Final = 50
MOST_LOOKUP_KEYS: Final = 100
#: Deadlines are rounded up to this many seconds.
DEADLINE_GRAIN: Final = 0.05

#: Errors that pass with time, or with the metadata.
_PASSES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
#: The same of a lookup. A broker of an earlier release does not know keys of share partitions.
_LOOKUP_PASSES: Final = _PASSES | {ErrorCode.INVALID_REQUEST}
_NO_ENTRY: Final = ShareStateAnswer(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the answer of the share coordinator does not name this share partition"
)
_TOO_MANY: Final = ShareStateAnswer(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many operations of this broker wait for share coordinators"
)
_NO_GROUP: Final = ShareStateAnswer(ErrorCode.INVALID_REQUEST, "the group id is empty")
_CLOSED: Final = ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker stops")
_LATE: Final = ShareStateAnswer(ErrorCode.REQUEST_TIMED_OUT, "the share coordinator has not answered in time")


class RequestFailure(Enum):
    """The reason why a request or a lookup has no answer."""

    LOST = "the connection ended, or there was none"
    TIMED_OUT = "no answer came in time"
    NOT_SERVED = "the node does not serve this request"
    #: a bug of this node: the request cannot be encoded, for example
    BROKEN = "the request could not be made"


@dataclass(slots=True, eq=False)
class CoordinatorLookup:
    """A FindCoordinator to send to `node_id`, for the keys of these operations."""

    node_id: int
    operations: list[StateOperation]


@dataclass(slots=True, eq=False)
class StateRequest:
    """A request of one kind and one group to send to a coordinator. Each operation has another key."""

    node_id: int
    call: StateCall
    group_id: str
    operations: list[StateOperation]


class LookupAnswer(NamedTuple):
    error: ErrorCode
    node_id: int = -1
    message: str | None = None


class _Place(NamedTuple):
    """The operations that go one after another."""

    key: SharePartitionKey
    is_summary: bool


class _Line(NamedTuple):
    """The operations that may share a request."""

    node_id: int
    call: StateCall
    group_id: str


class PersisterMachine:
    """Call `submit`, `give_up`, `answered`, `found`, `failed`, `leaders_changed` and `wake` as things happen. After
    each call send everything of `take_sends` and deliver everything of `take_answers`, and call `wake` at the latest at
    `next_wake`. Times are seconds of one clock that never goes back."""

    def __init__(
        self,
        coordinator_of: Callable[[SharePartitionKey], ShareCoordinatorNode | None],
        brokers: Callable[[], Sequence[int]],
        chance: Random,
    ) -> None:
        """`coordinator_of`: the leader by the metadata of this node, None if it has no topic or no live leader.
        `brokers`: the live brokers, which can be asked for a coordinator."""
        self._coordinator_of = coordinator_of
        self._brokers = brokers
        self._chance = chance
        #: every operation that is not at its end, by its place; the first of a place is the one that goes
        self._by_place: dict[_Place, deque[StateOperation]] = {}
        self._sought: dict[StateOperation, None] = {}
        self._queued: dict[_Line, dict[StateOperation, None]] = {}
        #: lines that have operations and no request under way
        self._ready: dict[_Line, None] = {}
        self._busy: set[_Line] = set()
        self._lookups: dict[int, CoordinatorLookup] = {}
        self._resting: DueTimes[StateOperation] = DueTimes()
        self._deadlines: DueTimes[StateOperation] = DueTimes()
        self._answers: list[tuple[StateOperation, ShareStateAnswer]] = []
        #: without summaries, and so are the bytes
        self._count = 0
        self._bytes = 0
        self._summaries = 0
        self._closed = False

    @property
    def count(self) -> int:
        """The operations that are not at their end."""
        return self._count + self._summaries

    # -- inputs -------------------------------------------------------------------------------------------------------

    def submit(self, operation: StateOperation) -> None:
        """Take an operation. Its answer is COORDINATOR_NOT_AVAILABLE if the machine is full or closed."""
        refusal = self._refusal(operation)
        if refusal is not None:
            operation.become(Stage.ENDED)
            self._answers.append((operation, refusal))
            return
        if operation.call is StateCall.SUMMARIZE:
            self._summaries += 1
        else:
            self._count += 1
            self._bytes += operation.size
        if operation.deadline is not None:
            self._deadlines.set(operation, math.ceil(operation.deadline / DEADLINE_GRAIN) * DEADLINE_GRAIN)
        place = _place_of(operation)
        of_place = self._by_place.get(place)
        if of_place is None:
            self._by_place[place] = deque((operation,))
            self._route(operation)
        else:
            of_place.append(operation)
            operation.become(Stage.BEHIND)

    def give_up(self, operation: StateOperation) -> None:
        """Drop an operation whose caller waits no longer. A request that is under way may still be carried out."""
        if operation.stage is Stage.SENT:
            # Its place stays taken until the request has ended, so that the next operation on its key cannot overtake.
            operation.is_abandoned = True
            self._deadlines.withdraw(operation)
        elif operation.stage is not Stage.ENDED:
            self._end(operation)

    def answered(
        self, request: StateRequest, answers: Mapping[tuple[bytes, int], ShareStateAnswer], now: float
    ) -> None:
        """Take the answer to a request, by topic id and partition."""
        self._request_ended(request)
        jitter = 0.0
        failed: list[ErrorCode] = []
        for operation in request.operations:
            answer = answers.get((operation.key.topic_id, operation.key.partition), _NO_ENTRY)
            if answer.error not in _PASSES:
                self._finish(operation, answer)
                continue
            # Most answers need none, and the system is asked for each random number.
            jitter = jitter or self._jitter()
            if not self._try_again(operation, now, jitter, may_be_quick=True):
                failed.append(answer.error)
                self._finish(operation, _at_last(answer))
        if failed:
            _log_request(request, len(failed), failed[0].name)

    def found(self, lookup: CoordinatorLookup, answers: Mapping[str, LookupAnswer], now: float) -> None:
        """Take the answer to a lookup, by the text of the key."""
        jitter = self._jitter()
        for operation in self._lookup_ended(lookup):
            text = str(operation.key)
            answer = answers.get(text) or LookupAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, message=f"no answer for {text}")
            if answer.error is ErrorCode.NONE:
                operation.lookups.quick = operation.lookups.failures = 0
                self._queue(operation, ShareCoordinatorNode(answer.node_id))
            elif answer.error not in _LOOKUP_PASSES:
                self._finish(operation, ShareStateAnswer(answer.error, answer.message))
            else:
                self._look_up_again(operation, now, jitter, answer.error, answer.message, may_be_quick=True)

    def failed(self, sent: StateRequest | CoordinatorLookup, failure: RequestFailure, now: float) -> None:
        """Take the failure of a request or a lookup."""
        quick = failure is RequestFailure.LOST
        jitter = self._jitter()
        if isinstance(sent, CoordinatorLookup):
            for operation in self._lookup_ended(sent):
                if failure is RequestFailure.BROKEN:
                    self._finish(operation, ShareStateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, failure.value))
                else:
                    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                    self._look_up_again(operation, now, jitter, error, failure.value, may_be_quick=quick)
            return
        self._request_ended(sent)
        given_up = 0
        for operation in sent.operations:
            if failure is RequestFailure.BROKEN:
                self._finish(operation, ShareStateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, failure.value))
            elif not self._try_again(operation, now, jitter, may_be_quick=quick):
                given_up += 1
                self._finish(operation, ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure.value))
        if given_up:
            _log_request(sent, given_up, failure.value)

    def leaders_changed(self) -> None:
        """Look again for the coordinators of all operations that are not under way. An operation whose coordinator has
        failed rests no longer if there is another one now, or the same in a new leader epoch."""
        for operation in self._resting.items():
            coordinator = self._coordinator_of(operation.key)
            if coordinator is not None and coordinator != operation.coordinator:
                self._resting.withdraw(operation)
                # The failures of another leader say nothing about this one. The count of failures stays, so that a
                # cluster that elects without end does not keep an operation without end.
                operation.requests.quick = 0
                self._queue(operation, coordinator)
        asked = [each for lookup in self._lookups.values() for each in lookup.operations if each.stage is Stage.ASKED]
        # An operation is in two lookups if it was queued while the first of them was under way.
        for operation in dict.fromkeys([*self._sought, *asked]):
            coordinator = self._coordinator_of(operation.key)
            if coordinator is not None:
                self._sought.pop(operation, None)
                self._queue(operation, coordinator)
        for operation in [each for queued in self._queued.values() for each in queued]:
            coordinator = self._coordinator_of(operation.key)
            if coordinator is not None and coordinator != operation.coordinator:
                self._leave_line(operation)
                self._queue(operation, coordinator)

    def wake(self, now: float) -> None:
        """Take the time: rests end, and deadlines pass."""
        for operation in self._deadlines.take(now):
            self._answers.append((operation, _LATE))
            self.give_up(operation)
        for operation in self._resting.take(now):
            self._route(operation)

    def close(self) -> None:
        """Answer all operations, and refuse those that still come, with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        for operation in [each for of_place in self._by_place.values() for each in of_place]:
            if not operation.is_abandoned:
                self._answers.append((operation, _CLOSED))
                self.give_up(operation)

    # -- outputs ------------------------------------------------------------------------------------------------------

    def take_sends(self, now: float) -> list[StateRequest | CoordinatorLookup]:
        """Return the requests and lookups to send now. Each has to end with `answered`, `found` or `failed`."""
        if not self._ready and not self._sought:
            return []
        sends: list[StateRequest | CoordinatorLookup] = [*self._take_lookups(now)]
        ready, self._ready = self._ready, {}
        for line in ready:
            queued = self._queued[line]
            operations = _first_of(queued, line.call)
            for operation in operations:
                operation.become(Stage.SENT)
                del queued[operation]
            if not queued:
                del self._queued[line]
            request = StateRequest(*line, operations)
            self._busy.add(line)
            sends.append(request)
        return sends

    def take_answers(self) -> list[tuple[StateOperation, ShareStateAnswer]]:
        """Return the answers that have come since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def next_wake(self) -> float | None:
        """Return the time at which `wake` has something to do, None if nothing waits for time."""
        resting, deadline = self._resting.next_due(), self._deadlines.next_due()
        if resting is None or deadline is None:
            return resting if deadline is None else deadline
        return min(resting, deadline)

    # -- within -------------------------------------------------------------------------------------------------------

    def _refusal(self, operation: StateOperation) -> ShareStateAnswer | None:
        if self._closed:
            return _CLOSED
        if not operation.key.group_id.strip():
            return _NO_GROUP
        if operation.call is StateCall.SUMMARIZE:
            is_full = self._summaries >= MOST_SUMMARIES
        else:
            is_full = self._count >= MOST_OPERATIONS or self._bytes + operation.size > MOST_BYTES
        return _TOO_MANY if is_full else None

    def _route(self, operation: StateOperation) -> None:
        coordinator = self._coordinator_of(operation.key)
        if coordinator is not None:
            self._queue(operation, coordinator)
        else:
            operation.become(Stage.SOUGHT)
            self._sought[operation] = None

    def _queue(self, operation: StateOperation, coordinator: ShareCoordinatorNode) -> None:
        operation.become(Stage.QUEUED)
        operation.coordinator = coordinator
        line = _line_of(operation)
        self._queued.setdefault(line, {})[operation] = None
        if line not in self._busy:
            self._ready[line] = None

    def _leave_line(self, operation: StateOperation) -> None:
        line = _line_of(operation)
        queued = self._queued[line]
        del queued[operation]
        if not queued:
            del self._queued[line]
            self._ready.pop(line, None)

    def _take_lookups(self, now: float) -> Iterable[CoordinatorLookup]:
        while self._sought:
            brokers = self._brokers()
            free = [broker for broker in brokers if broker not in self._lookups]
            if not brokers:
                # Apache Kafka gives up at once. A broker that has just started may know no other broker yet.
                jitter = self._jitter()
                sought, self._sought = self._sought, {}
                for operation in sought:
                    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                    self._look_up_again(operation, now, jitter, error, "no broker is known", may_be_quick=True)
            elif not free:
                return
            else:
                operations = list(islice(self._sought, MOST_LOOKUP_KEYS))
                for operation in operations:
                    del self._sought[operation]
                    operation.become(Stage.ASKED)
                node_id = free[int(self._chance.random() * len(free))]
                lookup = self._lookups[node_id] = CoordinatorLookup(node_id, operations)
                yield lookup

    def _lookup_ended(self, lookup: CoordinatorLookup) -> list[StateOperation]:
        """Return the operations that still wait for this lookup."""
        del self._lookups[lookup.node_id]
        return [operation for operation in lookup.operations if operation.stage is Stage.ASKED]

    def _request_ended(self, request: StateRequest) -> None:
        line = _Line(request.node_id, request.call, request.group_id)
        self._busy.remove(line)
        if line in self._queued:
            self._ready[line] = None

    def _try_again(self, operation: StateOperation, now: float, jitter: float, *, may_be_quick: bool) -> bool:
        """Let an operation rest until its next try. Return False if there is none."""
        if operation.is_abandoned:
            self._end(operation)
            return True
        rest = operation.requests.rest(may_be_quick=may_be_quick)
        if rest is None:
            return False
        operation.become(Stage.RESTING)
        self._resting.set(operation, now + rest * jitter)
        return True

    def _look_up_again(
        self,
        operation: StateOperation,
        now: float,
        jitter: float,
        error: ErrorCode,
        message: str | None,
        *,
        may_be_quick: bool,
    ) -> None:
        operation.coordinator = None
        rest = operation.lookups.rest(may_be_quick=may_be_quick)
        if rest is None:
            logger.warning("The share coordinator of %s was not found: %s", operation.key, message or error.name)
            self._finish(operation, _at_last(ShareStateAnswer(error, message)))
        else:
            operation.become(Stage.RESTING)
            self._resting.set(operation, now + rest * jitter)

    def _finish(self, operation: StateOperation, answer: ShareStateAnswer) -> None:
        if not operation.is_abandoned:
            self._answers.append((operation, answer))
        self._end(operation)

    def _end(self, operation: StateOperation) -> None:
        """Forget an operation, and let the next one of its place go."""
        stage = operation.stage
        operation.become(Stage.ENDED)
        if operation.call is StateCall.SUMMARIZE:
            self._summaries -= 1
        else:
            self._count -= 1
            self._bytes -= operation.size
        self._deadlines.withdraw(operation)
        if stage is Stage.RESTING:
            self._resting.withdraw(operation)
        elif stage is Stage.SOUGHT:
            self._sought.pop(operation, None)
        elif stage is Stage.QUEUED:
            self._leave_line(operation)
        place = _place_of(operation)
        of_place = self._by_place[place]
        if stage is Stage.BEHIND:
            of_place.remove(operation)
            return
        assert of_place[0] is operation
        of_place.popleft()
        if of_place:
            self._route(of_place[0])
        else:
            del self._by_place[place]

    def _jitter(self) -> float:
        """Return a factor for rests. It is one for all operations of a request, so that they share the next request
        too."""
        return rest_factor(self._chance)


def _place_of(operation: StateOperation) -> _Place:
    return _Place(operation.key, operation.call is StateCall.SUMMARIZE)


def _line_of(operation: StateOperation) -> _Line:
    """Return the line of an operation whose coordinator is known."""
    assert operation.coordinator is not None
    return _Line(operation.coordinator.node_id, operation.call, operation.key.group_id)


def _first_of(queued: Mapping[StateOperation, object], call: StateCall) -> list[StateOperation]:
    """Return the operations of the next request: as many as its limits allow, and at least one."""
    most = MOST_PARTITIONS_OF_READ if call is StateCall.READ else MOST_PARTITIONS
    size = 0
    taken: list[StateOperation] = []
    for operation in islice(queued, most):
        size += operation.size
        if taken and size > MOST_REQUEST_BYTES:
            break
        taken.append(operation)
    return taken


def _at_last(answer: ShareStateAnswer) -> ShareStateAnswer:
    """Return the answer after the last try."""
    if answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return answer
    return ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, answer.message or answer.error.message)


def _log_request(request: StateRequest, failed: int, reason: str) -> None:
    logger.warning(
        "Group %s: %s for %d share partitions failed in every try, the last at broker %d, and is given up: %s",
        request.group_id,
        request.call.value,
        failed,
        request.node_id,
        reason,
    )
