"""The TLS of a listener: the context of its connections, and the principals of clients with a certificate."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from pykbroker.config.typed_config import Config
from pykbroker.security.peer_session import ANONYMOUS, PeerSession
from pykbroker.tls.contexts import server_context
from pykbroker.tls.distinguished_names import MalformedName, subject_of
from pykbroker.tls.principal_mapping import PrincipalMapper
from pykbroker.tls.settings import settings_of, warn_of_client_auth
from pykbroker.tls.store_replacement import Stores, check_itself, read_stores


class UnmappedClient(ValueError):
    """No principal can be derived from the certificate of a client."""


class TlsServer:
    """The TLS of one listener."""

    def __init__(self, context: ssl.SSLContext, mapper: PrincipalMapper | None, stores: Stores | None = None) -> None:
        """`mapper`: None if principals do not come from certificates, because SASL authenticates users. `stores`: the
        content of `context`."""
        #: the context for new connections
        self.context = context
        self.stores = stores
        self._mapper = mapper

    def prepare(self, stores: Stores) -> Callable[[], None]:
        """Return a function that makes new connections use `stores`. Raises ConfigError for stores that cannot be used.
        The new context has new keys for tickets, so no earlier TLS session is resumed."""
        context = server_context(*stores)

        def take() -> None:
            self.context, self.stores = context, stores

        return take

    def session_of(self, certificate: bytes | None) -> PeerSession:
        """Return the principal of a client with this proved certificate (DER). Raises UnmappedClient if the certificate
        gives no principal."""
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
    """Return the TLS of a listener from its keys and stores. Raises ConfigError. The text of the error is one line
    without secrets."""
    settings = settings_of(config, listener)
    warn_of_client_auth(config, listener)
    mapper = None if settings.is_below_sasl else PrincipalMapper(settings.principal_mapping_rules)
    stores = read_stores(settings)
    context = server_context(*stores)
    if config.is_broker and listener == config.listeners.inter_broker_name:
        check_itself(stores)
    return TlsServer(context, mapper, stores)
