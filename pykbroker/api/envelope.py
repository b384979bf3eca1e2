"""Envelope, version 0, on controller listeners. KIP-590: a broker passes on a client's request with the client's
principal.

The request inside keeps its own header and version, and the row of TABLE with `forward` handles it. A request without
such a row gets INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from pykbroker.dispatch.context import ControllerContext, RequestContext
from pykbroker.dispatch.dispatcher import logged_request
from pykbroker.dispatch.peers import ForwardedPeer
from pykbroker.dispatch.principals import decode_principal
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import judged
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from pykbroker_wire.primitives import DecodeError, TopLevel

if TYPE_CHECKING:
    from pykbroker.dispatch.request_log import LoggedRequest


def handle(ctx: ControllerContext, request: EnvelopeRequest) -> EnvelopeResponse | asyncio.Future[EnvelopeResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not ctx.services.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        session = decode_principal(request.request_principal or b"")
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        host = str(ipaddress.ip_address(request.client_host_address))
        data = memoryview(request.request_data)
        header, position = RequestHeader.decode(data, 0)
        row = ctx.services.rows.find(header.api_key)
        if row is None or not row.api.forward:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not row.min_version <= header.version <= row.max_version:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = row.decode(data, position, header.version)
    except (DecodeError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    peer = ForwardedPeer(session, host, ctx.listener_name, ctx.security_protocol)
    inner_ctx = RequestContext(
        peer, ctx.services, header.api_key, header.version, header.correlation_id, header.client_id, ctx.arrival_ms
    )
    logged = logged_request(ctx.services.runtime.stopwatch_ms)
    if logged is not None:
        logged.opened(inner_ctx, inner, envelope=ctx)
    result = row.handle(inner_ctx, inner)
    if logged is not None:
        logged.handled()
    if not isinstance(result, asyncio.Future):
        return _wrap(inner_ctx, result, logged)
    return judged(
        result,
        lambda response: _wrap(inner_ctx, response, logged),
        lambda error: EnvelopeResponse(error_code=error.code),
    )


def _wrap(ctx: ControllerContext, response: TopLevel, logged: LoggedRequest | None) -> EnvelopeResponse:
    if logged is not None:
        logged.answered()
        logged.tell(response)
    frame = b"".join(
        encode_response(ctx.correlation_id, ctx.api_key, ctx.api_version, response.encode(ctx.api_version))
    )
    # The size is left out, because the broker writes its own size before the response.
    return EnvelopeResponse(response_data=frame[4:])


HANDLERS = Handlers(handle)
