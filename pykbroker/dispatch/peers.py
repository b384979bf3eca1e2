"""Peers without a connection of their own (see Peer in context.py): the node itself, and a client inside an Envelope.

A request of the node to itself passes through no connection, so the code that builds the node sets its principal.
"""

from __future__ import annotations

from pykbroker.security.peer_session import PeerSession


class _Unconnected:
    """A peer without a connection. It has no connection number, and takes no regions of files."""

    __slots__ = (
        "client_host",
        "client_software_name",
        "client_software_version",
        "connection_number",
        "listener_name",
        "security_protocol",
        "session",
        "takes_regions",
    )

    def __init__(
        self, session: PeerSession, client_host: str, software_name: str, listener_name: str, security_protocol: str
    ) -> None:
        self.session = session
        self.client_host = client_host
        self.client_software_name = software_name
        self.client_software_version = "unknown"
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.takes_regions = False
        self.connection_number: int | None = None


class LocalPeer(_Unconnected):
    """The node itself. `listener_name` and `security_protocol` are those of the listener that it would have used."""

    __slots__ = ()

    def __init__(self, session: PeerSession, listener_name: str, security_protocol: str) -> None:
        super().__init__(session, "127.0.0.1", "pykbroker", listener_name, security_protocol)


class ForwardedPeer(_Unconnected):
    """The client whose request is inside an Envelope."""

    __slots__ = ()

    def __init__(self, session: PeerSession, client_host: str, listener_name: str, security_protocol: str) -> None:
        super().__init__(session, client_host, "unknown", listener_name, security_protocol)
