"""Leaders of share partitions under random events (leader_events.py)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from pykbroker.share_leaders import dead_letter_flow, fetch_wakes
from pykbroker.share_partitions import acknowledged_ranges, settlement, share_partition
from tests.share_leaders.leader_events import LeaderEvents


def test_members_get_what_share_groups_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (share_partition, settlement, acknowledged_ranges):
        monkeypatch.setattr(module, "PER_TURN", 2)
    monkeypatch.setattr(fetch_wakes, "WAKES_PER_TURN", 1)
    monkeypatch.setattr(dead_letter_flow, "MOST_UNDER_WAY", 2)
    run_state_machine_as_test(
        LeaderEvents, settings=settings(max_examples=150, stateful_step_count=40, deadline=None, database=None)
    )
