"""A connection to another node: what is asked is answered, or fails in time, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from pykbroker.net.client import BrokerConnection, Disconnected
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.headers import encode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.simulation.world import SimRuntime, World

PORT = 9092


class Server(asyncio.Protocol):
    """Answers every request once it has all its bytes, or never."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.node.connections.append(self)
        self.received = bytearray()
        self.lost = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            size = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < size:
                return
            correlation_id = int.from_bytes(self.received[8:12], "big")
            del self.received[:size]
            if self.node.answers:
                body = ApiVersionsResponse().encode(0)
                self.transport.write(b"".join(encode_response(correlation_id, 18, 0, body)))


class Node:
    def __init__(self, world: World) -> None:
        self.world = world
        self.answers = True
        self.connections: list[Server] = []
        self.listening = world.network.listen(world.runtime("server", MemoryDisk()), lambda: Server(self), PORT)
        self.listening.serving = True
        self.runtime: SimRuntime = world.runtime("client", MemoryDisk())
        self.client = BrokerConnection(self.runtime, "localhost", PORT, "me")

    def ask(self, timeout_ms: int = 1_000) -> object:
        async def one() -> object:
            try:
                return await self.client.send(ApiVersionsRequest(), timeout_ms, version=0)
            finally:
                await asyncio.sleep(0.1)

        return self.world.loop.run_until_complete(one())


@pytest.fixture
def node() -> Iterator[Node]:
    world = World(1)
    yield Node(world)
    world.loop.close()


def test_one_connection_serves_many_requests(node: Node) -> None:
    assert isinstance(node.ask(), ApiVersionsResponse)
    assert isinstance(node.ask(), ApiVersionsResponse)
    assert len(node.connections) == 1


def test_who_does_not_answer_in_time_is_left(node: Node) -> None:
    """A peer that was gone without a word was asked again over the same dead connection, for as long as TCP tries."""
    node.answers = False
    with pytest.raises(TimeoutError):
        node.ask()
    assert node.connections[0].lost
    node.answers = True
    assert isinstance(node.ask(), ApiVersionsResponse)
    assert len(node.connections) == 2


def test_nobody_listens(node: Node) -> None:
    node.listening.close()
    with pytest.raises(Disconnected, match="cannot connect"):
        node.ask()


def test_closed_while_it_connects(node: Node) -> None:
    """The connection came after all, and stayed open with nobody to close it."""

    async def close() -> None:
        future = node.client.send(ApiVersionsRequest(), 1_000, version=0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.client.close()
        with pytest.raises(Disconnected):
            await future
        await asyncio.sleep(0.1)

    node.world.loop.run_until_complete(close())
    assert [connection.lost for connection in node.connections] == [True]
