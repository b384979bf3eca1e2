"""The share partition compared with its model, offset by offset, after each of many random events."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from pykbroker.share_partitions import in_flight, settlement, share_partition
from tests.share_partitions.share_partition_machine import SharePartitionEvents

pytestmark = pytest.mark.slow

EXAMPLES = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (share_partition, settlement):
        monkeypatch.setattr(module, "PER_TURN", 2)
    monkeypatch.setattr(share_partition, "EXPIRED_PER_TURN", 2)


class DividedBatches(SharePartitionEvents):
    """Batches in flight are divided at every third offset. At the delivery limit 2 nothing is throttled, because
    throttling goes by the size of a batch."""

    divides_batches = True
    delivery_limits = st.just(2)


def test_random_events() -> None:
    run_state_machine_as_test(SharePartitionEvents, settings=EXAMPLES)


def test_random_events_where_batches_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "MOST_TRACKED", 3)
    run_state_machine_as_test(DividedBatches, settings=EXAMPLES)
