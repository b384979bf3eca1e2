"""From a frame to its handler and back to bytes.

Responsible for: request headers, the row in TABLE, decoding, the context, one place after each handler (metrics under Kafka's
names, throttling later), encoding. Not responsible for framing or order (net/) nor for any API (its own module).

A frame that cannot be understood ends its connection, as Apache Kafka does: there is no version in which to answer. The one
exception is ApiVersions in an unknown version, answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any

from pykbroker.api import TABLE, Api, On
from pykbroker.api.context import Peer, RequestContext
from pykbroker.api.services import Services
from pykbroker.metrics.registry import Counter, Metrics
from pykbroker.net.connection import CloseConnection
from pykbroker_wire.apis import API_VERSIONS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import encode_response, response_class, request_class, skip_tags
from pykbroker_wire.primitives import DecodeError

logger = logging.getLogger(__name__)

_HEADER = Struct(">hhih")
#: frames smaller than this cannot hold a header
_HEADER_BYTES = 8

Forward = Callable[["Row", RequestContext, memoryview, Any], "asyncio.Future[Any]"]


class Row:
    """A row of TABLE with everything dispatch needs, resolved once."""

    __slots__ = ("api", "decode", "flexible_from", "handle", "key", "max_version", "min_version", "name", "requests", "response", "total_time_ms")

    def __init__(self, api: Api, metrics: Metrics) -> None:
        request = request_class(api.key)
        self.api = api
        self.key = int(api.key)
        self.name = request.__name__.removesuffix("Request")
        self.min_version: int = request.MIN_VERSION
        self.max_version: int = request.MAX_VERSION
        self.flexible_from: int = request.FLEXIBLE_FROM
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = request.decode
        self.response: Any = response_class(api.key)
        self.handle: Callable[[RequestContext, Any], Any] = importlib.import_module(f"pykbroker.api.{api.module}").handle
        self.requests: Counter = metrics.counter(f"kafka.network:type=RequestMetrics,name=RequestsPerSec,request={self.name}")
        self.total_time_ms: Counter = metrics.counter(f"kafka.network:type=RequestMetrics,name=TotalTimeMs,request={self.name}")


class PendingAnswer:
    """An answer that a handler will give later."""

    __slots__ = ("_ctx", "_dispatcher", "_row", "future")

    def __init__(self, dispatcher: Dispatcher, row: Row, ctx: RequestContext, future: asyncio.Future[Any]) -> None:
        self._dispatcher = dispatcher
        self._row = row
        self._ctx = ctx
        self.future = future

    def encode(self, result: Any) -> list[bytes | bytearray | memoryview]:
        return self._dispatcher.finish(self._row, self._ctx, result)


class Dispatcher:
    """Serves the rows of one kind of listener."""

    def __init__(self, services: Services, side: On, forward: Forward | None = None) -> None:
        self.services = services
        self.side = side
        self._forward = forward
        self._now_ms = services.runtime.now_ms
        self.rows: dict[int, Row] = {int(api.key): Row(api, services.metrics) for api in TABLE if api.on & side}
        self._errors = services.metrics.counter("kafka.network:type=RequestMetrics,name=InvalidRequestsPerSec")

    def __call__(self, peer: Any, frame: memoryview) -> Any:
        """Dispatch one frame. Returns buffers, a PendingAnswer, or None when there is no answer; raises CloseConnection."""
        try:
            if len(frame) < _HEADER_BYTES:
                raise DecodeError(f"a request of {len(frame)} bytes has no header")
            if len(frame) >= 10:
                api_key, version, correlation_id, length = _HEADER.unpack_from(frame, 0)
            else:
                raise DecodeError(f"a request of {len(frame)} bytes has no header")
            row = self.rows.get(api_key)
            if row is None:
                raise CloseConnection(f"request with API key {api_key}, which is not served on this listener")
            if length >= 0:
                position = 10 + length
                if position > len(frame):
                    raise DecodeError(f"client id of {length} bytes in a request of {len(frame)} bytes")
                client_id: str | None = str(frame[10:position], "utf-8", "replace")
            elif length == -1:
                position = 10
                client_id = None
            else:
                raise DecodeError(f"client id of {length} bytes")
            if version >= row.flexible_from:
                if position < len(frame) and frame[position] == 0:
                    position += 1
                else:
                    position = skip_tags(frame, position)
            if version < row.min_version or version > row.max_version:
                return self._unsupported_version(peer, row, version, correlation_id)
            request, _ = row.decode(frame, position, version)
        except DecodeError as error:
            self._errors.value += 1
            raise CloseConnection(f"a request that cannot be decoded: {error}") from None
        except struct_error as error:
            self._errors.value += 1
            raise CloseConnection(f"a request that cannot be decoded: {error}") from None
        ctx = RequestContext(peer, self.services, api_key, version, correlation_id, client_id, self._now_ms())
        if row.api.forward and self._forward is not None:
            result = self._forward(row, ctx, frame, request)
        else:
            result = self._run(row, ctx, request)
        if isinstance(result, asyncio.Future):
            return PendingAnswer(self, row, ctx, result)
        if result is None:
            row.requests.value += 1
            return None
        return self.finish(row, ctx, result)

    def _run(self, row: Row, ctx: RequestContext, request: Any) -> Any:
        try:
            return row.handle(ctx, request)
        except CloseConnection:
            raise
        except Exception as error:
            logger.exception("%s request of version %d from %s failed", row.name, ctx.api_version, ctx.client_host)
            raise CloseConnection("internal error") from error

    def call(self, peer: Peer, request: Any, version: int, client_id: str | None = None) -> Any:
        """Run a decoded request, for channels in memory: returns a response or a future of one."""
        row = self.rows.get(request.API_KEY)
        if row is None:
            raise CloseConnection(f"request with API key {request.API_KEY}, which is not served on this listener")
        ctx = RequestContext(peer, self.services, row.key, version, 0, client_id, self._now_ms())
        return row.handle(ctx, request)

    def finish(self, row: Row, ctx: RequestContext, response: Any) -> list[bytes | bytearray | memoryview]:
        """The one place after each handler."""
        row.requests.value += 1
        row.total_time_ms.value += self._now_ms() - ctx.arrival_ms
        if type(response) is ForwardedResponse:
            return response.frame()
        return encode_response(row.key, ctx.api_version, ctx.correlation_id, response)

    def _unsupported_version(self, peer: Any, row: Row, version: int, correlation_id: int) -> Any:
        if row.key != ApiKey.API_VERSIONS:
            raise CloseConnection(f"{row.name} request of version {version}, served are {row.min_version} to {row.max_version}")
        from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=row.key, min_version=row.min_version, max_version=row.max_version)],
        )
        row.requests.value += 1
        return encode_response(row.key, 0, correlation_id, response)


class ForwardedResponse:
    """The answer of the controller to a forwarded request, header and body as the controller encoded them."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def frame(self) -> list[bytes | bytearray | memoryview]:
        return [len(self.data).to_bytes(4, "big") + self.data]
