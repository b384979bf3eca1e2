"""The ages of records, with jumps of the time that clients feel."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from pykbroker_log.jumps import NO_JUMPS, Jump, Jumps, no_jumps

TIMES = st.integers(-100, 10_000)
JUMPS = st.lists(st.builds(Jump, at_ms=st.integers(0, 1_000), by_ms=st.integers(1, 5_000)), max_size=6).map(Jumps)


@given(JUMPS, TIMES, TIMES)
def test_an_age_is_the_time_since_the_timestamp_and_the_jumps_after_it(jumps: Jumps, now: int, then: int) -> None:
    later = [jump.by_ms for jump in jumps if jump.at_ms > then]
    assert jumps.after(then) == sum(later)
    assert jumps.age_ms(now, then) == now - then + sum(later)
    assert jumps.total_ms == sum(jump.by_ms for jump in jumps)
    assert NO_JUMPS.age_ms(now, then) == now - then
    assert no_jumps() is NO_JUMPS


@given(JUMPS, TIMES, TIMES, TIMES)
def test_of_two_timestamps_the_older_one_is_the_older(jumps: Jumps, now: int, one: int, other: int) -> None:
    older, newer = sorted((one, other))
    assert jumps.age_ms(now, older) >= jumps.age_ms(now, newer) + newer - older


@given(JUMPS, st.builds(Jump, at_ms=st.integers(0, 1_000), by_ms=st.integers(1, 5_000)), TIMES)
def test_one_more_jump_makes_everything_before_it_older(jumps: Jumps, jump: Jump, then: int) -> None:
    more = jumps.with_jump(jump)
    assert len(more) == len(jumps) + 1
    assert more.after(then) - jumps.after(then) == (jump.by_ms if then < jump.at_ms else 0)
    assert more == Jumps([*jumps, jump])
    assert hash(more) == hash(Jumps([jump, *jumps]))


@given(JUMPS, TIMES, st.integers(0, 20_000))
def test_the_least_timestamp_that_is_young_enough(jumps: Jumps, now: int, age_ms: int) -> None:
    found = jumps.oldest_within(now, age_ms)
    assert jumps.age_ms(now, found) <= age_ms
    assert jumps.age_ms(now, found - 1) > age_ms


def test_jumps_reach_a_worker_process() -> None:
    jumps = Jumps([Jump(10, 5), Jump(20, 7)])
    again = pickle.loads(pickle.dumps(jumps))
    assert again == jumps
    assert [again.after(then) for then in (9, 10, 19, 20)] == [12, 7, 7, 0]
    assert repr(again) == "Jumps([Jump(at_ms=10, by_ms=5), Jump(at_ms=20, by_ms=7)])"
    assert jumps != "jumps"
