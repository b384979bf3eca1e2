"""How far the replica set has come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.replica.isr import high_watermark

ENDS = st.integers(0, 50)


def test_alone_the_leader_decides() -> None:
    assert high_watermark(3, 10, {}, (1,), 1) == 10


def test_the_slowest_in_sync_replica_decides() -> None:
    assert high_watermark(3, 10, {2: 7, 3: 9, 4: 1}, (1, 2, 3), 1) == 7


def test_one_that_has_not_fetched_has_proved_nothing() -> None:
    assert high_watermark(3, 10, {2: 7}, (1, 2, 3), 1) == 3


@given(ENDS, ENDS, st.dictionaries(st.integers(2, 5), ENDS), st.sets(st.integers(2, 5)))
def test_it_never_moves_back_nor_past_an_in_sync_replica(
    current: int, end: int, followers: dict[int, int], in_sync: set[int]
) -> None:
    reached = high_watermark(current, end, followers, {1} | in_sync, 1)
    assert reached >= current
    if reached > current:
        assert reached <= end
        assert all(followers.get(replica, 0) >= reached for replica in in_sync)
