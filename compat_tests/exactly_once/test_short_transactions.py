"""Transactional Java producers with their defaults on three nodes: exact totals, and no error at all without faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from compat_tests import needs
from compat_tests.exactly_once.short_transactions import Task, Transactions
from compat_tests.exactly_once.three_nodes import ThreeNodes
from compat_tests.mixed_cluster.members import Cluster
from compat_tests.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow

SHORT = Task(producers=4, transactions=30, records=6)


@pytest.fixture(scope="module")
def cluster(against: str) -> Iterator[Cluster]:
    """Three nodes whose coordinators have as many partitions as by default."""
    needs.java()
    kafka_libs()
    with closing(ThreeNodes(against, {"min.insync.replicas": "1"})) as nodes:
        yield nodes.start().cluster
        assert not nodes.cluster.complaints()


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
def test_producers_see_no_error_at_all(cluster: Cluster, task: Task) -> None:
    """Each batch that begins a transaction in a partition waits for a coordinator on another node, while the next
    batches of its connection come."""
    with closing(Transactions(cluster, task)) as transactions:
        outcome = transactions.end()
        assert (outcome.errors, outcome.fatal, outcome.in_doubt) == ({}, {}, [])
        assert len(outcome.committed) == task.producers * task.transactions
        transactions.check_records(outcome)
        print(f"{len(outcome.committed) / outcome.seconds:.1f} transactions per second")
