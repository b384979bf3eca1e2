"""Answers that are there now or come later."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest

from pykbroker.runtime.later import Later, and_then, gather, judged, settle, then
from pykbroker_wire.errors import ErrorCode, KafkaError


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def settled(loop: asyncio.AbstractEventLoop) -> None:
    """Run the callbacks that are due, and those that follow from them."""
    for _ in range(5):
        loop.call_soon(loop.stop)
        loop.run_forever()


def future(value: Later[int]) -> asyncio.Future[int]:
    assert isinstance(value, asyncio.Future)
    return value


def coming(value: asyncio.Future[int]) -> Later[int]:
    return value


def test_an_answer_that_is_there_makes_no_future() -> None:
    assert then(2, str) == "2"
    assert and_then(2, lambda value: value + 1) == 3
    assert gather([1, 2]) == [1, 2]
    assert gather([]) == []


def test_each_step_follows_when_the_answer_before_it_has_come(loop: asyncio.AbstractEventLoop) -> None:
    first: asyncio.Future[int] = loop.create_future()
    second: asyncio.Future[int] = loop.create_future()

    def times_second(value: int) -> Later[int]:
        return then(coming(second), lambda by: value * by)

    risen: Later[int] = then(coming(first), lambda value: value + 1)
    chained = future(and_then(risen, times_second))
    first.set_result(2)
    settled(loop)
    assert not chained.done()
    second.set_result(10)
    settled(loop)
    assert chained.result() == 30


def test_a_client_that_leaves_ends_the_wait_that_is_under_way(loop: asyncio.AbstractEventLoop) -> None:
    first, second = loop.create_future(), loop.create_future()
    chained = future(and_then(coming(first), lambda _: second))
    first.set_result(1)
    settled(loop)
    chained.cancel()
    settled(loop)
    assert second.cancelled()
    parts = [loop.create_future() for _ in range(2)]
    joined = gather([7, *parts])
    assert isinstance(joined, asyncio.Future)
    joined.cancel()
    settled(loop)
    assert all(part.cancelled() for part in parts)


def test_all_answers_come_in_their_order_when_the_last_has_come(loop: asyncio.AbstractEventLoop) -> None:
    late, later = loop.create_future(), loop.create_future()
    joined = gather([late, 2, later])
    assert isinstance(joined, asyncio.Future)
    later.set_result(3)
    settled(loop)
    assert not joined.done()
    late.set_result(1)
    settled(loop)
    assert joined.result() == [1, 2, 3]


def test_each_of_many_answers_is_looked_at_a_few_times(loop: asyncio.AbstractEventLoop) -> None:
    looks = 0

    class Watched(asyncio.Future[int]):
        def done(self) -> bool:
            nonlocal looks
            looks += 1
            return super().done()

    parts = [Watched(loop=loop) for _ in range(1_000)]
    waited: list[Later[int]] = [*parts, parts[0]]
    joined = gather(waited)
    assert isinstance(joined, asyncio.Future)
    for number, part in enumerate(parts):
        part.set_result(number)
        if number % 100 == 0:
            settled(loop)
    settled(loop)
    assert joined.result() == [*range(1_000), 0]
    assert looks <= 3_000


def broken(loop: asyncio.AbstractEventLoop) -> Later[int]:
    future: asyncio.Future[int] = loop.create_future()
    future.set_exception(ZeroDivisionError())
    return future


def given(loop: asyncio.AbstractEventLoop) -> Later[int]:
    future: asyncio.Future[int] = loop.create_future()
    future.set_result(0)
    return future


@pytest.mark.parametrize(
    "fails",
    [
        lambda loop: then(broken(loop), str),
        lambda loop: then(given(loop), lambda value: 1 // value),
        lambda loop: and_then(broken(loop), lambda value: value),
        lambda loop: and_then(given(loop), lambda value: 1 // value),
        lambda loop: and_then(given(loop), lambda _: broken(loop)),
        lambda loop: gather([broken(loop), given(loop)]),
    ],
    ids=["before", "transform", "first", "follow", "second", "part"],
)
def test_a_bug_reaches_the_one_who_waits(
    loop: asyncio.AbstractEventLoop, fails: Callable[[asyncio.AbstractEventLoop], Later[object]]
) -> None:
    answer = fails(loop)
    assert isinstance(answer, asyncio.Future)
    settled(loop)
    assert isinstance(answer.exception(), ZeroDivisionError)


@pytest.mark.parametrize(
    "waits",
    [
        lambda loop, inner: then(inner, str),
        lambda loop, inner: and_then(inner, lambda value: value),
        lambda loop, inner: and_then(given(loop), lambda _: inner),
        lambda loop, inner: gather([given(loop), inner]),
    ],
    ids=["then", "first", "second", "part"],
)
def test_a_wait_ends_if_what_it_waits_for_is_cancelled(
    loop: asyncio.AbstractEventLoop, waits: Callable[[asyncio.AbstractEventLoop, Later[int]], Later[object]]
) -> None:
    inner: asyncio.Future[int] = loop.create_future()
    answer = waits(loop, inner)
    assert isinstance(answer, asyncio.Future)
    settled(loop)
    assert not answer.done()
    inner.cancel()
    settled(loop)
    assert answer.cancelled()


def test_a_bug_that_nobody_waits_for_is_logged(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    then(given(loop), lambda value: 1 // value)
    settled(loop)
    gc.collect()
    assert "ZeroDivisionError" in caplog.text


def test_a_verdict_becomes_an_answer_and_a_bug_stays_an_error(loop: asyncio.AbstractEventLoop) -> None:
    def ended(error: Exception | None) -> asyncio.Future[str]:
        inner: asyncio.Future[int] = loop.create_future()
        found = judged(inner, str, lambda verdict: verdict.code.name)
        if error is None:
            inner.set_result(5)
        else:
            inner.set_exception(error)
        settled(loop)
        return found

    assert ended(None).result() == "5"
    assert ended(KafkaError(ErrorCode.NOT_COORDINATOR)).result() == "NOT_COORDINATOR"
    assert isinstance(ended(ZeroDivisionError()).exception(), ZeroDivisionError)


def test_an_action_runs_even_if_its_caller_has_left(loop: asyncio.AbstractEventLoop) -> None:
    ran: list[str] = []
    left: asyncio.Future[None] = loop.create_future()
    left.cancel()
    settle(left, lambda: ran.append("left"))
    waits: asyncio.Future[int] = loop.create_future()
    inner: asyncio.Future[int] = loop.create_future()
    settle(waits, lambda: inner)
    inner.set_result(4)
    settled(loop)
    fails: asyncio.Future[int] = loop.create_future()
    settle(fails, lambda: 1 // 0)
    assert (ran, waits.result()) == (["left"], 4)
    assert isinstance(fails.exception(), ZeroDivisionError)
