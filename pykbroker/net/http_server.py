"""A small HTTP/1.1 server: a connection has one request at a time; there are no files and no TLS.

h11 decodes and encodes the protocol; this module has the connections. Responsible for bounds (the size of a request,
the time until it has arrived, the number of connections) and for the order of writes. `HttpHandler` is responsible for
the meaning of a request, and for the time that its answer takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, cast

import h11

from pykbroker.runtime import ListeningSocket, Runtime

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
MAX_HEAD_BYTES: Final = 16 << 10
_BACKLOG: Final = 64
#: A connection ends after this time if no whole request has arrived, or if its client does not read.
SILENCE_SECONDS: Final = 30
#: The parts of a body that are written in one turn of the loop; between two turns the loop does other work.
_PARTS_PER_TURN: Final = 500


@dataclass(slots=True, frozen=True)
class HttpRequest:
    """`target`: path and query as they were sent. Names of headers are in lower case. The values of a header that came
    several times are joined by commas, as RFC 9110 5.3 has it. `body`: None if it is longer than the bounds allow."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None = b""


@dataclass(slots=True)
class HttpResponse:
    """`parts` together are the body. There may be many, so they are produced only as fast as the client reads."""

    status: int
    parts: Iterable[str]
    content_type: str = "text/plain; charset=utf-8"
    headers: list[tuple[str, str]] = field(default_factory=list)


#: Called for each request; should raise nothing.
HttpHandler = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]


@dataclass(slots=True, frozen=True)
class HttpBounds:
    """`connections`: a further connection is closed at once. `body_bytes`: a longer body is read and dropped, and its
    request has the body None; with 0 no body is kept. `silence_seconds`: the time until a request has arrived, and
    the time in which a client must read."""

    connections: int = MAX_CONNECTIONS
    body_bytes: int = 0
    silence_seconds: float = SILENCE_SECONDS


def plain_refusal(status: int, reason: str) -> HttpResponse:
    """Return the response to bytes that are no request of HTTP."""
    return HttpResponse(status, [f"{reason}\n"])


