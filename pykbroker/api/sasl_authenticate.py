"""SaslAuthenticate, versions 0-2, on a listener without SASL. It answers ILLEGAL_SASL_STATE, and the connection stays
(KIP-152)."""

from __future__ import annotations

from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(ctx: AnyContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


HANDLERS = Handlers(handle)
