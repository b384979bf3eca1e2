"""Delta debugging: the smallest part of the drawn faults that still fails."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker_worlds.checking.shrink import shrink


@given(st.integers(0, 20), st.sets(st.integers(0, 19)))
def test_exactly_the_needed_events_are_left(count: int, needed: set[int]) -> None:
    events = list(range(count))
    wanted = needed & set(events)
    assert shrink(events, lambda part: wanted <= set(part), tries=10_000) == sorted(wanted)


@given(st.integers(1, 12), st.sets(st.frozensets(st.integers(0, 11)), max_size=20))
def test_no_event_of_the_result_can_be_left_out(count: int, failing: set[frozenset[int]]) -> None:
    """The failures need not grow with the events, as in a real world."""
    events = list(range(count))
    fails = {frozenset(events), *failing}
    found = shrink(events, lambda part: frozenset(part) in fails, tries=10_000)
    assert frozenset(found) in fails
    for event in found:
        assert frozenset(found) - {event} not in fails


def test_the_number_of_runs_is_bounded() -> None:
    runs: list[list[int]] = []

    def fails(part: list[int]) -> bool:
        runs.append(part)
        return len(part) > 30

    found = shrink(range(64), fails, tries=7)
    assert len(runs) == 7
    assert 30 < len(found) < 64
