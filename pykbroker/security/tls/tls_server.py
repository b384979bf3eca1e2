"""What a TLS listener has: the context of its connections, and the names of the clients that prove who they are."""

from __future__ import annotations

import ssl

from pykbroker.config.load import Config
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker.security.tls.contexts import read_material, server_context
from pykbroker.security.tls.distinguished_names import MalformedName, subject_of
from pykbroker.security.tls.principal_mapping import PrincipalMapper
from pykbroker.security.tls.settings import settings_of, warn_of_client_auth


class UnmappedClient(ValueError):
    """A certificate from which no principal follows."""


class TlsServer:
    """One listener's."""

    def __init__(self, context: ssl.SSLContext, mapper: PrincipalMapper | None) -> None:
        """`mapper`: None where certificates name no principal, because SASL does."""
        self.context = context
        self._mapper = mapper

    def session_of(self, certificate: bytes | None) -> PeerSession:
        """The principal of a client, by the certificate (DER) that it has proved. UnmappedClient if it has none."""
        if certificate is None or self._mapper is None:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except MalformedName as error:
            raise UnmappedClient(f"the subject of the certificate cannot be read: {error}") from error
        name = self._mapper.name_of(subject)
        if name is None:
            raise UnmappedClient(f"no rule of ssl.principal.mapping.rules takes {subject!r}")
        return PeerSession(f"User:{name}")


def tls_server(config: Config, listener: str) -> TlsServer:
    """From the keys and the stores. ConfigError, one line without secrets, for what cannot be used."""
    settings = settings_of(config, listener)
    warn_of_client_auth(config, listener)
    mapper = None if settings.is_below_sasl else PrincipalMapper(settings.principal_mapping_rules)
    return TlsServer(server_context(settings, read_material(settings)), mapper)
