"""Questions of one loop to the other: each is answered once, and futures stay where they were made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.crossing.calls import Calls, CallsAnswered
from pykbroker.crossing.loop_messages import LoopAnswered, LoopAsked
from tests.coordinator.fakes import Loop, as_loop


class Two:
    """The asking side on one loop and the answering side on another. The test moves the messages."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.here, self.there = Loop(), Loop()
        runtime: Any = SimpleNamespace(loop=as_loop(self.here))
        self.asked: list[LoopAsked] = []
        self.answers: list[LoopAnswered] = []
        self.calls = Calls(runtime, self.asked.append)
        self.answered = CallsAnswered(self.answers.append, answer)

    def over(self) -> None:
        for message in self.asked:
            self.answered.asked(message)
        self.asked.clear()
        self.there.turn()

    def back(self) -> None:
        for message in self.answers:
            self.calls.answered(message)
        self.answers.clear()
        self.here.turn()


def test_an_answer_comes_back_to_its_question() -> None:
    two = Two(lambda question: question * 2)
    first, second = two.calls.ask(1), two.calls.ask("a")
    two.over()
    assert not first.done()
    two.back()
    assert (first.result(), second.result()) == (2, "aa")


def test_an_answer_that_comes_later_is_handed_over_then() -> None:
    later: list[asyncio.Future[Any]] = []

    def answer(question: Any) -> Any:
        later.append(two.there.create_future())
        return later[-1]

    two = Two(answer)
    first, second, third = (two.calls.ask(number) for number in range(3))
    two.over()
    assert not two.answers
    later[1].set_result("second")
    later[0].set_exception(ValueError("no"))
    later[2].cancel()
    two.there.turn()
    two.back()
    assert second.result() == "second"
    with pytest.raises(ValueError, match="no"):
        first.result()
    with pytest.raises(ConnectionError):
        third.result()


def test_what_the_other_side_raises_is_raised_here_without_its_frames() -> None:
    def answer(question: Any) -> Any:
        raise ValueError("no")

    two = Two(answer)
    asked = two.calls.ask(1)
    two.over()
    assert two.answers[0].error is not None
    assert two.answers[0].error.__traceback__ is None
    two.back()
    with pytest.raises(ValueError, match="no"):
        asked.result()


def test_an_answer_for_which_nobody_waits_any_more_is_dropped() -> None:
    two = Two(lambda question: question)
    asked = two.calls.ask(1)
    asked.cancel()
    two.over()
    two.back()
    assert asked.cancelled()


def test_at_the_end_what_waits_is_cancelled() -> None:
    two = Two(lambda question: question)
    asked = two.calls.ask(1)
    two.calls.close()
    assert asked.cancelled()
