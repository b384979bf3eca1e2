"""The broker half as a client of the controller half in the same process (see Peer in context.py).

Such a request passes through no connection, so the composition says as which principal the node speaks.
"""

from __future__ import annotations

from pykbroker.security.session import Session


class LocalPeer:
    """The node itself. `listener_name` and `security_protocol` are those of the listener that it would have used."""

    __slots__ = (
        "client_host",
        "client_software_name",
        "client_software_version",
        "listener_name",
        "security_protocol",
        "session",
        "zero_copy",
    )

    def __init__(self, session: Session, listener_name: str, security_protocol: str) -> None:
        self.session = session
        self.client_host = "127.0.0.1"
        self.client_software_name = "pykbroker"
        self.client_software_version = "unknown"
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.zero_copy = False
