"""A broker passes requests of TABLE's `forward` rows on to the active controller, as it received them (KIP-590).

Not responsible for finding the controller: the channel does, anew for each try. While there is no controller, or it
changes, the request is tried again for TIMEOUT_MS, about as long as a client waits; then the connection closes, as
there is no answer to give.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import Any

from pykbroker.net.connection import CloseConnection
from pykbroker.serving.context import BrokerContext
from pykbroker.serving.dispatch import ForwardedResponse
from pykbroker.serving.principals import encode_principal
from pykbroker.serving.rows import Row
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.envelope import EnvelopeRequest

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
TIMEOUT_MS = 30_000


def packed_address(host: str) -> bytes:
    """4 or 16 bytes; a peer without an address (in-memory transports) counts as loopback."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b"\x7f\x00\x00\x01"


def forward(row: Row, ctx: BrokerContext, frame: memoryview) -> asyncio.Future[ForwardedResponse]:
    """Send it on. The frame is copied: it is only valid during dispatch."""
    services = ctx.services
    loop = services.runtime.loop
    envelope = EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=encode_principal(ctx.principal),
        client_host_address=packed_address(ctx.client_host),
    )
    answer: asyncio.Future[ForwardedResponse] = loop.create_future()
    deadline = loop.time() + TIMEOUT_MS / 1000

    def send() -> None:
        if not answer.done():
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            services.controller_channel.send(envelope, left_ms).add_done_callback(arrived)

    def arrived(future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
            return
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            logger.error("%s request from %s failed at the controller", row.name, ctx.client_host, exc_info=error)
            answer.set_exception(CloseConnection("internal error"))
            return
        # A number, not an ErrorCode: a newer controller may know codes that we do not.
        code: int = ErrorCode.NONE if error is not None else future.result().error_code
        if error is None and code == ErrorCode.NONE:
            answer.set_result(ForwardedResponse(future.result().response_data))
        elif (error is not None or code == ErrorCode.NOT_CONTROLLER) and loop.time() < deadline:
            loop.call_later(RETRY_SECONDS, send)
        else:
            answer.set_exception(
                CloseConnection(f"the controller did not answer a {row.name} request: {error or f'error {code}'}")
            )

    send()
    return answer
