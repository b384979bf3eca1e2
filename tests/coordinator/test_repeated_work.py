"""Actions that a coordinator repeats."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.repeated_work import RepeatedWork
from pykbroker.runtime.client_clock import LoopClock
from tests.coordinator.fakes import Loop, as_loop


def test_each_action_has_its_own_interval_until_the_end() -> None:
    loop = Loop()
    work = RepeatedWork(LoopClock(as_loop(loop)))
    ran: list[tuple[str, float]] = []
    work.every(2_000, lambda: ran.append(("two", loop.now)))
    work.every(3_000, lambda: ran.append(("three", loop.now)))
    loop.advance(6)
    assert ran == [("two", 2), ("three", 3), ("two", 4), ("three", 6), ("two", 6)]
    work.close()
    loop.advance(6)
    assert len(ran) == 5
    assert not loop.sleeping()
    work.every(1_000, lambda: ran.append(("late", loop.now)))
    loop.advance(6)
    assert len(ran) == 5


def test_an_error_of_one_run_does_not_stop_the_next() -> None:
    loop = Loop()
    work = RepeatedWork(LoopClock(as_loop(loop)))
    runs: list[float] = []

    def fail() -> None:
        runs.append(loop.now)
        raise ValueError("a bug")

    work.every(1_000, fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            loop.advance(1)
    assert len(runs) == 2
    work.close()
