"""The reason why the first four bytes of a frame are not the size of a request. Often the client uses another protocol.
Pure."""

from __future__ import annotations

from typing import Final

from pykbroker.net.connection_state import ConnectionState

#: The first bytes of the methods of HTTP, and of an HTTP/2 connection.
_HTTP: Final = frozenset(
    int.from_bytes(word) for word in (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")
)
#: The head of a TLS record with a handshake, version 3.x.
_TLS: Final = 0x1603


def why_no_size(size: int, most: int, state: ConnectionState, security_protocol: str) -> tuple[str, str]:
    """Return the kind of the mistake, of which there are few, and the reason for the log. `most`: the largest size for
    a connection in this state. `security_protocol`: that of the listener."""
    if size in _HTTP:
        return "HTTP", "the client speaks HTTP, and this listener serves Kafka's protocol alone"
    if size >> 16 == _TLS:
        return (
            "TLS",
            "the client speaks TLS, which this listener does not. Its security.protocol has to be "
            f"{security_protocol} here, or it needs a listener with TLS",
        )
    is_authenticating = state is ConnectionState.AUTHENTICATING
    key = "sasl.server.max.receive.size" if is_authenticating else "socket.request.max.bytes"
    return "size", f"invalid request size {size}, allowed is 1 to {most} ({key})"
