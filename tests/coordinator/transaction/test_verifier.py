"""Verification by a coordinator on another broker: batches, the meaning of answers, and errors that pass with time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pykbroker.coordinator.transaction.verifier import Verifier
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.coordinator.fakes import as_runtime
from tests.coordinator.transaction.transaction_bench import HERE, TOPIC, TransactionBench

THERE = 2
T0, T1 = ("t", 0), ("t", 1)


class Asking:
    def __init__(self) -> None:
        self.bench = TransactionBench()
        self.bench.cluster.leaders[TOPIC, 0] = THERE
        self.sent: list[tuple[AddPartitionsToTxnRequest, asyncio.Future[Any]]] = []
        self.verifier = Verifier(
            as_runtime(self.bench.world),
            self.bench.config,
            HERE,
            cast(Any, self.bench.cluster),
            self.bench.service,
            self._send,
        )

    def _send(self, broker: int, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        assert broker == THERE
        future: asyncio.Future[Any] = self.bench.loop.create_future()
        self.sent.append((request, future))
        return future

    def answer(self, code: ErrorCode = ErrorCode.NONE, whole: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnRequest:
        request, future = self.sent.pop(0)
        results = [
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in request.transactions
        ]
        future.set_result(AddPartitionsToTxnResponse(error_code=whole, results_by_transaction=results))
        self.bench.loop.settle()
        return request


def told(value: Any) -> Any:
    assert isinstance(value, asyncio.Future)
    assert value.done()
    return value.result()


def test_what_comes_while_one_request_is_under_way_goes_together() -> None:
    asking = Asking()
    first = asking.verifier.verify("x", 1, 0, [T0], add=True)
    more = [
        asking.verifier.verify("x", 1, 0, [T1], add=True),
        asking.verifier.verify("x", 1, 0, [T0], add=True),
        asking.verifier.verify("y", 2, 5, [T0], add=False),
        # Another epoch of the same id cannot be in the same request.
        asking.verifier.verify("x", 1, 1, [T0], add=True),
    ]
    asking.answer()
    assert told(first) == {T0: ErrorCode.NONE}
    second = asking.answer()
    assert [(each.transactional_id, each.producer_epoch, each.verify_only) for each in second.transactions] == [
        ("x", 0, False),
        ("y", 5, True),
    ]
    assert second.transactions[0].topics[0].partitions == [1, 0]
    assert [told(each) for each in more[:3]] == [{T1: 0}, {T0: 0}, {T0: 0}]
    third = asking.answer()
    assert [each.producer_epoch for each in third.transactions] == [1]
    assert told(more[3]) == {T0: ErrorCode.NONE}
    assert asking.sent == []


@pytest.mark.parametrize(
    ("code", "told_as"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_an_answer_means(code: ErrorCode, told_as: ErrorCode) -> None:
    asking = Asking()
    waiting = asking.verifier.verify("x", 1, 0, [T0], add=False)
    asking.answer(code)
    assert told(waiting) == {T0: told_as}


def test_brokers_keep_their_troubles_to_themselves() -> None:
    asking = Asking()
    waiting = asking.verifier.verify("x", 1, 0, [T0], add=False)
    asking.answer(whole=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert told(waiting) == {T0: ErrorCode.INVALID_TXN_STATE}
    waiting = asking.verifier.verify("x", 1, 0, [T0], add=False)
    asking.sent.pop()[1].set_exception(ConnectionError("gone"))
    asking.bench.loop.settle()
    assert told(waiting) == {T0: ErrorCode.NETWORK_EXCEPTION}
    asking.bench.cluster.leaders[TOPIC, 0] = -1
    assert asking.verifier.verify("x", 1, 0, [T0], add=False) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_between_two_transactions_it_asks_again_for_a_while() -> None:
    asking = Asking()
    renewed: list[int] = []
    waiting = asking.verifier.verify("x", 1, 0, [T0], add=True, before_again=lambda: renewed.append(len(asking.sent)))
    asking.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not cast(Any, waiting).done()
    assert renewed == []
    asking.bench.advance(20)
    # New guards are taken before the coordinator is asked again.
    assert renewed == [0]
    assert len(asking.sent) == 1
    asking.answer()
    assert told(waiting) == {T0: ErrorCode.NONE}
    waiting = asking.verifier.verify("x", 1, 0, [T0], add=True)
    for _ in range(6):
        asking.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        asking.bench.advance(20)
    assert told(waiting) == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    # A client that has added partitions by itself gets the answer at once.
    waiting = asking.verifier.verify("x", 1, 0, [T0], add=False)
    asking.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert told(waiting) == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
