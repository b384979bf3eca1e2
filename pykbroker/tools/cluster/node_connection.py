"""One connection from a tool to a node: a blocking socket that carries one request at a time.

Responsible for connecting, for TLS, for the versions that the node serves, for SASL, and for frames. It shares the pure
parts of the node's own client (net/versions.py, sasl/), but has no event loop: most commands send three
requests, and the import of a loop would take longer than they do. Not responsible for the choice of a version, for
connecting again, nor for the names of failures (asked_node.py).

Invariant: after an exception the connection is closed, because a late answer would be taken for the next one.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pykbroker import __version__
from pykbroker.net.versions import PeerVersions, VersionsRefused, after_api_versions
from pykbroker.tools.cluster.patience import WaitLimit
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.primitives import TopLevel

if TYPE_CHECKING:
    from pykbroker.sasl.sasl_client import SaltedPasswords
    from pykbroker.tools.cluster.client_security import ClientSecurity

R = TypeVar("R", bound=TopLevel)
T = TypeVar("T")

_SIZE: Final = Struct(">i")
_MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
#: socket.connection.setup.timeout.ms of Apache Kafka's clients
_CONNECT_SECONDS: Final = 10.0
#: A deadline that comes closer during a wait is noticed within this time.
_TURN_SECONDS: Final = 0.2
#: The part of a session's lifetime after which it is renewed (KIP-368).
_RENEWED_AFTER: Final = 0.85


class UserRefused(Exception):
    """The node does not accept the user. The text is the node's."""


class CertificateRefused(Exception):
    """This client does not trust the certificate of the node. The text is that of OpenSSL."""


