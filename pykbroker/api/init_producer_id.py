"""InitProducerId, versions 0-5. KIP-98, KIP-360.

Works: idempotent producers. Gap: a transactional id is answered with UNSUPPORTED_VERSION until the transaction
coordinator moves in; requests that Apache Kafka refuses are refused in its order before that.
"""

from __future__ import annotations

import asyncio

from pykbroker.api.context import RequestContext
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
            return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not ctx.authorize(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME) and not any(
        ctx.authorize(Operation.WRITE, Resource.TOPIC, name) for name in ctx.broker.metadata.image.topics.by_name
    ):
        return _error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        if not transactional_id:
            return _error(ErrorCode.INVALID_REQUEST)
        if not 0 < request.transaction_timeout_ms <= ctx.broker.config.int("transaction.max.timeout.ms"):
            return _error(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return _error(ErrorCode.UNSUPPORTED_VERSION)
    taken = ctx.broker.producer_ids.take()
    if isinstance(taken, int):
        return InitProducerIdResponse(producer_id=taken, producer_epoch=0)
    answer: asyncio.Future[InitProducerIdResponse] = ctx.broker.runtime.loop.create_future()

    def arrived(future: asyncio.Future[int]) -> None:
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
            return
        error = future.exception()
        if error is None:
            answer.set_result(InitProducerIdResponse(producer_id=future.result(), producer_epoch=0))
        elif isinstance(error, KafkaError):
            answer.set_result(_error(error.code))
        else:
            answer.set_exception(error)

    taken.add_done_callback(arrived)
    return answer


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
