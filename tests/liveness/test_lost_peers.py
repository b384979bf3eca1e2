"""A peer is lost when its connection ends, and gone when it refuses a new one or does not come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from pykbroker.liveness.lost_peers import DOUBT_SECONDS, GONE_SECONDS, LostPeers
from pykbroker.liveness.peer_ends import RETURN_MS
from pykbroker.liveness.prober import Prober
from pykbroker.net.client import BrokerConnection, ConnectionSetup, PeerAddress
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld
from tests.net.peer import Peer

PORT = 9092
PEER = ("localhost", PORT)
T = TypeVar("T")


class Node:
    """A client that watches its only peer."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.server: SimRuntime | None = None
        self.gone: list[PeerAddress] = []
        self.back: list[PeerAddress] = []
        #: "doubted" and "settled", with the time
        self.doubts: list[tuple[str, float]] = []
        runtime = self.runtime = self.world.runtime("client", MemoryDisk())
        self.lost = LostPeers(
            runtime,
            Prober(runtime),
            self.gone.append,
            self.back.append,
            lambda _: self.doubts.append(("doubted", runtime.loop.time())),
            lambda _: self.doubts.append(("settled", runtime.loop.time())),
        )
        self.client = BrokerConnection(runtime, *PEER, "me", ConnectionSetup(2_000, 8_000), watch=self.lost)

    def listen(self) -> None:
        self.server = self.world.runtime("server", MemoryDisk())
        self.world.network.listen(self.server, Peer(), PORT).serving = True

    def run(self, play: Callable[[], Awaitable[T]]) -> T:
        async def whole() -> T:
            return await play()

        return self.world.loop.run_until_complete(whole())

    async def ask(self) -> None:
        await asyncio.gather(self.client.send(MetadataRequest(), 1_000), return_exceptions=True)

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()


def test_a_peer_that_dies_is_gone_and_comes_back() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        assert not node.gone
        node.kill()
        await asyncio.sleep(0.02)
        assert node.gone == [PEER]
        # Other attempts to reach it get the same result.
        await asyncio.sleep(0.1)
        await node.ask()
        assert node.gone == [PEER, PEER]
        assert not node.back
        node.listen()
        await asyncio.sleep(0.5)
        await node.ask()
        assert node.back == [PEER]

    node.run(play)


def test_a_refusal_counts_for_ten_seconds() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        node.kill()
        await asyncio.sleep(GONE_SECONDS - 1)
        assert (node.gone, node.back) == ([PEER], [])
        # It refuses once more, and counts from then on.
        await node.ask()
        await asyncio.sleep(GONE_SECONDS - 1)
        assert (node.gone, node.back) == ([PEER, PEER], [])
        await asyncio.sleep(2)
        assert node.back == [PEER]

    node.run(play)


def test_a_doubt_ends_with_the_verdict() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        assert not node.doubts
        node.kill()
        await asyncio.sleep(0.02)
        assert [what for what, _ in node.doubts] == ["doubted", "settled"]
        assert node.gone == [PEER]
        node.doubts.clear()
        # It accepts the next connection, so it lives.
        node.listen()
        await asyncio.sleep(0.5)
        await node.ask()
        node.kill()
        node.listen()
        await asyncio.sleep(0.5)
        assert [what for what, _ in node.doubts] == ["doubted", "settled"]
        assert node.gone == [PEER]

    node.run(play)


def test_a_doubt_does_not_wait_for_a_silent_peer() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        node.runtime.connect = lambda *_: silent  # type: ignore[method-assign]
        node.kill()
        await asyncio.sleep(2 * DOUBT_SECONDS)
        (_, begun), (_, over) = node.doubts
        assert over - begun == pytest.approx(DOUBT_SECONDS)
        assert not node.gone

    node.run(play)


def test_a_peer_that_was_never_there_is_not_gone() -> None:
    node = Node()

    async def play() -> None:
        await node.ask()
        await asyncio.sleep(0.1)
        await node.ask()
        assert not node.gone

    node.run(play)


def test_a_peer_that_takes_the_next_connection_is_not_gone() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        node.kill()
        node.listen()
        await asyncio.sleep(0.5)
        assert not node.gone
        # Until then it was lost, and may refuse later.
        node.kill()
        await node.ask()
        assert node.gone == [PEER]

    node.run(play)


def test_a_connection_that_this_node_closes_is_not_lost() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        node.client.close()
        node.kill()
        await asyncio.sleep(0.5)
        assert not node.gone

    node.run(play)


def test_nothing_is_told_after_the_close() -> None:
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        node.lost.close()
        node.kill()
        await asyncio.sleep(0.5)
        assert not node.gone

    node.run(play)


def test_a_peer_that_ends_its_connection_and_is_not_back_is_gone() -> None:
    """A container that is killed: its address is gone with it, and refuses nothing."""
    node = Node()

    async def play() -> None:
        node.listen()
        await node.ask()
        silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        node.runtime.connect = lambda *_: silent  # type: ignore[method-assign]
        node.kill()
        await asyncio.sleep(RETURN_MS / 1000 + 0.1)
        assert node.gone == [PEER]
        assert not node.back

    node.run(play)