class NodeConnection:
    """A connection that is ready for requests.

    A method raises TimeoutError when its `deadline` is over, which may come closer while it waits. Other failures are
    OSError, DecodeError, UserRefused, and CertificateRefused, which only the constructor raises.
    """

    def __init__(self, address: str, client_id: str, security: ClientSecurity, deadline: WaitLimit) -> None:
        """Connect, negotiate the versions, and authenticate the user if `security` has one."""
        self._client_id = client_id
        self._login = security.login
        self._salted: SaltedPasswords | None = None
        #: when the session must be renewed; None if it lasts as long as the connection
        self._renew_at: float | None = None
        self._correlation_id = 0
        self._nothing_received: tuple[type[OSError], ...] = (BlockingIOError,)
        self._socket = _connected(address, deadline)
        try:
            if security.tls is not None:
                self._secure(security, address, deadline)
            #: API key -> the least and the greatest version that the node serves
            self.versions = self._negotiated(deadline)
            if self._login is not None:
                self._authenticate(deadline)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def is_open(self) -> bool:
        """Return False if the node has closed the connection since the last answer."""
        try:
            self._socket.settimeout(0)
            # With TLS, this takes the session tickets that the node has sent, which are no bytes of an answer.
            self._socket.recv(1)
        except self._nothing_received:
            return True
        except OSError:
            return False
        # This is the end of the stream, or a byte that no request waits for.
        return False

    def exchange(self, message: TopLevel, answer: type[R], version: int, deadline: WaitLimit) -> R:
        """Send a message and return its answer. A session that ends soon is renewed first."""
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            self._authenticate(deadline)
        return self._exchange(message, answer, version, deadline)

    def _exchange(self, message: TopLevel, answer: type[R], version: int, deadline: WaitLimit) -> R:
        self._correlation_id += 1
        frame = encode_request(message.API_KEY, version, self._correlation_id, self._client_id, message)
        try:
            self._send(memoryview(b"".join(frame)), deadline)
            (size,) = _SIZE.unpack(self._receive(_SIZE.size, deadline))
            if not _SIZE.size <= size <= _MAX_ANSWER_BYTES:
                raise DecodeError(f"it has {size} bytes, allowed are 4 to {_MAX_ANSWER_BYTES}")
            number, received = decode_response(message.API_KEY, version, self._receive(size, deadline))
            if number != self._correlation_id:
                raise DecodeError(f"it has correlation id {number}, expected is {self._correlation_id}")
        except BaseException:
            self.close()
            raise
        assert isinstance(received, answer)
        return received

    def _waited(self, act: Callable[[], T], deadline: WaitLimit) -> T:
        """Return what an operation of the socket returns, which is tried again until the deadline is over."""
        while True:
            self._socket.settimeout(min(_TURN_SECONDS, deadline.left()))
            try:
                return act()
            except TimeoutError:
                # The loop raises it when the deadline is over.
                continue

    def _send(self, data: memoryview, deadline: WaitLimit) -> None:
        while data:
            data = data[self._waited(partial(self._socket.send, data), deadline) :]

    def _receive(self, count: int, deadline: WaitLimit) -> memoryview:
        """Return the next bytes. Memory grows with the bytes that arrive, not with the size that a frame declares."""
        pieces = []
        while count:
            piece = self._waited(partial(self._socket.recv, min(count, _PIECE_BYTES)), deadline)
            if not piece:
                raise ConnectionError("the node closed the connection")
            pieces.append(piece)
            count -= len(piece)
        return memoryview(b"".join(pieces))

    # -- before the first request -------------------------------------------------------------------------------------

    def _secure(self, security: ClientSecurity, address: str, deadline: WaitLimit) -> None:
        from ssl import SSLCertVerificationError, SSLWantReadError

        assert security.tls is not None
        self._nothing_received = (BlockingIOError, SSLWantReadError)
        host = _host_and_port(address)[0]
        secured = security.tls.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        self._socket = secured
        try:
            self._waited(secured.do_handshake, deadline)
        except SSLCertVerificationError as error:
            raise CertificateRefused(error.strerror or str(error)) from None

    def _negotiated(self, deadline: WaitLimit) -> Mapping[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="pykbroker", client_software_version=__version__)
        version = APIS[ApiKey.API_VERSIONS].max_version
        try:
            while True:
                found = after_api_versions(version, self._exchange(request, ApiVersionsResponse, version, deadline))
                if isinstance(found, PeerVersions):
                    return found.ranges
                version = found
        except (DecodeError, VersionsRefused) as error:
            raise ConnectionError(f"the first answer cannot be used: {error}") from None

    def _authenticate(self, deadline: WaitLimit) -> None:
        """Begin a session of the user, or renew it."""
        from pykbroker.sasl.client_authenticator import LEAST_HANDSHAKE, ClientAuthenticator, ClientSession
        from pykbroker.sasl.sasl_client import LoginRefused, SaltedPasswords
        from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateResponse
        from pykbroker_wire.messages.sasl_handshake import SaslHandshakeResponse

        assert self._login is not None
        versions = PeerVersions(self.versions)
        self._salted = self._salted or SaltedPasswords()
        authenticator = ClientAuthenticator(self._login, self._salted)
        first = authenticator.begin()
        version = versions.choose(first.API_KEY, LEAST_HANDSHAKE)
        try:
            following = authenticator.handshaken(self._exchange(first, SaslHandshakeResponse, version, deadline))
            version = versions.choose(following.API_KEY)
            while True:
                answer = self._exchange(following, SaslAuthenticateResponse, version, deadline)
                if answer.error_code and answer.error_message:
                    # Users' scripts search for the text that the node has sent.
                    raise UserRefused(answer.error_message)
                received = authenticator.receive(answer)
                if isinstance(received, ClientSession):
                    break
                following = received
        except LoginRefused as error:
            raise UserRefused(str(error)) from None
        lifetime_ms = received.lifetime_ms
        self._renew_at = None if lifetime_ms is None else time.monotonic() + _RENEWED_AFTER * lifetime_ms / 1000


def _connected(address: str, deadline: WaitLimit) -> socket.socket:
    """Return a socket that is connected to the first address of the host that takes a connection."""
    failure: OSError | None = None
    for family, kind, protocol, _, at in socket.getaddrinfo(*_host_and_port(address), type=socket.SOCK_STREAM):
        try:
            # A system without IPv6 makes no socket for such an address, and the host may have others.
            made = socket.socket(family, kind, protocol)
        except OSError as error:
            failure = error
            continue
        try:
            _connect(made, at, deadline)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    assert failure is not None, "a host without addresses is an error of getaddrinfo"
    raise failure


def _connect(made: socket.socket, at: tuple[Any, ...], deadline: WaitLimit) -> None:
    """Connect a socket. Raises ConnectionError when time is over: unlike a node that does not answer, an address that
    cannot be reached leaves the others to try."""
    began = time.monotonic()
    made.setblocking(False)
    number = made.connect_ex(at)
    writable = select.poll()
    writable.register(made, select.POLLOUT)
    while number == errno.EINPROGRESS:
        waited = time.monotonic() - began
        try:
            left = min(_CONNECT_SECONDS - waited, deadline.left())
        except TimeoutError:
            left = 0.0
        if left <= 0:
            raise ConnectionError(f"no connection within {waited:.2g} s")
        if writable.poll(min(_TURN_SECONDS, left) * 1000):
            number = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise ConnectionError(os.strerror(number))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
