"""A connection that this node makes to another node: it sends requests and gets responses, in the order of the
requests.

Responsible for one peer: connecting, negotiating versions, timeouts, noticing that the peer has vanished, and a pause
before this node connects again. Not responsible for choosing a node or repeating a request, nor for the authentication
of this node (sasl/).

A request that times out ends alone, and its late response is dropped. A peer answers in order, so all later requests
wait for the oldest response that it has not sent. If no byte has arrived for the timeout of that oldest request, the
peer counts as vanished, and the connection ends. Apache Kafka ends the connection at the first timeout, and with it
every request after a slow one; see docs/decisions/0014-timeouts-between-nodes.md.

Invariants
* Only a connection that is READY sends requests; until then they wait here, and their timeouts run.
* Every request ends once: with its response, Disconnected, UnsupportedVersion, EncodeError or TimeoutError.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from pykbroker import __version__
from pykbroker.net.connection_state import MADE, ConnectionState, End, StatefulConnection
from pykbroker.net.frames import Frames
from pykbroker.net.in_flight_requests import ClientRequest, InFlightRequests
from pykbroker.net.versions import PeerVersions, UnsupportedVersion, VersionsRefused, after_api_versions, in_version
from pykbroker.runtime import Runtime
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.primitives import DecodeError, EncodeError, TopLevel

if TYPE_CHECKING:
    from pykbroker.net.peer_security import AuthenticationOfNode, LoginToPeer, TlsToPeer

logger = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
#: A timer may fire this much too early, by the resolution of the loop's clock.
_RESOLUTION_SECONDS = 0.005


class Disconnected(ConnectionError):
    """The connection ended before the response came, or it could not be made."""


class Unanswered(Disconnected):
    """The connection ended after the request was sent."""


@dataclass(slots=True, frozen=True)
class ConnectionSetup:
    """The timeout until a connection is ready (the first, and the greatest after failures), and the pause before this
    node connects again (the values that Apache Kafka has between nodes). Also the TLS and SASL of the connection."""

    first_ms: int = 10_000
    greatest_ms: int = 30_000
    reconnect_ms: int = 50
    greatest_reconnect_ms: int = 500
    #: None without TLS
    tls: TlsToPeer | None = None
    #: None if the peer does not authenticate this node
    login: LoginToPeer | None = None


class ClientConnection(StatefulConnection, asyncio.BufferedProtocol):
    """One transport, from connecting to its end. `ready` is called when the connection can send requests."""

    __slots__ = (
        "_cannot_say",
        "_exchange",
        "_frames",
        "_heard_at",
        "_in_flight",
        "_login",
        "_loop",
        "_ready",
        "_receive_buffer_bytes",
        "_speaks_tls",
        "_transport",
        "_versions",
        "_watch_timer",
        "address",
        "was_refused",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        client_id: str,
        ready: Callable[[], object],
        receive_buffer_bytes: int = -1,
        *,
        speaks_tls: bool = False,
        login: LoginToPeer | None = None,
    ) -> None:
        """`speaks_tls`: the transport is a TLS layer, which calls `secured`. `login`: the user of this node, which is
        authenticated when the versions of the peer are known."""
        super().__init__(MADE)
        self._speaks_tls = speaks_tls
        self._login = login
        self._exchange: AuthenticationOfNode | None = None
        #: True if the peer refused to authenticate this node; the log then has the reason
        self.was_refused = False
        self._receive_buffer_bytes = receive_buffer_bytes
        self._loop = loop
        self.address = address
        self._ready = ready
        self._transport: asyncio.Transport | None = None
        self._frames = Frames(MAX_RESPONSE_BYTES)
        self._versions = PeerVersions({})
        #: API keys of requests that could not be sent; one log line was written for each key
        self._cannot_say: set[int] = set()
        self._in_flight = InFlightRequests(client_id)
        #: when bytes last arrived
        self._heard_at = 0.0
        self._watch_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Connection to {self.address}"

    # -- transport callbacks ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.end is not None:
            # The connection was closed while it was being made.
            self._transport.abort()
            return
        if self._receive_buffer_bytes > 0:
            sock = transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        if self._speaks_tls:
            self.become(ConnectionState.HANDSHAKING)
        else:
            self._negotiate()

    def secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is done, and the peer's certificate is verified."""
        if self.end is None:
            self._negotiate()

    def insecure(self, reason: str) -> None:
        """TLS with this peer failed, or has ended."""
        self.close(reason)

    def pause_writing(self) -> None:
        """Do nothing: requests between nodes are few and small, so they wait in the transport."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def connection_lost(self, exc: BaseException | None) -> None:
        self._finish(End(str(exc) if exc is not None else "the peer closed it", by_peer=True))
        self.become(ConnectionState.CLOSED)
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self.end is not None:
            return
        self._heard_at = self._loop.time()
        try:
            for frame in self._frames.received(nbytes):
                self._take(frame)
                if self.end is not None:
                    return
        except (DecodeError, VersionsRefused) as error:
            self.close(f"an answer cannot be used: {error}")

    # -- requests -----------------------------------------------------------------------------------------------------

    def write(self, request: ClientRequest) -> None:
        """Send the request in its chosen version, or else the newest that both sides know. If it cannot be sent, it
        ends with an error."""
        assert self.state is ConnectionState.READY
        message = request.message
        try:
            chosen = request.version
            if chosen is None:
                chosen = self._versions.choose(message.API_KEY, request.least)
            else:
                self._versions.check(message.API_KEY, chosen)
            try:
                self._send(request, in_version(message, chosen), chosen)
            except EncodeError as error:
                if chosen == message.MAX_VERSION:
                    raise
                raise UnsupportedVersion(f"{error}, and the peer serves no version that has a field for it") from error
        except UnsupportedVersion as error:
            if message.API_KEY not in self._cannot_say:
                self._cannot_say.add(message.API_KEY)
                logger.warning("%r: %s requests cannot be sent: %s", self, APIS[message.API_KEY].name, error)
            request.fail(UnsupportedVersion(f"{self.address}: {error}"))
        except EncodeError as error:
            request.fail(error)

    def expired(self) -> None:
        """Check if the peer still answers, after a request has timed out, written or not."""
        if self._watch_timer is not None:
            self._watch_timer.cancel()
            self._watch_timer = None
        if self.end is not None or self.state is not ConnectionState.READY or not self._in_flight:
            # Until the connection is ready, only the timeout of its setup ends it, even if a request's timeout is
            # shorter.
            return
        vanished_at = self._in_flight.vanished_at(self._heard_at)
        if vanished_at - self._loop.time() <= _RESOLUTION_SECONDS:
            oldest = self._in_flight.oldest
            name = APIS[oldest.message.API_KEY].name
            self.close(f"the peer has not answered {name} and has sent nothing for {oldest.timeout:g} s")
        else:
            self._watch_timer = self._loop.call_at(vanished_at, self.expired)

    def close(self, reason: str) -> None:
        """End the connection, and every request that waits for its response."""
        self._finish(End(reason, by_peer=False))
        if self._transport is not None:
            self._transport.abort()

    def _send(self, request: ClientRequest, message: TopLevel, version: int) -> None:
        transport = self._transport
        assert transport is not None
        transport.writelines(self._in_flight.add(request, message, version, self._loop.time()))

    def _take(self, frame: memoryview) -> None:
        request = self._in_flight.take(frame)
        if request.answer is not None and request.answer.done():
            # The request has timed out, or its caller has cancelled it.
            return
        assert request.version is not None
        try:
            _, response = decode_response(request.message.API_KEY, request.version, frame)
        except DecodeError as error:
            request.fail(Disconnected(f"{self.address} sent an answer that cannot be decoded: {error}"))
            raise
        request.succeed(response)

    # -- states -------------------------------------------------------------------------------------------------------

    def _negotiate(self) -> None:
        self.become(ConnectionState.NEGOTIATING)
        self._ask_for_versions(APIS[ApiKey.API_VERSIONS].max_version)

    def _ask_for_versions(self, version: int) -> None:
        asked = ApiVersionsRequest(client_software_name="pykbroker", client_software_version=__version__)
        # The request has no timeout of its own, because the timeout of the setup ends the connection.
        self._send(ClientRequest(asked, math.inf, version, 0, None, partial(self._negotiated, version)), asked, version)

    def _negotiated(self, asked: int, response: ApiVersionsResponse) -> None:
        found = after_api_versions(asked, response)
        if not isinstance(found, PeerVersions):
            self._ask_for_versions(found)
            return
        self._versions = found
        if self._login is None:
            self.authenticated()
            return
        self.become(ConnectionState.AUTHENTICATING)
        self._exchange = self._login.exchange(self)
        self._exchange.begin()

    # -- authentication (see AuthenticatingConnection) ----------------------------------------------------------------

    def ask(self, message: TopLevel, least_version: int, answered: Callable[[Any], None]) -> None:
        if self.end is not None:
            return
        try:
            version = self._versions.choose(message.API_KEY, least_version)
        except UnsupportedVersion as error:
            self.close(f"it cannot authenticate this node: {error}")
        else:
            self._send(ClientRequest(message, math.inf, version, 0, None, answered), message, version)

    def authenticated(self) -> None:
        self.become(ConnectionState.READY)
        self._ready()

    def refused(self, reason: str) -> None:
        self.was_refused = True
        self.close(reason)

    def renew_if_due(self) -> None:
        """Authenticate this node again if the session ends soon. Until the peer has accepted that, the state is not
        READY."""
        if self._exchange is not None and self.state is ConnectionState.READY and self._exchange.is_due():
            self.become(ConnectionState.AUTHENTICATING)
            self._exchange.renew()

    def _finish(self, end: End) -> None:
        if self.end is not None:
            return
        if self._watch_timer is not None:
            self._watch_timer.cancel()
            self._watch_timer = None
        if self._exchange is not None:
            self._exchange.stop()
        error = f"the connection to {self.address} ended before the answer came: {end}"
        for request in self._in_flight.clear():
            request.fail(Unanswered(error))
        self.begin_end(end)


#: Host and port.
PeerAddress = tuple[str, int]


class PeerWatch(Protocol):
    """Gets the events of connections to peers."""

    def ready(self, address: PeerAddress) -> None:
        """The peer answers on a connection."""

    def lost(self, address: PeerAddress, by_peer: bool) -> None:
        """A connection that was ready has ended, and this node did not close it on purpose. `by_peer`: the peer ended
        it."""

    def refused(self, address: PeerAddress) -> None:
        """The peer refused a connection."""


class BrokerConnection:
    """One peer. The first request connects to it, and so does the first request after the connection was lost."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        client_id: str,
        setup: ConnectionSetup | None = None,
        *,
        receive_buffer_bytes: int = -1,
        watch: PeerWatch | None = None,
    ) -> None:
        """`receive_buffer_bytes`: SO_RCVBUF; -1 leaves it to the operating system."""
        self._watch = watch
        self._receive_buffer_bytes = receive_buffer_bytes
        self.host = host
        self.port = port
        self._address = f"{host}:{port}"
        self._runtime = runtime
        self._client_id = client_id
        self._setup = setup or ConnectionSetup()
        self._connection: ClientConnection | None = None
        self._attempt: asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]] | None = None
        self._setup_timer: asyncio.TimerHandle | None = None
        #: requests that wait until the connection is ready
        self._waiting: dict[ClientRequest, None] = {}
        self._was_ready = False
        #: attempts in a row that did not make the connection ready
        self._failures = 0
        self._connect_from = 0.0
        self._closed = False

    def send(
        self, request: TopLevel, timeout_ms: int, version: int | None = None, least_version: int = 0
    ) -> asyncio.Future[Any]:
        """Return a future of the response to one request. The request is sent in `version`. If that is None, it is sent
        in the newest version that both sides know and that is not older than `least_version`. The future fails with
        Disconnected, UnsupportedVersion, EncodeError or TimeoutError.

        During the pause before this node connects again, a request fails at once, so that its sender can try another
        node.
        """
        loop = self._runtime.loop
        answer: asyncio.Future[Any] = loop.create_future()
        timeout = timeout_ms / 1000
        sent = ClientRequest(request, timeout, version, least_version, answer)
        if self._closed:
            sent.fail(Disconnected("this client is closed"))
            return answer
        connection = self._connection
        if connection is None:
            if loop.time() < self._connect_from:
                sent.fail(Disconnected(f"there is no connection to {self._address}, the next attempt comes soon"))
                return answer
            connection = self._connect()
        else:
            connection.renew_if_due()
        sent.timer = loop.call_later(timeout, self._expire, sent, timeout_ms)
        if connection.state is ConnectionState.READY:
            connection.write(sent)
        else:
            self._waiting[sent] = None
        return answer

    def end_pause(self) -> None:
        """Let the next request connect without a pause, because there is news of the peer."""
        self._connect_from = 0.0

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close("this client is closed")

    def _expire(self, request: ClientRequest, timeout_ms: int) -> None:
        self._waiting.pop(request, None)
        request.fail(TimeoutError(f"{self._address}: no answer within {timeout_ms} ms"))
        if self._connection is not None:
            self._connection.expired()

    def _connect(self) -> ClientConnection:
        loop, setup = self._runtime.loop, self._setup
        connection = self._connection = ClientConnection(
            loop,
            self._address,
            self._client_id,
            self._ready,
            self._receive_buffer_bytes,
            speaks_tls=setup.tls is not None,
            login=setup.login,
        )
        connection.when_ended(self._ended)
        self._was_ready = False
        # Each failure doubles the timeout, up to the greatest (KIP-601).
        timeout_ms = min(setup.first_ms << min(self._failures, 20), max(setup.first_ms, setup.greatest_ms))
        self._setup_timer = loop.call_later(
            timeout_ms / 1000, connection.close, f"the connection was not ready within {timeout_ms} ms"
        )
        protocol = connection if setup.tls is None else setup.tls.layer(connection, self.host)
        self._attempt = self._runtime.connect(lambda: protocol, self.host, self.port)
        self._attempt.add_done_callback(lambda attempt: self._tried(connection, attempt))
        return connection

    def _tried(self, connection: ClientConnection, attempt: asyncio.Future[Any]) -> None:
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            connection.close(str(error))
            if self._watch is not None and isinstance(error, ConnectionRefusedError):
                self._watch.refused((self.host, self.port))

    def _ready(self) -> None:
        connection = self._connection
        assert connection is not None
        self._was_ready = True
        self._failures = 0
        if self._setup_timer is not None:
            self._setup_timer.cancel()
        waiting, self._waiting = self._waiting, {}
        if self._watch is not None:
            self._watch.ready((self.host, self.port))
        for request in waiting:
            connection.write(request)

    def _ended(self, end: End) -> None:
        setup = self._setup
        was_refused = self._connection is not None and self._connection.was_refused
        self._connection = None
        if self._setup_timer is not None:
            self._setup_timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        pause_ms = min(setup.reconnect_ms << min(self._failures, 20), setup.greatest_reconnect_ms)
        self._connect_from = self._runtime.loop.time() + pause_ms / 1000
        if self._was_ready:
            logger.log(
                logging.DEBUG if self._closed else logging.INFO, "Connection to %s: ended: %s", self._address, end
            )
        else:
            if not self._failures and not self._closed and not was_refused:
                # All failed attempts in a row have one log line.
                logger.info("Connection to %s: cannot connect: %s", self._address, end)
            self._failures += 1
        if self._was_ready and not self._closed and self._watch is not None:
            self._watch.lost((self.host, self.port), end.by_peer)
        waiting, self._waiting = self._waiting, {}
        for request in waiting:
            request.fail(Disconnected(f"cannot connect to {self._address}: {end}"))
