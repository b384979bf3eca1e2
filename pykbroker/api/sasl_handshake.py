"""SaslHandshake, versions 0-1, on a listener without SASL. It answers ILLEGAL_SASL_STATE, and the connection stays
(KIP-43)."""

from __future__ import annotations

from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(ctx: AnyContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


HANDLERS = Handlers(handle)
