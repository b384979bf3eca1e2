"""EndTxn, versions 0-5. KIP-98; KIP-890 (version 5: the epoch rises, and the answer says the identity to go on with).

It commits or aborts, even if the same end is requested again. The response is sent when the decision is committed in
`__transaction_state`; the markers follow.
"""

from __future__ import annotations

from pykbroker.coordinator.transaction.service import known_to
from pykbroker.coordinator.transaction.shard import Producer
from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may_write
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5


def handle(ctx: BrokerContext, request: EndTxnRequest) -> Later[EndTxnResponse]:
    if not may_write(ctx, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    version = ctx.api_version
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    ended = ctx.services.transactions.end(
        producer, request.committed, 2 if version >= _EPOCH_BUMP_FROM else 0, in_order(ctx)
    )
    return then(
        ended,
        lambda identity: EndTxnResponse(
            error_code=known_to(version, _FENCED_FROM, identity.error),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        ),
    )


HANDLERS = Handlers(handle)
