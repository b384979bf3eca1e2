"""Long work in turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from pykbroker.runtime.in_turns import in_turns
from tests.coordinator.fakes import Loop, as_loop


def steps(count: int, done: list[int]) -> Generator[None]:
    for number in range(count):
        done.append(number)
        yield


def turns_of(loop: Loop, later: asyncio.Future[None]) -> int:
    turns = 1
    while not later.done():
        loop.turn()
        turns += 1
    return turns


def test_little_work_needs_one_turn() -> None:
    done: list[int] = []
    assert in_turns(as_loop(Loop()), steps(640, done)) is None
    assert len(done) == 640


def test_the_clock_ends_a_turn() -> None:
    loop, done = Loop(), list[int]()
    loop.cost_per_look = 0.003
    later = in_turns(as_loop(loop), steps(640, done))
    assert later is not None
    assert len(done) == 64
    assert turns_of(loop, later) == 11, "ten turns with steps, and one that finds no more"
    assert done == list(range(640))


def test_an_exception_reaches_the_one_who_waits() -> None:
    def fails(after: int) -> Generator[None]:
        yield from steps(after, [])
        raise KeyError("a bug")

    loop = Loop()
    with pytest.raises(KeyError):
        in_turns(as_loop(loop), fails(3))
    loop.cost_per_look = 0.003
    later = in_turns(as_loop(loop), fails(100))
    assert later is not None
    turns_of(loop, later)
    with pytest.raises(KeyError):
        later.result()


def test_work_whose_future_is_cancelled_is_closed() -> None:
    loop, done, ended = Loop(), list[int](), list[bool]()

    def work() -> Generator[None]:
        try:
            yield from steps(640, done)
        finally:
            ended.append(True)

    loop.cost_per_look = 0.003
    # The test holds the generator, so that nothing but the loop closes it.
    held = work()
    later = in_turns(as_loop(loop), held)
    assert later is not None
    later.cancel()
    loop.turn()
    loop.turn()
    assert len(done) == 64
    assert ended == [True]
