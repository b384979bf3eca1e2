"""Principals that a class in Python returns. If it raises, or returns no principal, the connection is closed."""

from __future__ import annotations

from typing import Protocol

from pykbroker.config.protection import PRINCIPAL_BUILDER
from pykbroker.config.typed_config import Config
from pykbroker.plugins import PrincipalBuilder, ProvenClient
from pykbroker.plugins.plugin_loading import plugin
from pykbroker.security.acl import java_address
from pykbroker.security.peer_session import PeerSession


class ProvenPeer(Protocol):
    """A connection, as far as its principal depends on it."""

    @property
    def listener_name(self) -> str: ...
    @property
    def security_protocol(self) -> str: ...

    client_host: str


class NoPrincipal(ValueError):
    """The client must not be served. The text has the type of the plugin's exception, but not its message."""


class PluginPrincipals:
    def __init__(self, builder: PrincipalBuilder) -> None:
        self._builder = builder

    def session(
        self,
        peer: ProvenPeer,
        *,
        user: str | None = None,
        mechanism: str | None = None,
        certificate: bytes | None = None,
    ) -> PeerSession:
        """Return the session of a client. Raises NoPrincipal."""
        host = java_address(peer.client_host)
        client = ProvenClient(peer.listener_name, peer.security_protocol, host, user, mechanism, certificate)
        try:
            principal = self._builder.build(client)
        except Exception as error:  # noqa: BLE001 - whatever it raises, the client is not served
            raise NoPrincipal(f"{PRINCIPAL_BUILDER} raised {type(error).__name__}") from None
        kind, colon, name = principal.partition(":") if isinstance(principal, str) else ("", "", "")
        if not (kind and colon and name):
            raise NoPrincipal(f"{PRINCIPAL_BUILDER} gave no principal, which is Type:name")
        return PeerSession(principal)


def plugin_principals(config: Config) -> PluginPrincipals:
    """Return the principals of a node whose properties name a class in Python. Raises ConfigError if the class cannot
    be loaded."""
    made = plugin(config, PRINCIPAL_BUILDER, PrincipalBuilder)
    assert made is not None, "the composition has looked (node/ports.py)"
    return PluginPrincipals(made)
