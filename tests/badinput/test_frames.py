"""Bytes that are no request: Apache Kafka closes the connection, and so does this node, with one line in the log."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from pykbroker_wire.apis import ApiKey
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.wire import CLOSED, SILENT, any_header, framed
from tests.badinput.asking import Asker
from tests.badinput.watched import WatchedNode

FRAME_LIMIT = 104_857_600


METADATA_1 = any_header(ApiKey.METADATA, 1)
METADATA_9 = any_header(ApiKey.METADATA, 9, flexible=True)
FLAGS = b"\0\0\0"

REFUSED = {
    "size -1": struct.pack(">i", -1),
    "size 0": struct.pack(">i", 0),
    "size over the limit": struct.pack(">i", FRAME_LIMIT + 1),
    "size 2^31-1": struct.pack(">i", 2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(32),
    "one byte": framed(b"\0"),
    "unknown key": framed(any_header(9999, 0)),
    "negative key": framed(any_header(-1, 0)),
    "key removed from Kafka": framed(any_header(4, 0)),
    "key of a controller": framed(any_header(ApiKey.VOTE, 0, flexible=True) + b"\0\1\0"),
    "unknown version": framed(any_header(ApiKey.METADATA, 99)),
    "negative version": framed(any_header(ApiKey.METADATA, -1)),
    "Produce 2": framed(any_header(ApiKey.PRODUCE, 2) + struct.pack(">hii", 1, 1000, 0)),
    "ApiVersions 99 with an old header": framed(any_header(ApiKey.API_VERSIONS, 99)),
    "client id beyond the frame": framed(any_header(ApiKey.METADATA, 1, client_id=b"", client_id_size=32767)),
    "truncated string": framed(METADATA_1 + struct.pack(">ih", 1, 100) + b"abc"),
    "truncated array": framed(METADATA_1 + struct.pack(">i", 2) + struct.pack(">h", 1) + b"a"),
    "array of 2^31-1": framed(METADATA_1 + struct.pack(">i", 2**31 - 1)),
    "compact array of 2^32-2": framed(METADATA_9 + b"\xff\xff\xff\xff\x0f"),
    "varint of seven bytes": framed(METADATA_9 + b"\xff\xff\xff\xff\xff\xff\x01"),
    "tag of 2^31-1 bytes": framed(METADATA_9 + b"\x01" + FLAGS + b"\x01\0\xff\xff\xff\xff\x07"),
    "2^31-1 tags": framed(METADATA_9 + b"\x01" + FLAGS + b"\xff\xff\xff\xff\x07"),
    "null where none is allowed": framed(METADATA_1 + struct.pack(">ih", 1, -1)),
}
#: The address of the client that sends it, because a node logs a kind of mistake once a minute for each address.
ADDRESSES = {name: f"127.0.2.{number}" for number, name in enumerate(REFUSED, 1)}


@pytest.mark.parametrize("name", REFUSED)
def test_closes_the_connection_and_says_so_once(name: str, node: WatchedNode) -> None:
    with Asker(node.port, ADDRESSES[name]) as client:
        assert client.exchange(REFUSED[name]) is CLOSED
        lines = client.said_in(node.log_file)
        assert len(lines) == 1, lines
        assert " INFO " in lines[0]


@pytest.mark.parametrize(
    ("name", "body"),
    {
        "array of -2 is null": METADATA_1 + struct.pack(">i", -2),
        "trailing bytes": METADATA_1 + struct.pack(">i", 0) + b"garbage",
        "unknown tag": METADATA_9 + b"\x01" + FLAGS + b"\x01\x05\x02ab",
        "the same tag twice": METADATA_9 + b"\x01" + FLAGS + b"\x02\0\0\0\0",
        "client id of length -2": any_header(ApiKey.METADATA, 1, client_id=b"", client_id_size=-2)
        + struct.pack(">i", 0),
    }.items(),
)
def test_answers_as_if_it_were_not_there(name: str, body: bytes, node: WatchedNode) -> None:
    with Asker(node.port) as client:
        answer = client.exchange(framed(body))
        assert isinstance(answer, bytes)
        assert answer[:4] == struct.pack(">i", 7)
        assert not client.said_in(node.log_file)


def test_invalid_utf8_is_replaced_and_echoed(node: WatchedNode) -> None:
    with Asker(node.port) as client:
        answer = client.exchange(framed(METADATA_1 + struct.pack(">ih", 1, 2) + b"\xff\xfe"))
        assert isinstance(answer, bytes)
        assert b"\xef\xbf\xbd\xef\xbf\xbd" in answer
        assert struct.pack(">hh", 17, 6) + b"\xef\xbf\xbd" in answer


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered(version: int, node: WatchedNode) -> None:
    with Asker(node.port) as client:
        body = client.exchange(framed(any_header(ApiKey.API_VERSIONS, version, flexible=version >= 3)))
        assert body == bytes.fromhex("00000007 0023 00000001 0012 0000 0005")


@pytest.mark.parametrize("name", ["a b", "", "-x", "x\n"])
def test_a_bad_software_name(name: str, node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        answer = asker.ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
        assert (answer.error_code, answer.api_keys) == (42, [])


@pytest.mark.slow
def test_memory_follows_what_arrives_and_not_what_is_declared(node: WatchedNode) -> None:
    before = node.holds()
    clients = [Asker(node.port) for _ in range(20)]
    for client in clients:
        client.send_bytes(struct.pack(">i", FRAME_LIMIT) + bytes(5000))
    held = node.reaches({"connections": before["connections"] + 20})
    assert held["connections"] == before["connections"] + 20
    assert held["receive_bytes"] - before["receive_bytes"] <= 20 * 16384
    assert held["anonymous_kib"] - before["anonymous_kib"] < 8192
    # Apache Kafka waits ten minutes for them; here a request has a limited time to arrive.
    for client in clients:
        assert client.answer(5) is CLOSED
        assert len(client.said_in(node.log_file)) == 1
        client.close()
    assert node.settles({"connections": before["connections"]})["connections"] == before["connections"]


def test_a_slow_but_steady_request_is_served(node: WatchedNode) -> None:
    with Asker(node.port) as client:
        for byte in framed(METADATA_1 + struct.pack(">i", 0)):
            client.send_bytes(bytes([byte]))
            time.sleep(0.01)
        assert isinstance(client.answer(), bytes)


def test_pipelined_requests_before_a_broken_one_are_answered(node: WatchedNode) -> None:
    good = framed(METADATA_1 + struct.pack(">i", 0))
    with Asker(node.port) as client:
        client.send_bytes(good * 3 + REFUSED["unknown key"] + good)
        assert [type(client.answer()) for _ in range(3)] == [bytes, bytes, bytes]
        assert client.answer() is CLOSED
        assert len(client.said_in(node.log_file)) == 1


def test_pipelined_requests_on_a_half_closed_socket_are_answered(node: WatchedNode) -> None:
    with Asker(node.port) as client:
        client.send_bytes(framed(METADATA_1 + struct.pack(">i", 0)) * 50)
        client.socket.shutdown(socket.SHUT_WR)
        answers = [client.answer() for _ in range(51)]
        assert all(isinstance(answer, bytes) for answer in answers[:50])
        assert answers[50] is CLOSED
        assert not client.said_in(node.log_file)


def test_a_request_broken_off_by_its_client(node: WatchedNode) -> None:
    client = Asker(node.port)
    client.send_bytes(framed(METADATA_1)[:-3])
    time.sleep(0.05)
    client.close()
    deadline = time.monotonic() + 5
    while not client.said_in(node.log_file) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(client.said_in(node.log_file)) == 1


@pytest.mark.slow
def test_silence_is_no_offence(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        assert asker.answer(2.0) is SILENT
        assert len(asker.ask(MetadataRequest(topics=[])).brokers) == 1
