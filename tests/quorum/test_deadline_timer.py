"""The one timer of a raft node."""

from __future__ import annotations

import pytest

from pykbroker.quorum.deadline_timer import DeadlineTimer
from tests.coordinator.fakes import Loop, as_loop


class Timed:
    """A timer on a clock that stands still, and the times at which it fired."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.fired: list[float] = []
        self.timer = DeadlineTimer(as_loop(self.loop), lambda: self.fired.append(self.loop.now))


@pytest.fixture
def timed() -> Timed:
    return Timed()


def test_it_fires_once_after_the_deadline_has_passed_in_whole_milliseconds(timed: Timed) -> None:
    timed.timer.set(20)
    timed.loop.advance(0.0204)
    assert not timed.fired
    timed.loop.advance(1)
    assert [int(at * 1000) for at in timed.fired] == [20]


def test_another_deadline_replaces_the_one_before(timed: Timed) -> None:
    timed.timer.set(50)
    timed.timer.set(20)
    timed.loop.advance(1)
    assert len(timed.fired) == 1
    assert timed.fired[0] < 0.03


def test_without_a_deadline_it_does_not_fire(timed: Timed) -> None:
    timed.timer.set(20)
    timed.timer.set(None)
    timed.loop.advance(1)
    timed.timer.set(2000)
    timed.timer.cancel()
    timed.loop.advance(5)
    assert not timed.fired


def test_while_none_may_begin_the_same_deadline_stays_and_another_is_dropped(timed: Timed) -> None:
    timed.timer.set(20)
    timed.timer.set(20, may_begin=False)
    timed.loop.advance(1)
    assert len(timed.fired) == 1
    timed.timer.set(2000)
    timed.timer.set(1500, may_begin=False)
    timed.loop.advance(5)
    assert len(timed.fired) == 1
    timed.timer.set(7000)
    timed.loop.advance(5)
    assert len(timed.fired) == 2
