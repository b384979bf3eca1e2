"""A peer of a connection that this node makes: it serves the versions that a test sets, and answers when allowed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.frame import FrameSplitter
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse

Answer = Callable[[Any, int], Any]


def empty_answer(request: Any, version: int) -> Any:
    return APIS[request.API_KEY].response()


@dataclass
class Peer:
    """`ranges`: API key -> the versions that it serves. Requests of a key in `held` are not answered until `release`,
    nor is any later request, because a Kafka server answers in order."""

    ranges: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {int(key): (api.min_version, api.max_version) for key, api in APIS.items()}
    )
    answer: Answer = empty_answer
    #: True if a response that refuses a version of ApiVersions names the served versions
    names_versions: bool = True
    #: True if it accepts connections and sends nothing, like a process that hangs
    is_silent: bool = False
    held: set[int] = field(default_factory=set)
    #: (API key, version, request), as they arrived
    seen: list[tuple[int, int, Any]] = field(default_factory=list)
    connections: list[PeerConnection] = field(default_factory=list)

    def __call__(self) -> PeerConnection:
        return PeerConnection(self)

    @property
    def asked_versions(self) -> list[int]:
        """Return the versions of the ApiVersions requests."""
        return [version for key, version, _ in self.seen if key == ApiKey.API_VERSIONS]

    @property
    def requests(self) -> list[tuple[int, int]]:
        """The requests without ApiVersions."""
        return [(key, version) for key, version, _ in self.seen if key != ApiKey.API_VERSIONS]

    def release(self) -> None:
        self.held.clear()
        for connection in self.connections:
            connection.go_on()

    def api_versions(self, version: int) -> tuple[int, ApiVersionsResponse]:
        """Return the version of the response, and the response."""
        known = self.ranges[ApiKey.API_VERSIONS]
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.ranges.items()]
        if known[0] <= version <= known[1]:
            return version, ApiVersionsResponse(api_keys=keys)
        refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if self.names_versions:
            refused.api_keys = keys
        return 0, refused


class PeerConnection(asyncio.Protocol):
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._frames = FrameSplitter()
        self._waiting: deque[tuple[RequestHeader, Any]] = deque()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._peer.connections.append(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            header, position = RequestHeader.decode(frame)
            request: Any = None
            low, high = self._peer.ranges.get(header.api_key, (0, -1))
            if low <= header.version <= high:
                request, _ = APIS[header.api_key].request.decode(frame, position, header.version)
            elif header.api_key != ApiKey.API_VERSIONS:
                # As Apache Kafka and this node: no version can be used to answer.
                self.transport.close()
                return
            self._peer.seen.append((header.api_key, header.version, request))
            self._waiting.append((header, request))
        self.go_on()

    def go_on(self) -> None:
        while self.go_on_once():
            pass

    def go_on_once(self) -> bool:
        """Answer the oldest request. Return True if that was possible."""
        peer = self._peer
        if not self._waiting or peer.is_silent or self._waiting[0][0].api_key in peer.held:
            return False
        header, request = self._waiting.popleft()
        if header.api_key == ApiKey.API_VERSIONS:
            self.reply(header, *peer.api_versions(header.version))
        else:
            self.reply(header, header.version, peer.answer(request, header.version))
        return True

    def reply(self, header: RequestHeader, version: int, answer: Any) -> None:
        self.transport.write(
            b"".join(encode_response(header.correlation_id, header.api_key, version, answer.encode(version)))
        )
