"""Makes the TLS layer of each connection that one listener accepts."""

from __future__ import annotations

from pykbroker.net.peer_security import SecuredProtocol
from pykbroker.runtime import Runtime
from pykbroker.security.peer_session import PeerSession
from pykbroker.tls.handshakes import Handshakes, Side
from pykbroker.tls.tls_layer import TlsLayer
from pykbroker.tls.tls_server import TlsServer

_RECEIVE_BYTES = 256 * 1024


class TlsListener:
    """Uses the present context of `server` for each new connection."""

    def __init__(self, runtime: Runtime, server: TlsServer, handshakes: Handshakes, side: Side = Side.CLIENT) -> None:
        """`handshakes` are shared by all TLS connections of one half of the node. `side`: the kind of peers that
        connect to this listener."""
        self._loop = runtime.loop
        self._server = server
        self._handshakes = handshakes
        self._side = side
        self._receive_view = memoryview(bytearray(_RECEIVE_BYTES))

    def layer(self, connection: SecuredProtocol) -> TlsLayer:
        return TlsLayer(
            self._loop, connection, self._server.context, self._handshakes, self._receive_view, side=self._side
        )

    def session_of(self, certificate: bytes | None) -> PeerSession:
        return self._server.session_of(certificate)
