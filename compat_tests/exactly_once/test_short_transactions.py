"""Transactional Java producers with their defaults on three nodes: exact totals, and no error at all without faults."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle

import pytest

from compat_tests.exactly_once.short_transactions import Task, Transactions
from compat_tests.exactly_once.three_nodes import NUMBERS, ThreeNodes
from compat_tests.mixed_cluster.members import Cluster
from testkit import needs
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow

KILLED_EVERY_S = 20
#: Errors that the producers get under kills on three nodes of Apache Kafka.
MET: set[str] = set()
SHORT = Task(producers=4, transactions=30, records=6)


@pytest.fixture(scope="module")
def nodes(against: str) -> Iterator[ThreeNodes]:
    """Three nodes whose coordinators have the default number of partitions."""
    needs.java()
    kafka_libs()
    with closing(ThreeNodes(against, {"min.insync.replicas": "1"})) as nodes:
        yield nodes.start()
        assert not nodes.cluster.complaints()


@pytest.fixture(scope="module")
def cluster(nodes: ThreeNodes) -> Cluster:
    return nodes.cluster


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
    batches of its connection arrive."""
    with closing(Transactions(cluster, task)) as transactions:
        outcome = transactions.end()
        assert (outcome.errors, outcome.fatal, outcome.in_doubt) == ({}, {}, [])
        assert len(outcome.committed) == task.producers * task.transactions
        transactions.check_records(outcome)
        print(f"{len(outcome.committed) / outcome.seconds:.1f} transactions per second")


def killed_and_moved(nodes: ThreeNodes, transactions: Transactions) -> None:
    """Kill one node after the other, and move the topic's replicas to other nodes each time."""
    for first in cycle(NUMBERS):
        until = time.monotonic() + KILLED_EVERY_S
        nodes.kill()
        nodes.come_back()
        transactions.move(first)
        while time.monotonic() < until:
            if not transactions.is_running:
                return
            time.sleep(0.2)


@pytest.mark.long(amount="200 s, in which a node is killed every 20 s and all partitions move")
@pytest.mark.timeout(1800)
def test_kills_and_moves_end_no_producer(nodes: ThreeNodes) -> None:
    """`--against apache-kafka` shows the errors that its brokers cause in the same time."""
    seconds = int(os.environ.get("PYKBROKER_KILLS_SECONDS", "200"))
    task = Task(producers=4, records=6, seconds=seconds, replicas=2)
    with closing(Transactions(nodes.cluster, task)) as transactions:
        killed_and_moved(nodes, transactions)
        outcome = transactions.end()
        transactions.check_records(outcome)
    print(f"{len(outcome.committed)} committed in {outcome.seconds:.0f} s, {len(outcome.in_doubt)} in doubt")
    print(f"errors {outcome.errors}, fatal {outcome.fatal}")
    assert outcome.fatal == {}
    assert outcome.errors.keys() <= MET
