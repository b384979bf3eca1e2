"""The time limit of requests, also of those that wait already when the client gives up."""

from __future__ import annotations

import pytest

from pykbroker.tools.cluster import patience
from pykbroker.tools.cluster.patience import ClientPatience, WaitLimit


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(patience, "time", made)
    return made


def test_a_wait_has_its_own_limit(clock: Time) -> None:
    deadline = WaitLimit(30, ClientPatience())
    assert deadline.left() == 30
    clock.now += 30
    with pytest.raises(TimeoutError):
        deadline.left()


def test_giving_up_shortens_waits_that_have_begun(clock: Time) -> None:
    limits = ClientPatience()
    deadline = WaitLimit(30, limits)
    clock.now += 10
    assert not limits.is_over
    limits.give_up(5)
    assert limits.is_over
    assert deadline.left() == 5
    # A second call gives no more time, and may give less.
    clock.now += 1
    limits.give_up(5)
    assert deadline.left() == 4
    limits.give_up(1)
    assert deadline.left() == 1
    clock.now += 1
    with pytest.raises(TimeoutError):
        deadline.left()


def test_a_request_has_a_second_even_after_the_end(clock: Time) -> None:
    limits = ClientPatience()
    limits.give_up(5)
    clock.now += 60
    assert WaitLimit(30, limits).left() == 1
    assert WaitLimit(0.5, limits).left() == 0.5


def test_the_time_of_a_caller_may_come_later_again(clock: Time) -> None:
    limits = ClientPatience()
    deadline = WaitLimit(30, limits)
    limits.wait_until(clock.now + 5)
    assert (deadline.left(), limits.is_over) == (5, False)
    clock.now += 5
    assert limits.is_over
    limits.wait_until(clock.now + 7)
    assert (deadline.left(), limits.is_over) == (7, False)
    limits.give_up(3)
    limits.wait_until(clock.now + 20)
    assert deadline.left() == 3


def test_a_client_that_gives_up_late_still_has_time_for_its_end(clock: Time) -> None:
    limits = ClientPatience()
    limits.wait_until(clock.now - 1)
    limits.give_up(5)
    assert WaitLimit(30, limits).left() == 5
