"""Peers that are gone: real sockets, and a network in memory for the rare behaviour of sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from pykbroker.liveness.lost_peers import DOUBT_SECONDS, GONE_SECONDS, LostPeers
from pykbroker.liveness.peer_ends import RETURN_MS
from pykbroker.liveness.prober import PATIENCE_SECONDS, TRIES, PortVerdict, Prober
from pykbroker.net.client import BrokerConnection, ConnectionSetup, PeerAddress
from pykbroker.runtime import OsRuntime
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.simulated.world import SimRuntime, World
from tests.net.peer import Peer

PORT = 9092
PEER = ("localhost", PORT)
T = TypeVar("T")


class Scripted:
    """A runtime whose connections end as listed: with an error, None for one that lasts, "reset" for one that does not,
    or "silent"."""

    def __init__(self, *outcomes: Exception | str | None) -> None:
        self.world = World(1)
        self.loop = self.world.loop
        self.outcomes = list(outcomes)

    def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            self.loop.call_soon(future.set_exception, outcome)
        elif outcome != "silent":
            protocol = factory()
            protocol.connection_made(Transport())
            self.loop.call_soon(future.set_result, (None, protocol))
            if outcome == "reset":
                self.loop.call_later(0.001, protocol.connection_lost, None)
        return future


class Transport(asyncio.Transport):
    def abort(self) -> None:
        pass


def verdict_of(*outcomes: Exception | str | None) -> tuple[PortVerdict, float, int]:
    """Return the verdict of a probe, after how long, and the number of unused outcomes."""
    runtime = Scripted(*outcomes)

    async def ask() -> PortVerdict:
        said: asyncio.Future[PortVerdict] = runtime.loop.create_future()
        Prober(runtime).begin(PEER, said.set_result)  # type: ignore[arg-type]
        return await said

    verdict = runtime.loop.run_until_complete(ask())
    took = runtime.loop.time()
    runtime.loop.close()
    return verdict, took, len(runtime.outcomes)


REFUSED = ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((REFUSED,), PortVerdict.REFUSED),
        ((None,), PortVerdict.ACCEPTED),
        ((OSError(113, "No route to host"),), PortVerdict.SILENT),
        (("silent",), PortVerdict.SILENT),
        # A process that ends: some of its sockets are closed, the port is not yet.
        (("reset", REFUSED), PortVerdict.REFUSED),
        ((ConnectionResetError("reset"), "reset", REFUSED), PortVerdict.REFUSED),
        # A program that accepts connections and ends them is there.
        (("reset",) * TRIES, PortVerdict.ACCEPTED),
        (("reset", None), PortVerdict.ACCEPTED),
    ],
)
def test_verdict(outcomes: tuple[Exception | str | None, ...], verdict: PortVerdict) -> None:
    said, took, left = verdict_of(*outcomes)
    assert said is verdict
    assert not left
    assert took <= PATIENCE_SECONDS


def test_real_sockets_accept_and_refuse() -> None:
    async def ask() -> list[PortVerdict]:
        runtime = OsRuntime(asyncio.get_running_loop())
        found: list[PortVerdict] = []
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = listening.getsockname()[1]
            found.append(await probe(runtime, port))
        found.append(await probe(runtime, port))
        runtime.close()
        return found

    async def probe(runtime: OsRuntime, port: int) -> PortVerdict:
        said: asyncio.Future[PortVerdict] = runtime.loop.create_future()
        Prober(runtime).begin(("127.0.0.1", port), said.set_result)
        return await said

    assert asyncio.run(ask()) == [PortVerdict.ACCEPTED, PortVerdict.REFUSED]


class Node:
    """A client that watches its only peer."""

    def __init__(self) -> None:
        self.world = World(1)
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
