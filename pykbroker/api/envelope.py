"""Envelope, version 0, on controller listeners. KIP-590: a broker passes on a client's request with the client's
principal.

The request inside keeps its own header and version; what runs is the row of TABLE with `forward`. Anything else inside
is INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
import ipaddress
from struct import Struct
from typing import Any

from pykbroker.api import TABLE, On
from pykbroker.coordinator.later import judged
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.security.session import Session
from pykbroker.serving.context import RequestContext
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.default_principal_data import DefaultPrincipalData
from pykbroker_wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from pykbroker_wire.primitives import DecodeError

_INT16 = Struct(">h")
_FORWARDED = {int(row.key): row for row in TABLE if row.forward and row.on & On.CONTROLLER}


class ForwardedPeer:
    """The client behind an Envelope."""

    __slots__ = (
        "client_host",
        "client_software_name",
        "client_software_version",
        "listener_name",
        "security_protocol",
        "session",
        "zero_copy",
    )

    def __init__(self, session: Session, client_host: str, listener_name: str, security_protocol: str) -> None:
        self.session = session
        self.client_host = client_host
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.zero_copy = False


def encode_principal(principal: str) -> bytes:
    """The bytes of Kafka's default principal serde: version, then DefaultPrincipalData."""
    kind, _, name = principal.partition(":")
    return _INT16.pack(0) + DefaultPrincipalData(type=kind, name=name, token_authenticated=False).encode_bytes(0)


def decode_principal(data: bytes) -> Session:
    """Raises DecodeError."""
    if len(data) < 2:
        raise DecodeError("a principal needs a version")
    (version,) = _INT16.unpack_from(data)
    if version != 0:
        raise DecodeError(f"principal of version {version}")
    principal, _ = DefaultPrincipalData.decode(data, 2, version)
    return Session(f"{principal.type}:{principal.name}")


def handle(ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse | asyncio.Future[EnvelopeResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not ctx.controller.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        session = decode_principal(request.request_principal or b"")
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        host = str(ipaddress.ip_address(request.client_host_address))
        data = memoryview(request.request_data)
        header, position = RequestHeader.decode(data, 0)
        row = _FORWARDED.get(header.api_key)
        if row is None:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        api = APIS[header.api_key]
        if not api.min_version <= header.version <= api.max_version:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = api.request.decode(data, position, header.version)
    except (DecodeError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    peer = ForwardedPeer(session, host, ctx.listener_name, ctx.security_protocol)
    inner_ctx = RequestContext(
        peer, ctx.services, header.api_key, header.version, header.correlation_id, header.client_id, ctx.arrival_ms
    )
    result = ctx.controller.handlers[header.api_key](inner_ctx, inner)
    if not isinstance(result, asyncio.Future):
        return _wrap(inner_ctx, result)
    return judged(
        result, lambda response: _wrap(inner_ctx, response), lambda error: EnvelopeResponse(error_code=error.code)
    )


def _wrap(ctx: RequestContext, response: Any) -> EnvelopeResponse:
    frame = b"".join(
        encode_response(ctx.correlation_id, ctx.api_key, ctx.api_version, response.encode(ctx.api_version))
    )
    # Without the size: the broker puts its own in front.
    return EnvelopeResponse(response_data=frame[4:])
