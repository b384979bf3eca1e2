"""ListTransactions, versions 0-2: what this node coordinates. KIP-664; KIP-994 (duration, 1); KIP-1152 (pattern, 2).

It supports every filter. An unknown state is returned in the response, and the other states still filter. Only ids that
the client may describe are listed.
"""

from __future__ import annotations

from pykbroker.coordinator.group.consumer.regex import Pattern, compile_pattern
from pykbroker.coordinator.transaction.records import Transaction
from pykbroker.coordinator.transaction.states import BY_NAME
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may_describe
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(ctx: BrokerContext, request: ListTransactionsRequest) -> Later[ListTransactionsResponse]:
    wanted = list(dict.fromkeys(request.state_filters))
    states = {BY_NAME[name] for name in wanted if name in BY_NAME}
    unknown = [name for name in wanted if name not in BY_NAME]
    pattern: Pattern | None = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_pattern(request.transactional_id_pattern)
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
    found = ctx.services.transactions.list_transactions(
        states if wanted else None, frozenset(request.producer_id_filters), request.duration_filter
    )
    return then(found, lambda answer: _response(ctx, *answer, unknown, pattern))


def _response(
    ctx: BrokerContext,
    code: ErrorCode,
    found: list[tuple[str, Transaction]],
    unknown: list[str],
    pattern: Pattern | None,
) -> ListTransactionsResponse:
    if code:
        return ListTransactionsResponse(error_code=code)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.kafka_name,
            )
            for transactional_id, transaction in found
            if (pattern is None or pattern.matches(transactional_id)) and may_describe(ctx, transactional_id)
        ],
    )


HANDLERS = Handlers(handle)
