"""The contracts of TLS and SASL with the connections of this room, and of those connections with TLS and SASL.

The rooms tls/ and sasl/ stand above this one. The composition (node/) makes their objects and passes them to listeners
and clients, so a connection handles no certificates and no passwords. `BeginsConnection` (connection_home.py) is the
SASL of a listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pykbroker.security.peer_session import PeerSession
from pykbroker_wire.primitives import TopLevel


class SecuredProtocol(Protocol):
    """A connection above a TLS layer. The layer calls it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: BaseException | None) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def secured(self, certificate: bytes | None) -> None:
        """The handshake is done; the peer has proved `certificate` (DER), which is None if it has sent none."""

    def insecure(self, reason: str) -> None:
        """The handshake failed, or later bytes are not TLS. The connection must close."""


class TlsOfListener(Protocol):
    """The TLS of the connections that a listener accepts."""

    def layer(self, connection: SecuredProtocol) -> asyncio.BaseProtocol:
        """Return the protocol between the transport and a new connection."""
        ...

    def session_of(self, certificate: bytes | None) -> PeerSession:
        """Return the principal of a client with this proved certificate (DER). Raises ValueError if the certificate
        gives no principal."""
        ...


class TlsToPeer(Protocol):
    """The TLS of the connections that this node makes."""

    def layer(self, connection: SecuredProtocol, host: str) -> asyncio.BaseProtocol:
        """Return the protocol between the transport and a new connection to `host`."""
        ...


class AuthenticatingConnection(Protocol):
    """A connection that this node makes, as its exchange of SASL sees it."""

    @property
    def address(self) -> str: ...

    def ask(self, message: TopLevel, least_version: int, answered: Callable[[Any], None]) -> None:
        """Send one request of the exchange."""

    def authenticated(self) -> None:
        """Send the waiting requests, because the peer has accepted this node."""

    def refused(self, reason: str) -> None:
        """End the connection, because the peer has refused this node. The reason is in the log."""

    def close(self, reason: str) -> None: ...


class AuthenticationOfNode(Protocol):
    """The first authentication of one connection that this node makes, and the later ones that renew its session."""

    def begin(self) -> None:
        """Begin an exchange. Its requests are the next that the connection sends."""

    def is_due(self) -> bool:
        """Return True if the session must be renewed before the next request."""
        ...

    def renew(self) -> None:
        """Begin another exchange on a connection that is in use."""

    def stop(self) -> None:
        """Stop, because the connection has ended."""


class LoginToPeer(Protocol):
    """The user as which this node authenticates at one listener of other nodes."""

    def exchange(self, connection: AuthenticatingConnection) -> AuthenticationOfNode:
        """Return the authentication of a new connection, which has not begun."""
        ...