class HttpServer:
    """Call `open` once and `close` once."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        handler: HttpHandler,
        *,
        bounds: HttpBounds | None = None,
        refusal: Callable[[int, str], HttpResponse] = plain_refusal,
    ) -> None:
        """`refusal`: makes the response to bytes that are no request, from a status and a reason."""
        self._runtime = runtime
        self._address = host, port
        self._handler = handler
        self._bounds = bounds or HttpBounds()
        self._refusal = refusal
        self._socket: ListeningSocket | None = None
        self._connections: set[_Connection] = set()

    @property
    def port(self) -> int:
        """The bound port."""
        return 0 if self._socket is None else self._socket.port

    async def open(self) -> None:
        """Bind the port and accept connections. Raises OSError."""
        self._socket = await self._runtime.listen(self._accept, *self._address, _BACKLOG)
        await self._socket.serve()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for connection in list(self._connections):
            connection.end()

    def _accept(self) -> asyncio.BaseProtocol:
        return _Connection(self._runtime.loop, self._handler, self._connections, self._bounds, self._refusal)


class _Connection(asyncio.Protocol):
    """A connection, which is in `connections` while it is open."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: HttpHandler,
        connections: set[_Connection],
        bounds: HttpBounds,
        refusal: Callable[[int, str], HttpResponse],
    ) -> None:
        self._bounds = bounds
        self._refusal = refusal
        #: the body of the request that is read; None if it has become too long
        self._body: bytearray | None = bytearray()
        #: True after bytes that are no request; further bytes are dropped
        self._is_refused = False
        self._loop = loop
        self._handler = handler
        self._connections = connections
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: the rest of the response that is being written
        self._parts: Iterator[str] | None = None
        self._may_write = True
        self._may_read = True
        #: the task that makes a response
        self._answering: asyncio.Task[None] | None = None

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._connections) >= self._bounds.connections:
            self.end()
            return
        self._connections.add(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = self._parts = None
        if self._answering is not None:
            self._answering.cancel()
        self._wait_no_longer()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._write()

    def end(self) -> None:
        """Close the connection at once, and drop unwritten bytes."""
        if self._transport is not None:
            self._transport.abort()

    # Reading.

    def _wait(self) -> None:
        self._wait_no_longer()
        self._timer = self._loop.call_later(self._bounds.silence_seconds, self.end)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _read(self) -> None:
        """Read until a request is complete, or no bytes are left. The next request is read after this request is
        answered. Until then nothing is read from the client, because its next requests would wait in memory."""
        while self._parts is None and self._answering is None and self._transport is not None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            if event is h11.NEED_DATA:
                self._take_more(True)
                return
            if event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                break
            if isinstance(event, h11.Request):
                self._request = event
                self._body = bytearray()
            elif isinstance(event, h11.Data):
                self._add_to_body(event.data)
            elif isinstance(event, h11.EndOfMessage):
                # The handler decides how long an answer may take, for example one that waits for an event.
                self._wait_no_longer()
                body = None if self._body is None else bytes(self._body)
                self._answering = self._loop.create_task(self._answer(self._request, body))
        self._take_more(False)

    def _add_to_body(self, data: bytes) -> None:
        """Keep a part of the body. The rest of a body that is too long is read and dropped: if the connection was
        closed before, the client would not receive the answer."""
        if self._body is None or not self._bounds.body_bytes:
            return
        self._body += data
        if len(self._body) > self._bounds.body_bytes:
            self._body = None

    def _take_more(self, wanted: bool) -> None:
        if self._transport is None or self._transport.is_closing() or wanted is self._may_read:
            return
        self._may_read = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        assert self._transport is not None
        logger.info("A request over HTTP is refused: %s", error)
        # Nothing is sent yet: the mistake is in the head of a request, or in its body.
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            is_head = self._http.our_state is h11.SEND_RESPONSE and self._request.method == b"HEAD"
            response = self._refusal(error.error_status_hint, str(error))
            head = [("content-type", response.content_type), ("connection", "close"), *response.headers]
            self._send(h11.Response(status_code=response.status, headers=head))
            if not is_head:
                self._send(h11.Data(data="".join(response.parts).encode()))
            self._send(h11.EndOfMessage())
        # The connection ends when its client ends it, or after the time for a request. If it was closed while bytes
        # come, the operating system would reset it, and the client would not receive the response.
        self._is_refused = True
        self._transport.write_eof()
        self._take_more(True)

    # Writing.

    async def _answer(self, request: h11.Request, body: bytes | None) -> None:
        headers: dict[str, str] = {}
        for raw_name, raw_value in request.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        method = request.method.decode("latin-1")
        try:
            response = await self._handler(HttpRequest(method, request.target.decode("latin-1"), headers, body))
        except Exception:
            logger.exception("A request over HTTP failed: %s", method)
            if self._transport is not None:
                self._transport.close()
            return
        finally:
            self._answering = None
        head = [("content-type", response.content_type), *response.headers]
        self._send(h11.Response(status_code=response.status, headers=head))
        self._parts = iter(()) if method == "HEAD" else iter(response.parts)
        self._write()

    def _write(self) -> None:
        if self._parts is None or not self._may_write:
            return
        self._wait()
        text = "".join(islice(self._parts, _PARTS_PER_TURN))
        if text:
            self._send(h11.Data(data=text.encode()))
            self._loop.call_soon(self._write)
            return
        self._parts = None
        self._send(h11.EndOfMessage())
        if self._http.our_state is h11.MUST_CLOSE:
            if self._transport is not None:
                self._transport.close()
        else:
            self._http.start_next_cycle()
            # `_read` is not called directly, because requests that came together would be answered in ever deeper
            # calls.
            self._loop.call_soon(self._read)

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None:
            self._transport.write(data)
