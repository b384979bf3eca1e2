"""AllocateProducerIds, version 0, on controller listeners: the next 1,000 producer ids for a broker. KIP-730."""

from __future__ import annotations

import asyncio

from pykbroker.controller.brokers import allocate_producer_ids
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def handle(ctx: ControllerContext, request: AllocateProducerIdsRequest) -> asyncio.Future[AllocateProducerIdsResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(AllocateProducerIdsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return respond(
        ctx,
        ctx.services.controller.submit(
            "AllocateProducerIds",
            lambda state, now_ms: allocate_producer_ids(state, request.broker_id, request.broker_epoch),
        ),
        lambda block: AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size),
        lambda error: AllocateProducerIdsResponse(error_code=error.code),
    )


HANDLERS = Handlers(handle)
