"""DescribeTransactions, version 0. The state of transactional ids that this node coordinates. KIP-664.

Topics that the client may not describe are left out.
"""

from __future__ import annotations

from pykbroker.coordinator.transaction.records import Transaction
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may_describe
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, gather, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(ctx: BrokerContext, request: DescribeTransactionsRequest) -> Later[DescribeTransactionsResponse]:
    parts: list[Later[TransactionState]] = [_one(ctx, each) for each in request.transactional_ids]
    states: Later[list[TransactionState]] = gather(parts)
    return then(states, lambda answers: DescribeTransactionsResponse(transaction_states=answers))


def _one(ctx: BrokerContext, transactional_id: str) -> Later[TransactionState]:
    if not may_describe(ctx, transactional_id):
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    described = ctx.services.transactions.describe(transactional_id)
    return then(described, lambda answer: _state(ctx, transactional_id, *answer))


def _state(ctx: BrokerContext, transactional_id: str, code: ErrorCode, found: Transaction | None) -> TransactionState:
    if found is None:
        return TransactionState(transactional_id=transactional_id, error_code=code)
    start_ms = found.start_ms
    if start_ms >= 0:
        # Clients subtract it from their own time. So a test that moves the clock sees the time that it let pass.
        start_ms = max(0, start_ms - ctx.services.runtime.client_clock.jumps.after(start_ms))
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        by_topic.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.kafka_name,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
            if ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
        ],
    )


HANDLERS = Handlers(handle)
