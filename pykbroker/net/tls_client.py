"""TLS of the connections that this node makes to one listener of others: what they share, and the layer of each."""

from __future__ import annotations

from pykbroker.config.load import Config
from pykbroker.net.handshakes import Handshakes
from pykbroker.net.tls_layer import SecuredProtocol, TlsLayer
from pykbroker.runtime import Runtime
from pykbroker.security.tls.contexts import client_context, read_material
from pykbroker.security.tls.settings import settings_of

_RECEIVE_BYTES = 64 * 1024


class TlsClient:
    """With the keys and stores that this node's configuration has for that listener, as in Apache Kafka."""

    def __init__(self, runtime: Runtime, config: Config, listener: str, handshakes: Handshakes) -> None:
        """ConfigError, one line without secrets, for what cannot be used."""
        settings = settings_of(config, listener)
        self._context = client_context(settings, read_material(settings))
        self._loop = runtime.loop
        self._handshakes = handshakes
        self._receive_view = memoryview(bytearray(_RECEIVE_BYTES))

    def layer(self, connection: SecuredProtocol, host: str) -> TlsLayer:
        """For one connection to `host`."""
        return TlsLayer(
            self._loop, connection, self._context, self._handshakes, self._receive_view, server_hostname=host
        )
