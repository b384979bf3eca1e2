"""A client connection to another node: requests out, answers matched by correlation id.

Responsible for one connection at a time, its frames, its timeouts. Not responsible for choosing a node or trying again.
Used by broker-only and controller-only processes to reach each other; combined nodes talk in memory.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from pykbroker.runtime import Runtime
from pykbroker_wire.apis import APIS
from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.primitives import DecodeError

_SIZE = Struct(">i")
MAX_RESPONSE_BYTES = 512 * 1024 * 1024


class Disconnected(ConnectionError):
    """The connection ended, or never was, before the answer came."""


class _ClientProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.waiting: dict[int, tuple[asyncio.Future[Any], int, int]] = {}
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.transport = None
        waiting, self.waiting = self.waiting, {}
        for future, _, _ in waiting.values():
            if not future.done():
                reason = exc or "closed by the peer"
                future.set_exception(Disconnected(f"the connection ended before the answer came: {reason}"))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        position = 0
        while len(buffer) - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                self.abort()
                return
            if len(buffer) - position - 4 < size:
                break
            frame = bytes(buffer[position + 4 : position + 4 + size])
            position += 4 + size
            self._answer(frame)
        if position:
            del buffer[:position]

    def _answer(self, frame: bytes) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        entry = self.waiting.pop(correlation_id, None)
        if entry is None:
            self.abort()
            return
        future, api_key, version = entry
        if future.done():
            return
        try:
            _, message = decode_response(api_key, version, frame)
        except DecodeError as error:
            future.set_exception(Disconnected(f"an answer that cannot be decoded: {error}"))
            self.abort()
            return
        future.set_result(message)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


@dataclass(slots=True, frozen=True)
class SetupTimeout:
    """How long a connection may take to come about: the first time, and at most after failures."""

    first_ms: int = 10_000
    greatest_ms: int = 30_000


class BrokerConnection:
    """One peer. Connects with the first request and again after the connection was lost."""

    def __init__(
        self, runtime: Runtime, host: str, port: int, client_id: str, setup: SetupTimeout | None = None
    ) -> None:
        self._setup = setup or SetupTimeout()
        self._failures = 0
        self.host = host
        self.port = port
        self._runtime = runtime
        self._client_id = client_id
        self._protocol: _ClientProtocol | None = None
        self._connecting: asyncio.Future[_ClientProtocol] | None = None
        self._correlation_id = 0
        self._closed = False

    def send(self, request: Any, timeout_ms: int, version: int | None = None) -> asyncio.Future[Any]:
        """The answer to one request, in the newest version unless told. Raises Disconnected or TimeoutError."""
        return asyncio.ensure_future(self._send(request, timeout_ms, version), loop=self._runtime.loop)

    async def _send(self, request: Any, timeout_ms: int, version: int | None) -> Any:
        async with asyncio.timeout(timeout_ms / 1000):
            protocol = await self._connected()
            api_key = request.API_KEY
            version = APIS[api_key].max_version if version is None else version
            self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
            future: asyncio.Future[Any] = self._runtime.loop.create_future()
            if protocol.transport is None:
                raise Disconnected("the connection ended")
            protocol.waiting[self._correlation_id] = (future, api_key, version)
            frame = encode_request(api_key, version, self._correlation_id, self._client_id, request)
            protocol.transport.write(b"".join(frame))
            try:
                return await future
            except asyncio.CancelledError:
                # Late, or nobody asks any more. As in Apache Kafka the connection has then had its time: what does not
                # answer may be gone without a word, and the next request shall find out.
                protocol.abort()
                raise

    async def _connected(self) -> _ClientProtocol:
        if self._closed:
            raise Disconnected("this client is closed")
        if self._protocol is not None and self._protocol.transport is not None:
            return self._protocol
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect(), loop=self._runtime.loop)
            # Nobody may be left to be told that it failed.
            self._connecting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> _ClientProtocol:
        # Each failure doubles the patience, up to the greatest (KIP-601).
        setup = self._setup
        timeout_ms = min(setup.first_ms << min(self._failures, 20), max(setup.first_ms, setup.greatest_ms))
        self._failures += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, protocol = await self._runtime.connect(_ClientProtocol, self.host, self.port)
            self._failures = 0
            self._protocol = cast(_ClientProtocol, protocol)
            if self._closed:
                self._protocol.abort()
            return self._protocol
        except OSError as error:
            raise Disconnected(f"cannot connect to {self.host}:{self.port}: {error}") from error
        finally:
            self._connecting = None

    def close(self) -> None:
        self._closed = True
        if self._protocol is not None:
            self._protocol.abort()
