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


@pytest.mark.parametrize("nodes", [3, 30])
def test_nodes_that_do_not_answer_cost_two_seconds_together(clock: Time, nodes: int) -> None:
    limits = ClientPatience()
    limits.give_up(1)
    clock.now += 1
    began = clock.now
    for _ in range(nodes):
        limit = WaitLimit(30, limits)
        left = limit.left()
        clock.now += left
        # Each part of a request looks at its limit.
        for _ in range(2):
            with pytest.raises(TimeoutError):
                limit.left()
    assert 1.7 < clock.now - began <= 2


def test_a_node_that_answers_takes_no_time_from_the_others(clock: Time) -> None:
    limits = ClientPatience()
    limits.give_up(0)
    for _ in range(3):
        assert WaitLimit(30, limits).left() == 1


def test_a_wait_that_ends_by_its_own_limit_takes_no_time_from_a_client_that_goes_on(clock: Time) -> None:
    limits = ClientPatience()
    limit = WaitLimit(5, limits)
    clock.now += 5
    with pytest.raises(TimeoutError):
        limit.left()
    limits.give_up(0)
    assert WaitLimit(30, limits).left() == 1


def test_a_new_time_of_the_caller_forgets_the_waits_in_vain(clock: Time) -> None:
    limits = ClientPatience()
    for _ in range(2):
        limits.wait_until(clock.now)
        limit = WaitLimit(30, limits)
        assert limit.left() == 1
        clock.now += 1
        with pytest.raises(TimeoutError):
            limit.left()
        assert WaitLimit(30, limits).left() == 0.5


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
