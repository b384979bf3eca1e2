"""Answers that wait until the log is committed."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.deferred_answers import DeferredAnswers, Request
from pykbroker_wire.errors import ErrorCode
from tests.coordinator.fakes import Loop, as_loop

TIMEOUT = 5.0


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def answers(loop: Loop) -> DeferredAnswers:
    return DeferredAnswers(as_loop(loop), TIMEOUT)


def waiting(answers: DeferredAnswers, offset: int) -> Request:
    request = Request(lambda code: code.name)
    answers.add(offset, [(request, f"committed at {offset}")])
    return request


def test_a_commit_sends_the_answers_before_its_offset(answers: DeferredAnswers) -> None:
    first, second, third = (waiting(answers, offset) for offset in (3, 5, 6))
    answers.committed(5)
    assert [first.answer, second.answer] == ["committed at 3", "committed at 5"]
    assert not third.done
    answers.committed(9)
    assert third.answer == "committed at 6"


def test_an_answer_that_waits_too_long_is_an_error_and_later_ones_go_on_waiting(
    loop: Loop, answers: DeferredAnswers
) -> None:
    early = waiting(answers, 3)
    loop.advance(TIMEOUT / 2)
    late = waiting(answers, 4)
    loop.advance(TIMEOUT / 2)
    assert early.answer == ErrorCode.COORDINATOR_NOT_AVAILABLE.name
    assert not late.done
    loop.advance(TIMEOUT / 2)
    assert late.answer == ErrorCode.COORDINATOR_NOT_AVAILABLE.name


def test_a_leadership_that_ends_takes_all_requests_and_no_deadline_is_left(
    loop: Loop, answers: DeferredAnswers
) -> None:
    requests = [waiting(answers, offset) for offset in (3, 5)]
    assert answers.take_all() == requests
    loop.advance(2 * TIMEOUT)
    assert not any(request.done for request in requests)


def test_after_its_timer_was_stopped_an_answer_waits_for_its_commit_alone(loop: Loop, answers: DeferredAnswers) -> None:
    request = waiting(answers, 3)
    answers.stop_timer()
    loop.advance(2 * TIMEOUT)
    assert not request.done
    answers.committed(3)
    assert request.answer == "committed at 3"


def test_the_future_of_a_closed_connection_gets_no_answer(loop: Loop, answers: DeferredAnswers) -> None:
    request = waiting(answers, 3)
    request.future = loop.create_future()
    request.future.cancel()
    answers.committed(3)
    assert request.done
    assert request.future.cancelled()
