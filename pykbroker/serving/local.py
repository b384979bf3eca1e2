"""The broker half as a client of the controller half in the same process (see Peer in context.py)."""

from __future__ import annotations


class LocalPeer:
    """Speaks as the node itself, over no connection."""

    __slots__ = (
        "client_host",
        "client_software_name",
        "client_software_version",
        "listener_name",
        "principal",
        "security_protocol",
        "zero_copy",
    )

    def __init__(self, listener_name: str) -> None:
        self.principal = "User:ANONYMOUS"
        self.client_host = "127.0.0.1"
        self.client_software_name = "pykbroker"
        self.client_software_version = "unknown"
        self.listener_name = listener_name
        self.security_protocol = "PLAINTEXT"
        self.zero_copy = False
