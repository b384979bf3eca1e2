"""The answer of a coordinator decides whether a transaction that is open in a partition hangs."""

from __future__ import annotations

from typing import cast

import pytest

from pykbroker.tools.cluster import transactions
from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.failure import AskFailed, failed
from pykbroker.tools.cluster.transactions import ListedTransaction, ProducerInPartition
from pykbroker_wire.errors import ErrorCode

PLACE = ("t", 0)
OPEN = ProducerInPartition(7, 0, 0, 0, last_timestamp_ms=0, started_at=5)
NO_CLUSTER = cast(AskedCluster, None)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[ErrorCode]:
    """The error that the coordinator of the transaction answers with."""
    errors: list[ErrorCode] = []

    def described(cluster: AskedCluster, transactional_id: str) -> None:
        raise failed(errors[0])

    monkeypatch.setattr(transactions, "producers", lambda *_: {PLACE: [OPEN]})
    monkeypatch.setattr(transactions, "listed", lambda *_, **__: [ListedTransaction("id", 1, 7, "Ongoing")])
    monkeypatch.setattr(transactions, "described", described)
    return errors


def test_a_transaction_that_no_coordinator_knows_hangs(answers: list[ErrorCode]) -> None:
    answers.append(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert [one.place for one in transactions.hanging(NO_CLUSTER, [PLACE], 1).found] == [PLACE]


def test_a_coordinator_that_does_not_answer_proves_nothing(answers: list[ErrorCode]) -> None:
    """An operator aborts what the list names, so it names no transaction that may be alive."""
    answers.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(AskFailed):
        transactions.hanging(NO_CLUSTER, [PLACE], 1)
