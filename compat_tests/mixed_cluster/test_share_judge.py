"""The judge of share_members.py finds lost records, repeated ones, and wrong delivery counts."""

from __future__ import annotations

import pytest

from compat_tests.mixed_cluster.share_members import Event, judge

BOTH = [Event("D", 0, 1), Event("D", 1, 1)]


@pytest.mark.parametrize(
    "events",
    [
        [*BOTH, Event("A", 0, 0), Event("A", 1, 0)],
        # A release is stored, and a delivery without an outcome may be forgotten.
        [*BOTH, Event("R", 0, 0), Event("D", 0, 2), Event("D", 0, 2), Event("D", 0, 3), Event("D", 1, 1)],
    ],
)
def test_events_that_may_happen(events: list[Event]) -> None:
    judge(events, 2)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([Event("D", 0, 1)], "every record was delivered"),
        ([*BOTH, Event("A", 1, 0), Event("D", 1, 2)], "was accepted and came again"),
        ([*BOTH, Event("R", 1, 0), Event("D", 1, 1)], "1 were stored"),
        ([*BOTH, Event("D", 1, 3)], "0 were stored"),
        ([Event("D", 0, 2), Event("D", 1, 1)], "0 were stored"),
    ],
)
def test_events_that_must_not_happen(events: list[Event], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        judge(events, 2)
