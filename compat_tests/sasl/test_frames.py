"""The conversation before authentication, frame by frame, with the same bytes to Apache Kafka and to pykbroker.

The test compares the answers, with the values that each invents (nonces, salts) replaced, and whether the connection
ends. `DIFFERENT` names what pykbroker does differently, and why; everything else is equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests.node import Node, make_node
from compat_tests.sasl.secured import Ports, add_users
from pykbroker.sasl.sasl_client import Login, ScramClient
from pykbroker.sasl.scram import MECHANISMS
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest
from pykbroker_wire.primitives import TopLevel
from testkit.nodes.wire import CLOSED, SILENT, Wire, frame_of, framed
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow
PATIENCE = 60
LIFETIME_MS = 600_000


def request(message: TopLevel, version: int) -> bytes:
    return frame_of(message, version, correlation_id=7, client_id="c")[4:]


def handshake(mechanism: str, version: int = 1) -> bytes:
    return request(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 2) -> bytes:
    return request(SaslAuthenticateRequest(auth_bytes=data), version)


VERSIONS = request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
METADATA = request(MetadataRequest(topics=None), 9)
ALICE = b"\0alice\0alice-secret"
#: name -> frames, sent one after another; `converse` makes the frames of SCRAM that need an answer
TALKS: dict[str, list[bytes]] = {
    "plain": [VERSIONS, handshake("PLAIN"), token(ALICE), METADATA],
    "plain 0": [handshake("PLAIN"), token(ALICE, 0)],
    "plain 1": [handshake("PLAIN"), token(ALICE, 1)],
    "plain bare": [handshake("PLAIN", 0), ALICE],
    "plain as itself": [handshake("PLAIN"), token(b"alice" + ALICE)],
    "plain as another": [handshake("PLAIN"), token(b"admin" + ALICE)],
    "wrong password": [handshake("PLAIN"), token(b"\0alice\0x")],
    "unknown user": [handshake("PLAIN"), token(b"\0nobody\0x")],
    "wrong bare": [handshake("PLAIN", 0), b"\0alice\0x"],
    "two parts": [handshake("PLAIN"), token(b"\0alice")],
    "four parts": [handshake("PLAIN"), token(ALICE + b"\0")],
    "no user": [handshake("PLAIN"), token(b"\0\0x")],
    "no password": [handshake("PLAIN"), token(b"\0alice\0")],
    "empty": [handshake("PLAIN"), token(b"")],
    "other mechanism": [handshake("GSSAPI")],
    "no mechanism": [handshake("")],
    "mechanism in lower case": [handshake("plain")],
    "no handshake": [METADATA],
    "token first": [token(ALICE)],
    "bare token first": [ALICE],
    "garbage": [b"\xff\xff\xff\xff"],
    "handshake of version 9": [handshake("PLAIN")[:2] + b"\0\x09" + handshake("PLAIN")[4:]],
    "versions twice": [VERSIONS, VERSIONS],
    "versions of version 99": [VERSIONS[:2] + b"\0\x63" + VERSIONS[4:], handshake("PLAIN"), token(ALICE)],
    "versions without software": [request(ApiVersionsRequest(), 3), handshake("PLAIN"), token(ALICE)],
    "versions in the middle": [handshake("PLAIN"), VERSIONS],
    "handshake twice": [handshake("PLAIN"), handshake("PLAIN")],
    "metadata in the middle": [handshake("PLAIN"), METADATA],
    "token of version 9": [handshake("PLAIN"), token(ALICE)[:2] + b"\0\x09" + token(ALICE)[4:]],
    "renewed": [handshake("PLAIN"), token(ALICE), handshake("PLAIN"), token(ALICE), METADATA],
    "renewed with a wrong password": [handshake("PLAIN"), token(ALICE), handshake("PLAIN"), token(b"\0alice\0x")],
    "renewed by another mechanism": [
        handshake("PLAIN"), token(ALICE), handshake("SCRAM-SHA-256"), token(b"n,,n=carol,r=abc"),
    ],
    "scram garbage": [handshake("SCRAM-SHA-256"), token(b"garbage")],
    "scram channel binding": [handshake("SCRAM-SHA-256"), token(b"y,,n=carol,r=abc")],
    "scram as another": [handshake("SCRAM-SHA-256"), token(b"n,a=admin,n=carol,r=abc")],
    "scram token": [handshake("SCRAM-SHA-256"), token(b"n,,n=carol,r=abc,tokenauth=true")],
    "scram first": [handshake("SCRAM-SHA-256"), token(b"n,,n=carol,r=abc")],
}  # fmt: skip
SCRAM = [
    ("SCRAM-SHA-256", "carol", "carol-secret"),
    ("SCRAM-SHA-512", "dave", "dave-secret"),
    ("SCRAM-SHA-256", "carol", "x"),
]
#: name -> reason
DIFFERENT = {"metadata in the middle": "no body of another API is read before authentication, so there is no answer"}


@dataclass(frozen=True)
class Nodes:
    kafka: int
    pykbroker: int


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Start nodes of their own, because other tests do not know the users."""
    kafka_libs()
    made: list[Node] = []
    try:
        ports = []
        for kind in ("apache-kafka", "pykbroker"):
            own = Ports.free()
            reauth = {"listener.name.clients.connections.max.reauth.ms": str(LIFETIME_MS)}
            node = make_node(kind, own.config(reauth), port=own.plain)
            made.append(node)
            node.start()
            add_users(node)
            ports.append(own.sasl)
        yield Nodes(*ports)
    finally:
        for node in made:
            node.close()


