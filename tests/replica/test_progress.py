"""The facts that a follower's fetches prove, and the last time at which it had caught up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.replica.progress import NEVER_MS, UNKNOWN, FollowerFetch, FollowerProgress

LAG_MS = 100


def fetch(offset: int, leader_end: int, steady_ms: int, broker_epoch: int = 7) -> FollowerFetch:
    return FollowerFetch(2, offset, 0, broker_epoch, leader_end, steady_ms)


def test_one_that_has_not_fetched_has_proved_nothing() -> None:
    follower = FollowerProgress(2)
    assert (follower.end_offset, follower.log_start_offset, follower.broker_epoch) == (UNKNOWN, UNKNOWN, None)
    # The clock of a loop may begin at 0.
    assert not follower.is_caught_up(10, 0, LAG_MS)


def test_at_the_leaders_end_it_is_caught_up_now() -> None:
    follower = FollowerProgress(2)
    assert follower.note(fetch(10, 10, 1_000))
    assert follower.caught_up_ms == 1_000
    assert not follower.note(fetch(10, 10, 2_000))
    assert follower.caught_up_ms == 2_000


def test_always_a_batch_behind_it_keeps_up_all_the_same() -> None:
    """It now has what the leader had at the fetch before."""
    follower = FollowerProgress(2)
    for number in range(1, 6):
        follower.note(fetch(number * 10, number * 10 + 10, number * 1_000))
    assert follower.caught_up_ms == 4_000


def test_one_that_falls_behind_further_and_further_does_not() -> None:
    follower = FollowerProgress(2)
    follower.note(fetch(10, 10, 1_000))
    for number in range(2, 6):
        follower.note(fetch(10 + number, number * 100, number * 1_000))
    assert follower.caught_up_ms == 1_000
    assert follower.is_caught_up(500, 1_000 + LAG_MS, LAG_MS)
    assert not follower.is_caught_up(500, 1_001 + LAG_MS, LAG_MS)


def test_it_may_go_back_when_it_has_cut_its_log() -> None:
    follower = FollowerProgress(2)
    follower.note(fetch(10, 10, 1_000))
    assert follower.note(fetch(8, 10, 2_000))
    assert (follower.end_offset, follower.caught_up_ms) == (8, 1_000)


def test_a_new_epoch_gives_time_to_those_in_the_isr_only() -> None:
    inside, outside = FollowerProgress(2), FollowerProgress(3)
    for follower in (inside, outside):
        follower.note(fetch(10, 10, 1_000))
    inside.begin_epoch(10, 5_000, in_sync=True)
    outside.begin_epoch(10, 5_000, in_sync=False)
    assert (inside.end_offset, inside.caught_up_ms) == (10, 5_000)
    assert (outside.end_offset, outside.caught_up_ms) == (10, NEVER_MS)
    outside.note(fetch(10, 12, 6_000))
    # At no time of this epoch yet did it have the leader's records.
    assert outside.caught_up_ms == NEVER_MS
    outside.note(fetch(12, 12, 7_000))
    assert outside.caught_up_ms == 7_000


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 50)), max_size=20))
def test_it_was_caught_up_only_at_a_time_at_which_it_had_what_the_leader_had(
    steps: list[tuple[int, int, int]],
) -> None:
    """Compare with the definition: the greatest time at which the leader's end was no further than the follower's end,
    at that time or at one of its fetches."""
    follower = FollowerProgress(2)
    leader_end = now_ms = 0
    ends: list[tuple[int, int]] = []
    caught_up: list[int] = []
    for back, growth, pause_ms in steps:
        leader_end += growth
        now_ms += pause_ms
        offset = max(0, leader_end - back)
        follower.note(fetch(offset, leader_end, now_ms))
        ends.append((leader_end, now_ms))
        caught_up += [at for end, at in ends if end <= offset]
        assert follower.caught_up_ms <= max(caught_up, default=NEVER_MS)
        assert follower.caught_up_ms == NEVER_MS or follower.caught_up_ms in caught_up
