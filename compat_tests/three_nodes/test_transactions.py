"""Transactional Java producers with their defaults on three nodes: exact totals, and no error at all without faults."""

from __future__ import annotations

from contextlib import closing

import pytest

from compat_tests.three_nodes.clusters import Both
from compat_tests.three_nodes.transactions import Task, Transactions

SHORT = Task(producers=4, transactions=30, records=6)


@pytest.mark.parametrize(
    "task",
    [
        SHORT,
        pytest.param(
            Task(producers=4, transactions=300, records=6),
            marks=[pytest.mark.long(amount="1,200 transactions"), pytest.mark.timeout(900)],
        ),
        pytest.param(
            Task(producers=2, transactions=60, records=2_000),
            marks=[pytest.mark.long(amount="240,000 records"), pytest.mark.timeout(900)],
        ),
    ],
    ids=["short", "many", "large"],
)
def test_producers_see_no_error_at_all(both: Both, task: Task) -> None:
    """Each batch that begins a transaction in a partition waits for a coordinator on another node, while the next
    batches of its connection come."""
    with closing(Transactions(both.ours, task)) as transactions:
        outcome = transactions.end()
        assert (outcome.errors, outcome.fatal, outcome.in_doubt) == ({}, {}, [])
        assert len(outcome.committed) == task.producers * task.transactions
        transactions.check_records(outcome)
        print(f"{len(outcome.committed) / outcome.seconds:.1f} transactions per second")
