"""InitProducerId, versions 0-5. KIP-98, KIP-360 (an epoch to go on from, version 3), KIP-588 (PRODUCER_FENCED, 4).

It is for idempotent and transactional producers. For a transactional id the epoch rises, a new producer id follows when
the epochs are used up, and an open transaction is aborted first (until then CONCURRENT_TRANSACTIONS). Two-phase commit
(KIP-939) needs version 6, which is not stable in 4.3 and is not served.
"""

from __future__ import annotations

from pykbroker.coordinator.transaction.service import known_to
from pykbroker.coordinator.transaction.shard import Identity
from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may_write
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, judged, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_FROM = 4


def handle(ctx: BrokerContext, request: InitProducerIdRequest) -> Later[InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not may_write(ctx, transactional_id):
            return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not ctx.authorize(
        Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME, quiet=True
    ) and not ctx.authorize_some(Operation.WRITE, Resource.TOPIC):
        return _error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return _idempotent(ctx)
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    identity = ctx.services.transactions.init_producer_id(
        transactional_id, request.transaction_timeout_ms, expected, in_order(ctx)
    )
    return then(identity, lambda answer: _answer(ctx.api_version, answer))


def _answer(version: int, identity: Identity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=known_to(version, _FENCED_FROM, identity.error),
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )


def _idempotent(ctx: BrokerContext) -> Later[InitProducerIdResponse]:
    taken = ctx.services.producer_ids.take()
    if isinstance(taken, int):
        return _fresh(taken)
    return judged(taken, _fresh, lambda error: _error(error.code))


def _fresh(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLERS = Handlers(handle)
