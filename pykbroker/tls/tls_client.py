"""Makes the TLS layer of each connection that this node makes to one listener of other nodes, and their shared
context."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.config.typed_config import Config
from pykbroker.net.peer_security import SecuredProtocol
from pykbroker.runtime import Runtime
from pykbroker.tls.contexts import client_context
from pykbroker.tls.handshakes import Handshakes
from pykbroker.tls.settings import settings_of
from pykbroker.tls.store_replacement import Stores, read_stores
from pykbroker.tls.tls_layer import TlsLayer

_RECEIVE_BYTES = 64 * 1024


class TlsClient:
    """Uses the keys and stores that this node's configuration has for that listener, as in Apache Kafka."""

    def __init__(self, runtime: Runtime, config: Config, listener: str, handshakes: Handshakes) -> None:
        """Raises ConfigError, one line without secrets, for stores that cannot be used."""
        self.listener = listener
        self.stores: Stores | None = read_stores(settings_of(config, listener))
        self._context = client_context(*self.stores)
        self._loop = runtime.loop
        self._handshakes = handshakes
        self._receive_view = memoryview(bytearray(_RECEIVE_BYTES))

    def prepare(self, stores: Stores) -> Callable[[], None]:
        """Return a function that makes new connections use `stores`. Raises ConfigError for stores that cannot be
        used."""
        context = client_context(*stores)

        def take() -> None:
            self._context, self.stores = context, stores

        return take

    def layer(self, connection: SecuredProtocol, host: str) -> TlsLayer:
        """Return the layer of one connection to `host`."""
        return TlsLayer(
            self._loop, connection, self._context, self._handshakes, self._receive_view, server_hostname=host
        )
