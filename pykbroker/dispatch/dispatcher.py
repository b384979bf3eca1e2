"""Passes each frame to its handler, and encodes the answer.

Responsible for: request headers, the row of the API, decoding, the context, and `finish`. Each frame of a served
version ends in `finish`, whether `handle` or `handle_frame` answers it, at once or later. It counts the request under
Kafka's names, and returns the bytes of the answer. Not responsible for framing or order (net/), nor for any API (its
own module).

A frame that cannot be decoded ends its connection, as in Apache Kafka, because there is no version in which to answer.
The one exception is ApiVersions in an unknown version, answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pykbroker.dispatch.context import AnyContext, OwnRequestContext, Peer, RequestContext
from pykbroker.dispatch.rows import EncodedAnswer, ForwardedResponse, Row
from pykbroker.dispatch.services import BrokerServices, Services
from pykbroker.net.connection import CloseConnection
from pykbroker.net.promise import Promise
from pykbroker.net.replies import FutureAnswer
from pykbroker.security.authorizer import AuthorizerNotReady
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykbroker_wire.primitives import DecodeError

if TYPE_CHECKING:
    from pykbroker.dispatch.request_log import LoggedRequest

logger = logging.getLogger(__name__)
#: Logs one line for each request, under the name that Apache Kafka's request log has (request_log.py).
request_logger = logging.getLogger("kafka.request.logger")
_DEBUG: Final = logging.DEBUG

S = TypeVar("S", bound=Services)
#: Sends a request of a `forward` row to the active controller: (row, context, frame) -> the answer.
Forward = Callable[[Row, RequestContext[S], memoryview], "asyncio.Future[Any]"]
#: Makes the dispatcher to which the listeners of the broker half pass frames. A test may pass another one.
MakeDispatcher = Callable[[BrokerServices, "Forward[BrokerServices]"], "Dispatcher[BrokerServices]"]


def logged_request(clock: Callable[[], float]) -> LoggedRequest | None:
    """Return the start of a line of the request log, or None while that log is off. It is on only if its logger has a
    level of its own, DEBUG or lower. If the level of the root logger counted, an operator who sets that to DEBUG would
    get a line for each produce request."""
    if not 0 < request_logger.level <= _DEBUG:
        return None
    from pykbroker.dispatch.request_log import LoggedRequest

    return LoggedRequest(clock, request_logger)


class PendingAnswer:
    """An answer that a handler will give later."""

    __slots__ = ("_ctx", "_dispatcher", "_row", "future")

    def __init__(self, dispatcher: Dispatcher[Any], row: Row, ctx: AnyContext, future: FutureAnswer) -> None:
        self._dispatcher = dispatcher
        self._row = row
        self._ctx = ctx
        self.future = future

    def encode(self, result: Any) -> EncodedAnswer:
        return self._dispatcher.finish(self._row, self._ctx, result) or []


class LoggedAnswer(PendingAnswer):
    """As `PendingAnswer`, for a request that gets a line in the request log."""

    __slots__ = ("_logged",)

    def __init__(
        self, dispatcher: Dispatcher[Any], row: Row, ctx: AnyContext, future: FutureAnswer, logged: LoggedRequest
    ) -> None:
        super().__init__(dispatcher, row, ctx, future)
        self._logged = logged

    def encode(self, result: Any) -> EncodedAnswer:
        self._logged.answered()
        answer = super().encode(result)
        self._logged.tell(result)
        return answer


class Dispatcher(Generic[S]):
    """Serves the APIs of one half of a node. `forward` sends a request to the active controller; the controller half
    has none."""

    def __init__(self, services: S, forward: Forward[S] | None = None) -> None:
        self.services = services
        self.rows = services.rows
        self._resolved = services.rows.resolved
        self._forward = forward
        self._now_ms = services.runtime.now_ms
        self._inbox = services.inbox
        self._waiting: Collection[object] = () if services.inbox is None else services.inbox.messages
        self._errors = services.metrics.counter("kafka.network:type=RequestMetrics,name=InvalidRequestsPerSec")

    def __call__(self, peer: Peer, frame: memoryview) -> EncodedAnswer | PendingAnswer | None:
        """Dispatch one frame. Return buffers, a PendingAnswer, or None if there is no answer. Raise CloseConnection if
        the connection must end."""
        if self._waiting:
            self._take_waiting()
        logged = logged_request(self.services.runtime.stopwatch_ms) if request_logger.level else None
        try:
            header, position = RequestHeader.decode(frame)
            row = self._resolved.get(header.api_key) or self.rows.find(header.api_key)
            version = header.version
            if row is None:
                raise CloseConnection(
                    f"it sent a request with API key {header.api_key}, which is not served on this listener"
                )
            if version < row.min_version or version > row.max_version:
                return self._unsupported_version(row, header, len(frame))
            ctx = RequestContext(
                peer,
                self.services,
                header.api_key,
                version,
                header.correlation_id,
                header.client_id,
                self._now_ms(),
                len(frame),
            )
            if row.handle_frame is None or logged is not None:
                result = None
            else:
                result = self._run(row, row.handle_frame, ctx, frame, position)
            if result is None:
                request, _ = row.decode(frame, position, version)
                if logged is not None:
                    logged.opened(ctx, request)
                if row.api.forward and self._forward is not None:
                    if row.check is not None:
                        row.check(request)
                    result = self._forward(row, ctx, frame)
                else:
                    result = self._run(row, row.handle, ctx, request)
        except DecodeError as error:
            self._errors.value += 1
            raise CloseConnection(f"it sent a request that cannot be decoded: {error}") from None
        if logged is not None:
            logged.handled()
        if type(result) is not bytes and isinstance(result, asyncio.Future | Promise):
            if logged is not None:
                return LoggedAnswer(self, row, ctx, result, logged)
            return PendingAnswer(self, row, ctx, result)
        answer = self.finish(row, ctx, result)
        if logged is not None:
            logged.tell(result)
        return answer

    def _run(self, row: Row, handle: Callable[..., Any], ctx: AnyContext, *arguments: Any) -> Any:
        try:
            return handle(ctx, *arguments)
        except CloseConnection:
            raise
        except AuthorizerNotReady as error:
            raise CloseConnection(f"it sent a request too early: {error}") from None
        except Exception as error:
            logger.exception("%s request of version %d from %s failed", row.name, ctx.api_version, ctx.client_host)
            raise CloseConnection("internal error") from error

    def call(self, peer: Peer, request: Any) -> Any:
        """Handle a request of this process to itself, which is not encoded, in the newest version. Return a response or
        a future of one. Raises what the handler raises."""
        if self._waiting:
            self._take_waiting()
        row = self.rows.find(request.API_KEY)
        if row is None:
            raise CloseConnection(
                f"it sent a request with API key {request.API_KEY}, which is not served on this listener"
            )
        return row.handle(
            OwnRequestContext(peer, self.services, row.key, row.max_version, 0, None, self._now_ms()), request
        )

    def _take_waiting(self) -> None:
        """Take the waiting messages first: this loop may have stood still, and this broker does not answer as the
        leader of a partition that it no longer leads."""
        assert self._inbox is not None, "without an inbox no message waits"
        self._inbox.take_all()

    def takes_in_memory(self, key: int) -> bool:
        """Return True if a request of this process may come by `call`. A dispatcher that acts on the frames of an API
        returns False for it, and then the request has to come over a listener."""
        return True

    def finish(self, row: Row, ctx: AnyContext, response: Any) -> EncodedAnswer | None:
        """End a request: count it and return the bytes of the answer. `response` is a message, an answer that
        `handle_frame` has encoded, the controller's answer to a forwarded request, or None for no answer."""
        row.requests.value += 1
        row.request_bytes.value += ctx.request_bytes
        row.total_time_ms.value += self._now_ms() - ctx.arrival_ms
        if type(response) is bytes:
            return [response]
        if response is None:
            return None
        if type(response) is ForwardedResponse:
            return response.frame()
        version = ctx.api_version
        return encode_response(ctx.correlation_id, row.key, version, response.encode(version))

    def _unsupported_version(self, row: Row, header: RequestHeader, request_bytes: int) -> EncodedAnswer:
        if row.key != ApiKey.API_VERSIONS:
            raise CloseConnection(
                f"it sent {row.name} of version {header.version}, and versions {row.min_version} to {row.max_version} "
                "are served"
            )
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=row.key, min_version=row.min_version, max_version=row.max_version)],
        )
        row.requests.value += 1
        row.request_bytes.value += request_bytes
        return encode_response(header.correlation_id, row.key, 0, response.encode(0))
