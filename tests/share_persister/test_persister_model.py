"""The persister's machine keeps its rules in any order of events, and each planted bug breaks one that is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from pykbroker.retries.tries import Tries
from pykbroker.share_persister import persister_machine
from pykbroker.share_persister.persister_machine import (
    CoordinatorLookup,
    PersisterMachine,
    RequestFailure,
    StateRequest,
    _Place,
    _place_of,
)
from pykbroker.share_persister.state_operations import (
    ShareCoordinatorNode,
    ShareStateAnswer,
    Stage,
    StateOperation,
)
from pykbroker_wire.errors import ErrorCode
from testkit.bug_search import search
from tests.share_persister.persister_model import PersisterModel, Violation, small_limits

pytestmark = pytest.mark.slow

STEPS = 60


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    small_limits(monkeypatch.setattr)


def model_of(make: type[PersisterMachine]) -> type[PersisterModel]:
    return type("Model", (PersisterModel,), {"make": make})


def test_the_machine_keeps_its_rules() -> None:
    run_state_machine_as_test(
        model_of(PersisterMachine),
        settings=settings(
            max_examples=100,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- bugs that the model has to find ----------------------------------------------------------------------------------


class LosesAnswers(PersisterMachine):
    """The answers are lost if the node dies."""

    def failed(self, sent: StateRequest | CoordinatorLookup, failure: RequestFailure, now: float) -> None:
        if isinstance(sent, StateRequest) and failure is RequestFailure.LOST:
            self._request_ended(sent)
            for operation in sent.operations:
                self._end(operation)
        else:
            super().failed(sent, failure, now)


class Overtakes(PersisterMachine):
    """While an operation rests, the next one on its key goes."""

    def _try_again(self, operation: StateOperation, now: float, jitter: float, *, may_be_quick: bool) -> bool:
        of_place = self._by_place[_place_of(operation)]
        again = super()._try_again(operation, now, jitter, may_be_quick=may_be_quick)
        if operation.stage is Stage.RESTING and len(of_place) > 1:
            of_place.rotate(-1)
            self._route(of_place[0])
        return again


class SendsTwo(PersisterMachine):
    """A second request of a kind and a group goes to a node."""

    def _queue(self, operation: StateOperation, coordinator: ShareCoordinatorNode) -> None:
        super()._queue(operation, coordinator)
        self._ready |= dict.fromkeys(self._queued)


class AnswersTwice(PersisterMachine):
    """An operation that is tried again is answered with its error too."""

    def _try_again(self, operation: StateOperation, now: float, jitter: float, *, may_be_quick: bool) -> bool:
        if not operation.is_abandoned:
            self._answers.append((operation, ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        return super()._try_again(operation, now, jitter, may_be_quick=may_be_quick)


class NeverGivesUp(PersisterMachine):
    """Failures are not counted."""

    def _try_again(self, operation: StateOperation, now: float, jitter: float, *, may_be_quick: bool) -> bool:
        operation.requests = Tries()
        return super()._try_again(operation, now, jitter, may_be_quick=may_be_quick)


class GivesUpEarly(PersisterMachine):
    """One failure is enough."""

    def _try_again(self, operation: StateOperation, now: float, jitter: float, *, may_be_quick: bool) -> bool:
        operation.requests = Tries(9, 4)
        return super()._try_again(operation, now, jitter, may_be_quick=may_be_quick)


class AnswersTheGone(PersisterMachine):
    """A caller that has given up gets the answer."""

    def give_up(self, operation: StateOperation) -> None:
        if operation.stage is not Stage.SENT:
            super().give_up(operation)


class SendsTheGone(PersisterMachine):
    """An operation that was given up stays in its line."""

    def _leave_line(self, operation: StateOperation) -> None:
        if operation.stage is Stage.QUEUED:
            super()._leave_line(operation)


class ForgetsDeadlines(PersisterMachine):
    """An operation that is tried again has no deadline."""

    def _try_again(self, operation: StateOperation, now: float, jitter: float, *, may_be_quick: bool) -> bool:
        self._deadlines.withdraw(operation)
        return super()._try_again(operation, now, jitter, may_be_quick=may_be_quick)


class LosesTheSought(PersisterMachine):
    """A change of leaders drops the operations whose coordinator stays unknown."""

    def leaders_changed(self) -> None:
        super().leaders_changed()
        self._sought.clear()


class NeverAsksAgain(PersisterMachine):
    """A node whose lookup has failed is never asked again."""

    def failed(self, sent: StateRequest | CoordinatorLookup, failure: RequestFailure, now: float) -> None:
        super().failed(sent, failure, now)
        if isinstance(sent, CoordinatorLookup):
            self._lookups[sent.node_id] = sent


class LeavesLinesBehind(PersisterMachine):
    """Operations that came while a request was under way are not sent when it has ended."""

    def _request_ended(self, request: StateRequest) -> None:
        super()._request_ended(request)
        self._ready.clear()


class LeavesKeysBehind(PersisterMachine):
    """If an operation is given up while it rests, the next one on its key does not go."""

    def give_up(self, operation: StateOperation) -> None:
        if operation.stage is Stage.RESTING:
            behind = StateOperation(operation.call, operation.key, stage=Stage.BEHIND)
            self._by_place[_place_of(operation)].append(behind)
        super().give_up(operation)


class TakesTooMany(PersisterMachine):
    """There is no limit."""

    def _refusal(self, operation: StateOperation) -> ShareStateAnswer | None:
        return None


class CountsTogether(PersisterMachine):
    """Summaries take the place of other operations."""

    def _refusal(self, operation: StateOperation) -> ShareStateAnswer | None:
        if self.count >= persister_machine.MOST_OPERATIONS:
            return persister_machine._TOO_MANY
        return super()._refusal(operation)


class FreesTheKey(PersisterMachine):
    """If a caller gives up, the next operation on the key goes although the request is still under way."""

    def give_up(self, operation: StateOperation) -> None:
        super().give_up(operation)
        of_place = self._by_place.get(_place_of(operation))
        if operation.stage is Stage.SENT and of_place is not None and len(of_place) > 1:
            of_place.rotate(-1)
            self._route(of_place[0])


BUGS: list[type[PersisterMachine]] = [
    LosesAnswers,
    Overtakes,
    SendsTwo,
    AnswersTwice,
    NeverGivesUp,
    GivesUpEarly,
    AnswersTheGone,
    SendsTheGone,
    ForgetsDeadlines,
    LosesTheSought,
    NeverAsksAgain,
    LeavesLinesBehind,
    LeavesKeysBehind,
    TakesTooMany,
    CountsTogether,
    FreesTheKey,
]


#: Where the search for a bug begins, if it finds nothing with the first seed.
SEEDS: Final[dict[type[PersisterMachine], int]] = {
    LosesTheSought: 1,
    NeverAsksAgain: 2,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: type[PersisterMachine]) -> None:
    # The table of stages finds some of them.
    with pytest.raises((Violation, ValueError)):
        search(model_of(bug), seed=SEEDS.get(bug, 0), steps=STEPS)


@pytest.mark.parametrize(
    ("name", "value", "seed"),
    [
        ("_at_last", lambda answer: answer, 1),
        ("_PASSES", frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE}), 0),
        ("_first_of", lambda queued, call: list(queued), 5),
        ("_place_of", lambda operation: _Place(operation.key, is_summary=False), 0),
    ],
)
def test_a_planted_bug_in_a_part_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Callable[..., Any] | frozenset[ErrorCode], seed: int
) -> None:
    monkeypatch.setattr(persister_machine, name, value)
    with pytest.raises(Violation):
        search(model_of(PersisterMachine), seed=seed, steps=STEPS)
