"""OpenSSL as a value: two streams exchange bytes without a loop, a thread or a transport."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pykbroker.tls.tls_stream import HANDSHAKE_BYTES, NotTls, TlsStream
from testkit.certificates import client_context, client_identity
from tests.tls.test_tls_layer import server_context

ROOM = 64 * 1024


def step(stream: TlsStream) -> bool:
    """Return True if the handshake is done."""
    try:
        stream.handshake_step()
    except ssl.SSLWantReadError:
        return False
    return True


@pytest.fixture
def pair(tmp_path: Path) -> tuple[TlsStream, TlsStream]:
    """A client and a server whose handshakes are done."""
    client = TlsStream(client_context(tmp_path, client_identity()), "localhost")
    server = TlsStream(server_context(client_auth=ssl.CERT_REQUIRED), None)
    client.begin()
    assert not step(client)
    hello = client.take_out()
    # The server takes no step before the first record is complete.
    assert not server.receive_handshake(memoryview(hello[:-1]))
    assert server.take_out() == b""
    assert server.receive_handshake(memoryview(hello[-1:]))
    assert not step(server)
    assert client.receive_handshake(memoryview(server.take_out()))
    assert step(client)
    assert client.secure() is not None
    assert server.receive_handshake(memoryview(client.take_out()))
    assert step(server)
    assert server.secure() is not None
    return client, server


def read(stream: TlsStream, data: bytes) -> bytes:
    stream.receive(memoryview(data))
    room, found = memoryview(bytearray(ROOM)), b""
    while (count := stream.read(room)) is not None:
        found += bytes(room[:count])
    stream.keep()
    return found


def test_what_one_side_encrypts_the_other_side_reads(pair: tuple[TlsStream, TlsStream]) -> None:
    client, server = pair
    data = bytes(range(256)) * 400
    sent = 0
    while sent < len(data):
        sent += client.write(memoryview(data)[sent:])
    encrypted = client.take_out()
    # A record that has not come completely gives nothing yet.
    assert read(server, encrypted[:3]) == b""
    assert read(server, encrypted[3:]) == data
    parts: list[bytes] = []
    assert server.encrypt(data, parts.append) == sum(map(len, parts))
    assert len(parts) > 1
    read(client, server.take_out())
    assert read(client, b"".join(parts)) == data


def test_the_end_of_one_side_is_the_end_of_the_stream(pair: tuple[TlsStream, TlsStream]) -> None:
    client, server = pair
    client.end()
    with pytest.raises(ssl.SSLZeroReturnError):
        read(server, client.take_out())


def test_changed_bytes_are_not_tls(pair: tuple[TlsStream, TlsStream]) -> None:
    client, server = pair
    client.write(memoryview(b"secret"))
    encrypted = bytearray(client.take_out())
    encrypted[-1] ^= 1
    with pytest.raises(NotTls, match="what it sent is not TLS"):
        read(server, bytes(encrypted))


def test_a_handshake_has_a_bound() -> None:
    server = TlsStream(server_context(), None)
    assert not server.receive_handshake(memoryview(b"\x16\x03\x01\x40\x00"))
    with pytest.raises(NotTls, match="is not done after"):
        server.receive_handshake(memoryview(bytes(HANDSHAKE_BYTES)))


def test_a_stream_that_is_cleared_has_nothing_to_send(pair: tuple[TlsStream, TlsStream]) -> None:
    client, _ = pair
    client.write(memoryview(b"lost"))
    client.clear()
    assert client.take_out() == b""
    client.end()
