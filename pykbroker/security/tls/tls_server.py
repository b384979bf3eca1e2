"""What a TLS listener has: the context of its connections, and the names of the clients that prove who they are."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from pykbroker.config.load import Config
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker.security.tls.contexts import server_context
from pykbroker.security.tls.distinguished_names import MalformedName, subject_of
from pykbroker.security.tls.principal_mapping import PrincipalMapper
from pykbroker.security.tls.settings import settings_of, warn_of_client_auth
from pykbroker.security.tls.store_replacement import Stores, check_itself, read_stores


class UnmappedClient(ValueError):
    """A certificate from which no principal follows."""


class TlsServer:
    """One listener's."""

    def __init__(self, context: ssl.SSLContext, mapper: PrincipalMapper | None, stores: Stores | None = None) -> None:
        """`mapper`: None where certificates name no principal, because SASL does. `stores`: what `context` has."""
        #: of the connections that begin from now on
        self.context = context
        self.stores = stores
        self._mapper = mapper

    def prepare(self, stores: Stores) -> Callable[[], None]:
        """What makes the connections that begin from then on use other stores. ConfigError, and nothing has changed,
        for those that cannot be used. Its keys for tickets are new: no session is resumed that began before."""
        context = server_context(*stores)

        def take() -> None:
            self.context, self.stores = context, stores

        return take

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
    stores = read_stores(settings)
    context = server_context(*stores)
    if config.is_broker and listener == config.listeners.inter_broker_name:
        check_itself(stores)
    return TlsServer(context, mapper, stores)
