"""From a frame to its handler and back to bytes.

Responsible for: request headers, the row in TABLE, decoding, the context, one place after each handler (metrics under
Kafka's names, throttling later), encoding. Not responsible for framing or order (net/) nor for any API (its own
module).

A frame that cannot be understood ends its connection, as Apache Kafka does: there is no version in which to answer. The
one exception is ApiVersions in an unknown version, answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pykbroker.api import TABLE, Api, On
from pykbroker.metrics.registry import Counter, Metrics
from pykbroker.net.connection import CloseConnection, Connection, Later
from pykbroker.net.promise import Promise
from pykbroker.serving.context import Peer, RequestContext
from pykbroker.serving.services import Services
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykbroker_wire.primitives import DecodeError

logger = logging.getLogger(__name__)

#: Milliseconds for which the client of a request has to wait, by its quotas; 0 for none.
Throttle = Callable[[RequestContext], int]
Forward = Callable[["Row", RequestContext, memoryview, Any], "asyncio.Future[Any]"]


def _module_of(api: Api) -> ModuleType:
    return importlib.import_module(f"pykbroker.api.{api.module}")


def handlers_of(side: On) -> dict[int, Callable[[RequestContext, Any], Any]]:
    """`handle` of every API on one kind of listener, by key."""
    return {int(api.key): _module_of(api).handle for api in TABLE if api.on & side}


class Row:
    """A row of TABLE with everything dispatch needs, resolved once."""

    __slots__ = (
        "api",
        "check",
        "decode",
        "handle",
        "handle_frame",
        "key",
        "max_version",
        "min_version",
        "name",
        "requests",
        "total_time_ms",
    )

    def __init__(self, api: Api, metrics: Metrics) -> None:
        wire = APIS[api.key]
        self.api = api
        self.key = int(api.key)
        self.name = wire.name
        self.min_version = wire.min_version
        self.max_version = wire.max_version
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = wire.request.decode
        # Imported now, before the node is ready, rather than with the first request of a client.
        _ = wire.response
        module = _module_of(api)
        self.handle: Callable[[RequestContext, Any], Any] = module.handle
        #: answers a frame without decoding it as a whole, now or later, or returns None: the hottest shapes of the
        #: hottest APIs
        self.handle_frame: Callable[[RequestContext, memoryview, int], Any] | None = getattr(
            module, "handle_frame", None
        )
        #: what a broker refuses before it forwards a request: raises CloseConnection
        self.check: Callable[[Any], None] | None = getattr(module, "check", None)
        self.requests: Counter = metrics.counter(
            f"kafka.network:type=RequestMetrics,name=RequestsPerSec,request={self.name}"
        )
        self.total_time_ms: Counter = metrics.counter(
            f"kafka.network:type=RequestMetrics,name=TotalTimeMs,request={self.name}"
        )


class PendingAnswer:
    """An answer that a handler will give later."""

    __slots__ = ("_ctx", "_dispatcher", "_row", "future")

    def __init__(self, dispatcher: Dispatcher, row: Row, ctx: RequestContext, future: Later) -> None:
        self._dispatcher = dispatcher
        self._row = row
        self._ctx = ctx
        self.future = future

    def encode(self, result: Any) -> list[bytes | bytearray | memoryview]:
        return self._dispatcher.finish(self._row, self._ctx, result) or []


class Dispatcher:
    """Serves the rows of one kind of listener."""

    def __init__(self, services: Services, side: On, forward: Forward | None = None) -> None:
        self.services = services
        self.side = side
        self._forward = forward
        #: set by quotas (a later room); nothing is throttled without it
        self.throttle: Throttle | None = None
        self._now_ms = services.runtime.now_ms
        self.rows: dict[int, Row] = {int(api.key): Row(api, services.metrics) for api in TABLE if api.on & side}
        self._errors = services.metrics.counter("kafka.network:type=RequestMetrics,name=InvalidRequestsPerSec")

    def __call__(self, peer: Any, frame: memoryview) -> Any:
        """Dispatch one frame. Returns buffers, a PendingAnswer, or None when there is no answer; raises
        CloseConnection."""
        try:
            header, position = RequestHeader.decode(frame)
            row = self.rows.get(header.api_key)
            version = header.version
            if row is None:
                raise CloseConnection(f"request with API key {header.api_key}, which is not served on this listener")
            if version < row.min_version or version > row.max_version:
                return self._unsupported_version(row, header)
            ctx = RequestContext(
                peer, self.services, header.api_key, version, header.correlation_id, header.client_id, self._now_ms()
            )
            if row.handle_frame is not None and self.throttle is None:
                answer = self._run(row, row.handle_frame, ctx, frame, position)
                if answer is not None:
                    if type(answer) is not list and isinstance(answer, asyncio.Future | Promise):
                        return PendingAnswer(self, row, ctx, answer)
                    return self._answered(row, ctx, answer)
            request, _ = row.decode(frame, position, version)
        except DecodeError as error:
            self._errors.value += 1
            raise CloseConnection(f"a request that cannot be decoded: {error}") from None
        if row.api.forward and self._forward is not None:
            if row.check is not None:
                row.check(request)
            result = self._forward(row, ctx, frame, request)
        else:
            result = self._run(row, row.handle, ctx, request)
        if isinstance(result, asyncio.Future):
            return PendingAnswer(self, row, ctx, result)
        return self._answered(row, ctx, result)

    def _run(self, row: Row, handle: Callable[..., Any], ctx: RequestContext, *arguments: Any) -> Any:
        try:
            return handle(ctx, *arguments)
        except CloseConnection:
            raise
        except Exception as error:
            logger.exception("%s request of version %d from %s failed", row.name, ctx.api_version, ctx.client_host)
            raise CloseConnection("internal error") from error

    def call(self, peer: Peer, request: Any) -> Any:
        """Run a decoded request in the newest version, for channels in memory: a response or a future of one."""
        row = self.rows.get(request.API_KEY)
        if row is None:
            raise CloseConnection(f"request with API key {request.API_KEY}, which is not served on this listener")
        return row.handle(
            RequestContext(peer, self.services, row.key, row.max_version, 0, None, self._now_ms()), request
        )

    def finish(self, row: Row, ctx: RequestContext, response: Any) -> list[bytes | bytearray | memoryview] | None:
        """An answer that came later; one in the turn of its request has taken no time to speak of."""
        row.total_time_ms.value += self._now_ms() - ctx.arrival_ms
        return self._answered(row, ctx, response)

    def _answered(self, row: Row, ctx: RequestContext, response: Any) -> list[bytes | bytearray | memoryview] | None:
        """The one place after each handler: metrics, throttling, bytes."""
        row.requests.value += 1
        if type(response) is list:
            return response
        if self.throttle is not None:
            self._hold_back(ctx, response)
        if response is None:
            return None
        if type(response) is ForwardedResponse:
            return response.frame()
        version = ctx.api_version
        return encode_response(ctx.correlation_id, row.key, version, response.encode(version))

    def _hold_back(self, ctx: RequestContext, response: Any) -> None:
        """KIP-219: the answer says for how long, and leaves at once; the connection is not read meanwhile."""
        assert self.throttle is not None
        wait_ms = self.throttle(ctx)
        if wait_ms <= 0:
            return
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(wait_ms, response.throttle_time_ms)
        if isinstance(ctx.peer, Connection):
            ctx.peer.mute()
            self.services.runtime.loop.call_later(wait_ms / 1000, ctx.peer.unmute)

    def _unsupported_version(self, row: Row, header: RequestHeader) -> list[bytes | bytearray | memoryview]:
        if row.key != ApiKey.API_VERSIONS:
            raise CloseConnection(
                f"{row.name} request of version {header.version}, served are {row.min_version} to {row.max_version}"
            )
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=row.key, min_version=row.min_version, max_version=row.max_version)],
        )
        row.requests.value += 1
        return encode_response(header.correlation_id, row.key, 0, response.encode(0))


class ForwardedResponse:
    """The answer of the controller to a forwarded request, header and body as the controller encoded them."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def frame(self) -> list[bytes | bytearray | memoryview]:
        return [len(self.data).to_bytes(4, "big") + self.data]
