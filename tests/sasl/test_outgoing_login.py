"""Connections of this node to peers that authenticate it: the exchange, its renewal, and refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pytest

from pykbroker.net.client import BrokerConnection, ConnectionSetup, Disconnected
from pykbroker.sasl import sasl_client, scram
from pykbroker.sasl.outgoing_login import RENEWAL_SECONDS, OutgoingLogin
from pykbroker.sasl.plain_server import PlainServer, PlainUsers
from pykbroker.sasl.sasl_client import Derivation, Login
from pykbroker.sasl.sasl_server import AuthenticationFailed, InvalidCredentials, SaslServer
from pykbroker.sasl.scram import SHA_512
from pykbroker.sasl.scram_server import Decoys, ScramServer
from pykbroker.security.stored_keys import StoredKeys
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataResponse
from pykbroker_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker_worlds.simulated.world import SimWorld
from tests.net.peer import Peer, empty_answer

PORT = 9092
HANDSHAKE, AUTHENTICATE, METADATA = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE), int(ApiKey.METADATA)
EXCHANGE = [HANDSHAKE, AUTHENTICATE, AUTHENTICATE]
T = TypeVar("T")


def keys(password: str) -> StoredKeys:
    return scram.stored_keys(SHA_512, scram.salted_password(SHA_512, password, b"salt", 4096), b"salt", 4096)


@dataclass
class Authenticating:
    """The responses of a peer that asks for SCRAM-SHA-512 or PLAIN."""

    password: str = "node-secret"
    lifetime_ms: int = 0
    server: SaslServer | None = None

    def __call__(self, request: Any, version: int) -> Any:
        if isinstance(request, SaslHandshakeRequest):
            return self.begin(request)
        if isinstance(request, SaslAuthenticateRequest):
            return self.evaluate(request)
        assert self.server is not None
        assert self.server.user == "node", "a request before authentication"
        return empty_answer(request, version)

    def begin(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        if request.mechanism == "PLAIN":
            self.server = PlainServer(PlainUsers({"user_node": self.password}))
        else:
            known = keys(self.password)
            self.server = ScramServer(SHA_512, lambda number, user: known, Decoys("cluster"))
        return SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-512"])

    def evaluate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        assert self.server is not None
        try:
            data = self.server.evaluate(request.auth_bytes)
        except (AuthenticationFailed, InvalidCredentials):
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Invalid username or password"
            )
        lifetime_ms = self.lifetime_ms if self.server.user else 0
        return SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)


class Cluster:
    """One peer, connections to it of one node, and a virtual clock."""

    def __init__(self) -> None:
        self.answers = Authenticating()
        self.peer = Peer(answer=self.answers)
        self.world = SimWorld(1)
        listening = self.world.network.listen(self.world.runtime("server", MemoryDisk()), self.peer, PORT)
        listening.serving = True
        self.runtime = self.world.runtime("client", MemoryDisk())
        self.login = OutgoingLogin(self.runtime, Login("SCRAM-SHA-512", "node", "node-secret"))
        self.clients: list[BrokerConnection] = []

    def client(self, login: OutgoingLogin | None = None) -> BrokerConnection:
        setup = ConnectionSetup(2_000, 8_000, login=login or self.login)
        self.clients.append(BrokerConnection(self.runtime, "localhost", PORT, "me", setup))
        return self.clients[-1]

    def run(self, play: Callable[[], Awaitable[T]]) -> T:
        async def whole() -> T:
            return await play()

        return self.world.loop.run_until_complete(whole())

    @property
    def asked(self) -> list[int]:
        return [key for key, _ in self.peer.requests]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for client in cluster.clients:
        client.close()
    cluster.world.loop.run_until_complete(asyncio.sleep(0.1))
    cluster.world.loop.close()


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the salts with which PBKDF2 ran."""
    found: list[bytes] = []

    def counted(mechanism: scram.ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        found.append(salt)
        return scram.salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(sasl_client, "salted_password", counted)
    return found


def test_a_request_waits_for_the_exchange_and_one_derivation_serves_all(cluster: Cluster, derived: list[bytes]) -> None:
    async def one() -> None:
        assert isinstance(await cluster.client().send(MetadataRequest(), 1_000), MetadataResponse)

    cluster.run(one)
    cluster.run(one)
    assert cluster.asked == [*EXCHANGE, METADATA] * 2
    assert derived == [b"salt"]


def test_connections_that_want_one_key_at_once_share_its_derivation(cluster: Cluster, derived: list[bytes]) -> None:
    authenticator = cluster.login.begin()
    authenticator.begin()
    told: list[int] = []

    async def play() -> None:
        for number in range(3):
            cluster.login.derive(authenticator, Derivation(b"s", 4096), partial(told.append, number))
        assert told == []
        await asyncio.sleep(1)

    cluster.run(play)
    assert told == [0, 1, 2]
    assert derived == [b"s"]


def test_plain(cluster: Cluster) -> None:
    login = OutgoingLogin(cluster.runtime, Login("PLAIN", "node", "node-secret"))

    async def play() -> None:
        assert isinstance(await cluster.client(login).send(MetadataRequest(), 1_000), MetadataResponse)

    cluster.run(play)
    assert cluster.asked == [HANDSHAKE, AUTHENTICATE, METADATA]


@pytest.mark.slow
def test_a_wrong_password_is_one_line_and_pauses(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pykbroker")
    cluster.answers.password = "other"
    client, other = cluster.client(), cluster.client()

    async def play() -> None:
        for _ in range(100):
            for each in (client, other):
                with pytest.raises(Disconnected):
                    await each.send(MetadataRequest(), 1_000)
            await asyncio.sleep(0.1)

    cluster.run(play)
    (line,) = caplog.messages
    assert "authentication of this node as node by SCRAM-SHA-512 failed: SASL_AUTHENTICATION_FAILED" in line
    assert "secret" not in line
    assert METADATA not in cluster.asked
    # 10 s, and half a second between attempts of a connection.
    assert cluster.asked.count(HANDSHAKE) < 60
    # The password is corrected.
    cluster.answers.password = "node-secret"

    async def again() -> None:
        await asyncio.sleep(1)
        assert isinstance(await client.send(MetadataRequest(), 1_000), MetadataResponse)

    cluster.run(again)
    assert "is authenticated as node again" in caplog.messages[1]


def test_a_session_is_renewed_before_it_ends(cluster: Cluster) -> None:
    """Requests in that time wait for it, and due responses still come."""
    cluster.answers.lifetime_ms = 10_000
    client = cluster.client()

    async def play() -> None:
        await client.send(MetadataRequest(), 1_000)
        await asyncio.sleep(8)
        cluster.peer.held.add(METADATA)
        owed = client.send(MetadataRequest(), 5_000)
        await asyncio.sleep(1.6)
        late = [client.send(MetadataRequest(), 5_000) for _ in range(2)]
        await asyncio.sleep(0.1)
        cluster.peer.release()
        for answer in await asyncio.gather(owed, *late):
            assert isinstance(answer, MetadataResponse)

    cluster.run(play)
    assert cluster.asked == [*EXCHANGE, METADATA, METADATA, *EXCHANGE, METADATA, METADATA]
    assert len(cluster.peer.connections) == 1


def test_a_renewal_that_is_refused_ends_the_connection(cluster: Cluster) -> None:
    cluster.answers.lifetime_ms = 10_000
    client = cluster.client()

    async def play() -> None:
        await client.send(MetadataRequest(), 1_000)
        cluster.answers.password = "other"
        await asyncio.sleep(9.6)
        with pytest.raises(Disconnected, match="authentication failed"):
            await client.send(MetadataRequest(), 5_000)
        await asyncio.sleep(0.1)

    cluster.run(play)
    assert cluster.peer.connections[0].lost
    assert cluster.asked == [*EXCHANGE, METADATA, *EXCHANGE]


def test_a_peer_that_is_silent_in_a_renewal_is_given_up(cluster: Cluster) -> None:
    cluster.answers.lifetime_ms = 10_000
    client = cluster.client()

    async def play() -> None:
        await client.send(MetadataRequest(), 1_000)
        cluster.peer.is_silent = True
        await asyncio.sleep(9.6)
        with pytest.raises(TimeoutError):
            await client.send(MetadataRequest(), 5_000)
        await asyncio.sleep(RENEWAL_SECONDS)

    cluster.run(play)
    assert cluster.peer.connections[0].lost


@pytest.mark.parametrize("version", [None, (0, 0)])
def test_a_peer_that_knows_no_handshake_is_left(cluster: Cluster, version: tuple[int, int] | None) -> None:
    if version is None:
        del cluster.peer.ranges[HANDSHAKE]
    else:
        cluster.peer.ranges[HANDSHAKE] = version
    client = cluster.client()

    async def play() -> None:
        with pytest.raises(Disconnected, match=r"cannot authenticate this node: the peer .*SaslHandshake"):
            await client.send(MetadataRequest(), 1_000)

    cluster.run(play)
    assert cluster.asked == []