class Talk:
    """One connection, and the answers that it received."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(f"localhost:{port}", timeout=PATIENCE)
        self.heard: list[str] = []

    def ask(self, frame: bytes) -> bytes | None:
        """Return the frame of the answer, or None if the connection has ended instead."""
        self.wire.send_bytes(framed(frame))
        answer = self.wire.answer()
        assert answer is not SILENT
        if answer is CLOSED:
            self.heard.append("ended")
            return None
        self.heard.append(_said(frame, answer))
        return answer

    def say_the_end(self) -> None:
        """Add whether the peer ends the connection within a second."""
        self.heard.append("ended" if self.wire.answer(1) is CLOSED else "open")


def _said(frame: bytes, answer: bytes) -> str:
    key = int.from_bytes(frame[:2], "big")
    version = int.from_bytes(frame[2:4], "big")
    if key == ApiKey.API_VERSIONS:
        _, response = decode_response(key, version, answer)
        return f"ApiVersions, error {response.error_code}, {bool(response.api_keys)}"  # type: ignore[attr-defined]
    if key == ApiKey.METADATA:
        return "Metadata"
    if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE) and answer[:4] == (7).to_bytes(4, "big"):
        _, read = decode_response(key, version, answer)
        if key == ApiKey.SASL_HANDSHAKE:
            # Apache Kafka keeps a set, so the order does not count.
            read.mechanisms.sort()  # type: ignore[attr-defined]
        return re.sub(r"r=[^,]+,s=[^,]+", "r=…,s=…", repr(read)) if b"v=" not in answer else "signed"
    return answer.hex()


def converse(port: int, frames: list[bytes]) -> list[str]:
    talk = Talk(port)
    with talk.wire:
        for frame in frames:
            if talk.ask(frame) is None:
                break
        else:
            talk.say_the_end()
    return talk.heard


@pytest.mark.parametrize("name", TALKS)
def test_both_say_the_same(nodes: Nodes, name: str) -> None:
    theirs, ours = converse(nodes.kafka, TALKS[name]), converse(nodes.pykbroker, TALKS[name])
    assert (ours != theirs) == (name in DIFFERENT), f"{theirs}\n{ours}"


def log_in(port: int, mechanism: str, user: str, password: str) -> list[str]:
    talk = Talk(port)
    client = ScramClient(Login(mechanism, user, password), MECHANISMS[mechanism])
    with talk.wire:
        talk.ask(handshake(mechanism))
        data: bytes | None = client.first()
        while data is not None:
            answer = talk.ask(token(data))
            assert answer is not None
            response = decode_response(ApiKey.SASL_AUTHENTICATE, 2, answer)[1]
            data = None if response.error_code else client.evaluate(response.auth_bytes)  # type: ignore[attr-defined]
        talk.say_the_end()
    return talk.heard


@pytest.mark.parametrize(("mechanism", "user", "password"), SCRAM)
def test_scram_is_the_same(nodes: Nodes, mechanism: str, user: str, password: str) -> None:
    assert log_in(nodes.pykbroker, mechanism, user, password) == log_in(nodes.kafka, mechanism, user, password)


def test_a_user_that_does_not_exist_is_the_named_difference(nodes: Nodes) -> None:
    theirs = log_in(nodes.kafka, "SCRAM-SHA-256", "nobody", "x")
    ours = log_in(nodes.pykbroker, "SCRAM-SHA-256", "nobody", "x")
    assert len(ours) == len(theirs) + 1
    assert [ours[0], *ours[2:]] == theirs
