"""Transactional Java producers with their defaults on three nodes: exact totals, and no error at all without faults."""

from __future__ import annotations

import os
import time
from contextlib import closing
from itertools import cycle

import pytest

from compat_tests.mixed_cluster.members import Cluster
from compat_tests.three_nodes.clusters import Both
from compat_tests.three_nodes.transactions import Outcome, Task, Transactions

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


#: What no client may see: a batch that was overtaken, or met a guard of another transaction.
NEVER = {"InvalidTxnStateException", "OutOfOrderSequenceException"}
KILLED_EVERY_S = 20


def killed_and_moved(cluster: Cluster, task: Task) -> Outcome:
    """One broker after the other is killed and started again, and leads the topic then."""
    with closing(Transactions(cluster, task)) as transactions:
        for number in cycle(cluster.numbers):
            until = time.monotonic() + KILLED_EVERY_S
            cluster.kill(number)
            cluster.start(number)
            cluster.serving(*cluster.numbers)
            cluster.move(transactions.topic, number)
            while transactions.is_running and time.monotonic() < until:
                time.sleep(0.2)
            if not transactions.is_running:
                break
        outcome = transactions.end()
        transactions.check_records(outcome)
    print(f"{cluster.members[1].kind}: {len(outcome.committed)} committed, {outcome.errors}, fatal {outcome.fatal}")
    return outcome


@pytest.mark.long(amount="10 kills of each kind of broker")
@pytest.mark.timeout(1800)
def test_producers_see_no_other_errors_than_those_of_apache_kafka_under_kills(both: Both) -> None:
    task = Task(producers=4, records=6, seconds=int(os.environ.get("PYKBROKER_KILLS_SECONDS", "200")))
    theirs, ours = (killed_and_moved(cluster, task) for cluster in both.clusters)
    assert not NEVER & ours.errors.keys()
    assert ours.errors.keys() <= theirs.errors.keys()
    assert ours.fatal.keys() <= theirs.fatal.keys()
