"""The time for which the broker loop has stood still, as the control loop counts it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.crossing.pulse import Pulse


def test_a_loop_that_answers_has_never_been_silent() -> None:
    pulse = Pulse(0.5)
    for tick in range(10):
        assert pulse.tick(tick * 0.5)
        pulse.came()
    assert pulse.silent_seconds == 0


def test_the_time_until_the_answer_counts_and_it_is_asked_once() -> None:
    pulse = Pulse(0.5)
    assert pulse.tick(0)
    assert not any(pulse.tick(tick * 0.5) for tick in range(1, 21))
    assert pulse.silent_seconds == 10
    assert pulse.silent_seconds == 10
    pulse.came()
    assert pulse.silent_seconds == 0
    assert pulse.tick(10.5)


def test_time_in_which_the_whole_process_stood_still_does_not_count() -> None:
    pulse = Pulse(0.5)
    pulse.tick(0)
    pulse.tick(20)
    assert pulse.silent_seconds == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans())))
def test_it_never_counts_more_than_has_passed(steps: list[tuple[float, bool]]) -> None:
    pulse, now, since = Pulse(0.5), 0.0, 0.0
    for seconds, comes in steps:
        now += seconds
        if pulse.tick(now):
            since = now
        assert pulse.silent_seconds <= now - since + 1e-6
        if comes:
            pulse.came()
