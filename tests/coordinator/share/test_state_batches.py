"""The merge of delivery states, compared with one state for each offset."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.coordinator.share.state_batches import NO_START, PersistedBatch, are_merged, merged

MOST = 24

batches = st.lists(
    st.builds(
        PersistedBatch, st.integers(0, MOST), st.integers(0, MOST), st.sampled_from([0, 2, 4]), st.integers(1, 3)
    ),
    max_size=8,
)
starts = st.integers(NO_START, MOST + 2)


def by_offset(*lists: list[PersistedBatch], start: int) -> dict[int, tuple[int, int]]:
    """Return the (delivery count, state) of each offset, the slow way."""
    found: dict[int, tuple[int, int]] = {}
    for batch in (batch for each in lists for batch in each):
        for offset in range(max(batch.first, start), batch.last + 1):
            at = (batch.delivery_count, batch.delivery_state)
            found[offset] = max(at, found.get(offset, at))
    return found


@given(batches, batches, starts, starts)
def test_each_offset_has_the_highest_state(
    one: list[PersistedBatch], other: list[PersistedBatch], first_start: int, start: int
) -> None:
    so_far = merged((), one, first_start)
    found = merged(so_far, other, start)
    kept = [batch._replace(first=max(batch.first, first_start)) for batch in one]
    assert by_offset(list(found), start=NO_START) == by_offset(kept, other, start=start)
    assert are_merged(found)


@given(batches, starts)
def test_equal_neighbours_are_one_batch(one: list[PersistedBatch], start: int) -> None:
    found = merged((), one, start)
    for left, right in pairwise(found):
        assert (left.last + 1, left[2:]) != (right.first, right[2:])


@pytest.mark.parametrize(
    ("so_far", "new", "start", "expected"),
    [
        # the examples of Apache Kafka's own tests
        ([(100, 110, 0, 1)], [(100, 110, 2, 1)], -1, [(100, 110, 2, 1)]),
        ([(100, 110, 0, 1)], [(100, 105, 0, 2)], -1, [(100, 105, 0, 2), (106, 110, 0, 1)]),
        ([(100, 110, 0, 1)], [(105, 108, 0, 2)], -1, [(100, 104, 0, 1), (105, 108, 0, 2), (109, 110, 0, 1)]),
        ([(100, 110, 2, 2)], [(105, 115, 0, 1)], -1, [(100, 110, 2, 2), (111, 115, 0, 1)]),
        ([(100, 109, 0, 1)], [(110, 119, 0, 1)], -1, [(100, 119, 0, 1)]),
        ([(100, 109, 0, 1)], [(110, 119, 0, 2)], -1, [(100, 109, 0, 1), (110, 119, 0, 2)]),
        ([(100, 130, 0, 1)], [], 120, [(120, 130, 0, 1)]),
        ([(100, 130, 0, 1)], [(110, 140, 0, 1)], 150, []),
        # several are replaced by one
        ([(0, 1, 2, 1), (4, 5, 4, 1), (8, 9, 2, 1)], [(0, 9, 0, 2)], -1, [(0, 9, 0, 2)]),
        # the gaps between them are filled
        ([(2, 3, 4, 2), (6, 7, 4, 2)], [(0, 9, 0, 1)], -1)
        + ([(0, 1, 0, 1), (2, 3, 4, 2), (4, 5, 0, 1), (6, 7, 4, 2), (8, 9, 0, 1)],),
        # a range that ends before it begins
        ([(5, 6, 0, 1)], [(9, 8, 2, 9)], -1, [(5, 6, 0, 1)]),
    ],
)
def test_merges(
    so_far: list[tuple[int, int, int, int]],
    new: list[tuple[int, int, int, int]],
    start: int,
    expected: list[tuple[int, int, int, int]],
) -> None:
    assert list(merged(_batches(so_far), _batches(new), start)) == _batches(expected)


def _batches(found: list[tuple[int, int, int, int]]) -> list[PersistedBatch]:
    return [PersistedBatch(*each) for each in found]


def test_unsorted_and_overlapping_batches_are_not_merged() -> None:
    assert are_merged(())
    assert are_merged(_batches([(0, 1, 0, 1), (2, 3, 0, 1)]))
    assert not are_merged(_batches([(2, 3, 0, 1), (0, 1, 0, 1)]))
    assert not are_merged(_batches([(0, 2, 0, 1), (2, 3, 0, 1)]))
    assert not are_merged(_batches([(3, 2, 0, 1)]))
