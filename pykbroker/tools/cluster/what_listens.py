"""Finds out what listens at an address that does not answer as a broker: TLS, HTTP, or a broker without TLS.

Responsible for one sentence that says what to do. It connects to the address again, so a command asks for it only when
it is about to end with an error.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from pykbroker.tools.cluster.client_security import ClientSecurity
from pykbroker.tools.cluster.failure import AskFailed

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_node import AskedNode

T = TypeVar("T")

#: The most time for each try.
_PATIENCE_SECONDS: Final = 1.0
_CONTROLLER: Final = (
    "A controller of the quorum listens there, and serves no clients: `-b HOST:PORT` names a broker. `pykbroker "
    "quorum` and most commands of `pykbroker cluster` also take --bootstrap-controller"
)


def what_to_do(address: str, security: ClientSecurity, plain: Callable[[str], AskedNode]) -> str | None:
    """Return a sentence about the program at an address, without its full stop, or None if nothing is known of it.

    `security`: that of the client which failed; `plain`: makes a connection without TLS to an address.
    """
    if security.tls is not None:
        return _without_tls(address, security.protocol, plain)
    if _takes_tls(address):
        other = "SASL_SSL" if security.protocol.startswith("SASL") else "SSL"
        return (
            f"TLS is spoken there: add -X security.protocol={other}, and -X ssl.truststore.location=FILE for an "
            "authority of your own"
        )
    if _answers_http(address):
        return "An HTTP server listens there, and no broker: `-b HOST:PORT` names another"
    return None


def of_controller() -> str:
    """Return the sentence about a controller whose address was given as that of a broker."""
    return _CONTROLLER


def _without_tls(address: str, protocol: str, plain: Callable[[str], AskedNode]) -> str | None:
    node = plain(address)
    try:
        node.versions()
    except AskFailed:
        return None
    finally:
        node.close()
    other = "SASL_PLAINTEXT" if protocol.startswith("SASL") else "PLAINTEXT"
    return f"A broker without TLS listens there: -X security.protocol={other} connects to it"


def _takes_tls(address: str) -> bool:
    """Return True if a handshake succeeds, or if an alert of TLS ends it, for example because a certificate is
    missing."""

    def handshake(connection: socket.socket) -> bool:
        # Nearly all commands that fail find a closed port. They do not wait for this import.
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        # Nothing is sent over this connection.
        context.verify_mode = ssl.CERT_NONE
        try:
            with context.wrap_socket(connection):
                return True
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")

    return _tried(address, handshake) or False


def _answers_http(address: str) -> bool:
    def ask(connection: socket.socket) -> bool:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(5) == b"HTTP/"

    return _tried(address, ask) or False


def _tried(address: str, act: Callable[[socket.socket], T]) -> T | None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_SECONDS) as connection:
            return act(connection)
    except (OSError, ValueError):
        return None
