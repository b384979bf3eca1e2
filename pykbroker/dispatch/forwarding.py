"""Forwarding: a broker passes the requests of the APIs with `forward=True` (pykbroker.api.TABLE) on to the active
controller, as it received them (KIP-590).

Not responsible for finding the controller: the channel finds it again for each try. While there is no controller, or it
changes, or it stays silent, the request is tried again. When TIMEOUT_MS have passed, it is answered with
REQUEST_TIMED_OUT. The controller may have carried out a try whose answer was lost. The client of a CreateTopics may
then get TOPIC_ALREADY_EXISTS from the next try. If the controller does not serve Envelopes, or answers an Envelope with
an error, the client gets UNKNOWN_SERVER_ERROR, because it can do nothing about the error. The log has the reason (at
DEBUG). If the controller does not serve the version of the request inside, the broker ends the client's connection, so
that the client asks for the versions again. All this is as in Apache Kafka (ForwardingManager).

One thing differs: if the connection to the controller ends, each request that was under way on it is sent again alone,
on another connection (suspects.py). If the controller ends that connection too, the request is answered with
UNKNOWN_SERVER_ERROR, and other requests are not disturbed. In Apache Kafka such a request makes the tries of all other
requests fail for a minute.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import Any

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.principals import encode_principal
from pykbroker.dispatch.rows import ForwardedResponse, Row
from pykbroker.net.client import Unanswered
from pykbroker.net.connection import CloseConnection
from pykbroker.net.versions import UnsupportedVersion
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, decode_response, encode_request
from pykbroker_wire.messages.envelope import EnvelopeRequest

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
#: As in Apache Kafka's brokers: the time for all tries (retryTimeoutMs), and for one try (the default of
#: controller.socket.timeout.ms).
TIMEOUT_MS = 60_000
TRY_MS = 30_000
#: An upper bound for the bytes of an Envelope's header, its length fields and an address together. It holds
#: because this broker's client id is short.
_ENVELOPE_BYTES = 1024


def packed_address(host: str) -> bytes:
    """Return an IP address as 4 or 16 bytes. A peer without an address (in-memory transports) gets 127.0.0.1."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b"\x7f\x00\x00\x01"


def forward(row: Row, ctx: BrokerContext, frame: memoryview) -> Any:
    """Forward the part of a request that this broker does not settle itself. Return an answer, or a future of one."""
    settled = None if row.on_broker is None else row.on_broker(ctx, _decoded(row, frame))
    if settled is None:
        return _pass_on(row, ctx, frame)
    if settled.rest is None:
        return settled.whole(None)
    whole: asyncio.Future[Any] = ctx.services.runtime.loop.create_future()
    parts = encode_request(row.key, ctx.api_version, ctx.correlation_id, ctx.client_id, settled.rest)

    def answered(future: asyncio.Future[Any]) -> None:
        if whole.done():
            return
        if future.cancelled():
            whole.cancel()
        elif (error := future.exception()) is not None:
            whole.set_exception(error)
        else:
            answer = future.result()
            if isinstance(answer, ForwardedResponse):
                answer = decode_response(row.key, ctx.api_version, answer.data)[1]
            whole.set_result(settled.whole(answer))

    _pass_on(row, ctx, memoryview(b"".join(parts)[4:])).add_done_callback(answered)
    return whole


def _pass_on(row: Row, ctx: BrokerContext, frame: memoryview) -> asyncio.Future[Any]:
    """Return a future of a ForwardedResponse, or of the row's answer to a request that could not be forwarded. The
    frame is copied because it is only valid during dispatch."""
    services = ctx.services
    loop = services.runtime.loop
    envelope = EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=encode_principal(ctx.principal),
        client_host_address=packed_address(ctx.client_host),
    )
    answer: asyncio.Future[Any] = loop.create_future()
    principal = envelope.request_principal or b""
    if len(frame) + len(principal) + _ENVELOPE_BYTES > services.config.int("socket.request.max.bytes"):
        # At each try the controller would end the connection, on which this broker forwards all requests.
        logger.info(
            "%s request from %s has %d bytes and is refused: in an Envelope it is larger than socket.request.max.bytes",
            row.name,
            ctx.client_host,
            len(frame),
        )
        answer.set_result(row.refused(_decoded(row, frame), ctx.api_version, ErrorCode.INVALID_REQUEST))
        return answer
    deadline = loop.time() + TIMEOUT_MS / 1000
    is_suspect = False

    def send() -> None:
        if answer.done():
            return
        # The timeout of a try is not shortened near the deadline. A connection that stays silent for the timeout is
        # ended, together with all requests that wait on it.
        if is_suspect:
            services.suspects.send(envelope, TRY_MS, deadline).add_done_callback(arrived)
        else:
            services.controller_channel.send(envelope, TRY_MS).add_done_callback(arrived)

    def refuse(code: ErrorCode, reason: str) -> None:
        # Log at DEBUG, as Apache Kafka does: while there is no controller, each request of each client ends here.
        logger.debug("%s request from %s is answered with %s: %s", row.name, ctx.client_host, code.name, reason)
        answer.set_result(row.refused(_decoded(row, envelope.request_data), ctx.api_version, code))

    def arrived(future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
            return
        if isinstance(error, UnsupportedVersion):
            refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller: {error}")
            return
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            logger.error("%s request from %s failed at the controller", row.name, ctx.client_host, exc_info=error)
            answer.set_exception(CloseConnection("internal error"))
            return
        if isinstance(error, Unanswered):
            nonlocal is_suspect
            if is_suspect:
                logger.warning(
                    "%s request from %s is given up after two attempts: %s", row.name, ctx.client_host, error
                )
                refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller ends its connections")
                return
            is_suspect = True
        # A number, not an ErrorCode, because a newer controller may send codes that this broker lacks.
        code: int = ErrorCode.NONE if error is not None else future.result().error_code
        if error is None and code == ErrorCode.NONE:
            answer.set_result(ForwardedResponse(future.result().response_data))
        elif error is not None or code == ErrorCode.NOT_CONTROLLER:
            if loop.time() < deadline:
                loop.call_later(RETRY_SECONDS, send)
            else:
                refuse(ErrorCode.REQUEST_TIMED_OUT, f"the controller has not answered: {error or 'it has moved'}")
        elif code == ErrorCode.UNSUPPORTED_VERSION:
            answer.set_exception(
                CloseConnection(f"the controller does not serve version {ctx.api_version} of {row.name}")
            )
        else:
            refuse(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered the Envelope with error {code}")

    send()
    return answer


def _decoded(row: Row, frame: bytes | memoryview) -> Any:
    """Decode the request a second time. The dispatcher has decoded it when it came."""
    view = memoryview(frame)
    header, position = RequestHeader.decode(view)
    return row.decode(view, position, header.version)[0]
