# ruff: noqa: ASYNC110  # nothing here says when a connection is lost or a socket is full
"""Regions of files leave in order with the bytes around them, for any socket, client and page cache."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import cast

import pytest
import uvloop

from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import Listener
from pykbroker.net.replies import AnswerBuffers
from pykbroker.runtime import OsRuntime
from pykbroker.tls.handshakes import Handshakes
from pykbroker.tls.principal_mapping import PrincipalMapper
from pykbroker.tls.tls_layer import TlsLayer
from pykbroker.tls.tls_listener import TlsListener
from pykbroker.tls.tls_server import TlsServer
from pykbroker.tls.tls_writer import PIECE_BYTES
from pykbroker_log.disk import Region
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsRegion
from testkit.certificates import client_context
from tests.net.fakes import frame
from tests.net.socket_client import PATIENCE_SECONDS, SocketClient
from tests.tls.test_tls_layer import server_context

SIZE = 3_000_000
#: The kernel buffers little of the bytes that a client does not read.
SMALL_SOCKETS = Limits(send_buffer_bytes=64 * 1024)
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Kind:
    """The loop, and the kind of the listener."""

    new_loop: Callable[[], asyncio.AbstractEventLoop]
    is_tls: bool


KINDS = {
    f"{name}, {protocol}": Kind(new_loop, protocol == "TLS")
    for name, new_loop in (("uvloop", uvloop.new_event_loop), ("asyncio", asyncio.new_event_loop))
    for protocol in ("plain", "TLS")
}


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return cast(Kind, request.param)


class World:
    """A listener that answers each request with bytes, a region of one file, and bytes."""

    def __init__(
        self, folder: pathlib.Path, loop: asyncio.AbstractEventLoop, limits: Limits, *, is_tls: bool = False
    ) -> None:
        self.contents = random.Random(7).randbytes(SIZE)
        self.disk = OsDisk()
        self.path = f"{folder}/f"
        self.file = self.disk.open(self.path, create=True)
        self.file.pwritev([self.contents], 0)
        self.file.fsync()
        self.runtime = OsRuntime(loop, self.disk)
        self.tls = client_context(folder) if is_tls else None
        server = TlsServer(server_context(), PrincipalMapper("DEFAULT")) if is_tls else None
        tls = TlsListener(self.runtime, server, Handshakes(self.runtime)) if server is not None else None
        protocol = "SSL" if is_tls else "PLAINTEXT"
        self.listener = Listener(self.runtime, protocol, limits, security_protocol=protocol, tls=tls)
        self.expected = bytearray()
        self.asked = 0
        self._asked_again = asyncio.Event()

    def answer(self, connection: Connection, request: memoryview) -> AnswerBuffers:
        assert connection.takes_regions
        self.asked += 1
        self._asked_again.set()
        start, size, around = (int(part) for part in bytes(request).split())
        head, tail = b"h" * around, b"t" * around
        region = self.file.region(start, size)
        assert region is not None
        self.expected += head + self.contents[start : start + size] + tail
        return cast(AnswerBuffers, [head, region, tail])

    async def serve(self) -> None:
        await self.listener.bind("127.0.0.1", 0, 1000)
        await self.listener.serve(self.answer)

    async def client(self) -> SocketClient:
        if not self.listener.port:
            await self.serve()
        return await SocketClient(self.runtime.loop, self.tls).connect(self.listener.port)

    async def until_asked(self, times: int) -> None:
        while self.asked < times:
            self._asked_again.clear()
            await asyncio.wait_for(self._asked_again.wait(), 30)

    def evict(self) -> None:
        fd = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def close(self) -> None:
        self.listener.close()
        self.runtime.close()


def run(
    kind: Kind,
    folder: pathlib.Path,
    scenario: Callable[[World], Coroutine[None, None, None]],
    limits: Limits | None = None,
) -> World:
    loop = kind.new_loop()
    world = World(folder, loop, limits or Limits(), is_tls=kind.is_tls)
    try:
        loop.run_until_complete(asyncio.wait_for(scenario(world), PATIENCE_SECONDS))
        return world
    finally:
        world.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_pipelined_answers_in_order(kind: Kind, tmp_path: pathlib.Path, cold: bool) -> None:
    choice = random.Random(cold)

    async def scenario(world: World) -> None:
        client = await world.client()
        for _ in range(6):
            requests = []
            for _ in range(5):
                start = choice.randrange(SIZE - 70_000)
                requests.append(
                    b"%d %d %d"
                    % (start, choice.randrange(66_000, SIZE - start), choice.choice([0, 5, 600, 30_000, 100_000]))
                )
            if cold:
                world.evict()
            await client.send(b"".join(map(frame, requests)))
            total = sum(int(size) + 2 * int(around) for _, size, around in (request.split() for request in requests))
            # Sometimes a client reads it in small pieces, and the socket is full all the time.
            got = await client.receive(total, choice.choice([10_000, 1 << 20]))
            assert got == bytes(world.expected)
            world.expected.clear()
        client.close()

    world = run(kind, tmp_path, scenario)
    assert not world.disk.descriptors.lent


def test_a_client_that_reads_nothing_is_asked_no_more_and_holds_one_descriptor(
    kind: Kind, tmp_path: pathlib.Path
) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 20)
        await world.until_asked(1)
        before = -1
        while before != world.asked:
            before = world.asked
            await asyncio.sleep(0.05)
        # The bytes that the bound allows, one more response, and the bytes in the kernel's buffers.
        assert world.asked < 10
        assert world.disk.descriptors.lent == 1
        got = await client.receive(20 * 3_000_100)
        assert got == bytes(world.expected)
        client.close()

    run(kind, tmp_path, scenario, Limits(unsent_bytes=4_000_000))


def test_what_a_slow_client_has_kept_waiting_is_asked_about_again(
    kind: Kind, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that time it may have left memory, and the loop would wait for the device."""
    known = waits = 0
    is_resident, load, send = OsRegion.is_resident, OsRegion.load, OsRegion.send
    send_region = TlsLayer.send_region

    def asks(region: OsRegion, position: int, length: int) -> bool:
        nonlocal known
        resident = is_resident(region, position, length)
        known = position + length if resident else 0
        return resident

    def loads(region: OsRegion, position: int, length: int) -> None:
        nonlocal known
        load(region, position, length)
        known = position + length

    def sends(region: OsRegion, socket: int, position: int, length: int) -> int:
        nonlocal known, waits
        assert position + length <= known
        try:
            return send(region, socket, position, length)
        except BlockingIOError:
            known = 0
            waits += 1
            raise

    def encrypts(layer: TlsLayer, region: Region, position: int, length: int) -> int:
        nonlocal known, waits
        assert position + length <= known
        sent = send_region(layer, region, position, length)
        if layer.get_write_buffer_size():
            known = 0
            waits += 1
        return sent

    monkeypatch.setattr(OsRegion, "is_resident", asks)
    monkeypatch.setattr(OsRegion, "load", loads)
    monkeypatch.setattr(OsRegion, "send", sends)
    monkeypatch.setattr(TlsLayer, "send_region", encrypts)

    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 4)
        assert await client.receive(4 * 3_000_100) == bytes(world.expected)
        client.close()

    run(kind, tmp_path, scenario)
    assert waits


def test_an_answer_of_a_deleted_file_still_leaves_and_one_that_is_cut_off_ends_the_connection(
    kind: Kind, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 10)
        await world.until_asked(10)
        fd = os.open(world.path, os.O_RDWR)
        world.file.close()
        world.disk.unlink(world.path)
        assert await client.receive(5 * 3_000_100) == bytes(world.expected[: 5 * 3_000_100])
        os.ftruncate(fd, 1_000_000)
        os.close(fd)
        with pytest.raises((ConnectionError, AssertionError)):
            await client.receive(5 * 3_000_100)
        client.close()

    with caplog.at_level("INFO"):
        run(kind, tmp_path, scenario, Limits(unsent_bytes=1 << 30))
    assert "shorter than it was" in caplog.text
    assert caplog.text.count("Connection from") == 1


def test_a_connection_that_is_closed_still_sends_what_was_answered(kind: Kind, tmp_path: pathlib.Path) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 2)
        await world.until_asked(2)
        (connection,) = world.listener.connections
        connection.close("the test says so")
        assert await client.receive(2 * 3_000_100) == bytes(world.expected)
        assert await client.receive_some(1) == b""
        client.close()

    world = run(kind, tmp_path, scenario)
    assert not world.disk.descriptors.lent


def test_a_client_that_sends_no_more_gets_what_was_answered(kind: Kind, tmp_path: pathlib.Path) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 2)
        await world.until_asked(2)
        await client.finish()
        assert await client.receive(2 * 3_000_100) == bytes(world.expected)
        assert await client.receive_some(1) == b""
        client.close()

    world = run(kind, tmp_path, scenario, SMALL_SOCKETS)
    assert not world.disk.descriptors.lent


def test_a_client_that_goes_while_a_region_waits_gives_its_file_back(kind: Kind, tmp_path: pathlib.Path) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 2)
        await world.until_asked(2)
        assert world.disk.descriptors.lent
        client.close()
        while world.listener.connections:
            await asyncio.sleep(0)
        while world.disk.descriptors.lent:
            await asyncio.sleep(0)

    run(kind, tmp_path, scenario, SMALL_SOCKETS)


def test_a_client_that_reads_nothing_ends_when_it_has_been_idle(kind: Kind, tmp_path: pathlib.Path) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        await client.send(frame(b"0 3000000 50") * 2)
        await world.until_asked(2)
        (connection,) = world.listener.connections
        later = world.runtime.loop.time() + 1000
        connection.tidy(later)
        assert connection.end is not None
        assert world.listener.connections
        connection.tidy(later + 1000)
        while world.listener.connections or world.disk.descriptors.lent:
            await asyncio.sleep(0)
        client.close()

    run(kind, tmp_path, scenario, SMALL_SOCKETS)


READERS = 200
#: A piece, TLS's overhead, and the head of a response.
HELD_BYTES = PIECE_BYTES + 4096


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.is_tls], ids=[name for name, kind in KINDS.items() if kind.is_tls]
)
def test_readers_of_tls_that_take_nothing_hold_a_piece_each(kind: Kind, tmp_path: pathlib.Path) -> None:
    """A response is not read before its client reads it, for any number of clients."""
    clients: list[SocketClient] = []

    def held(world: World) -> list[int]:
        return [
            connection.transport.get_write_buffer_size()
            for connection in world.listener.connections
            if connection.transport is not None
        ]

    async def scenario(world: World) -> None:
        for _ in range(READERS):
            client = await world.client()
            clients.append(client)
            await client.send(frame(b"0 3000000 50"))
        await world.until_asked(READERS)
        # The node waits for each of them: its socket is full, and the rest of its response is still in the file.
        while not all(waiting := held(world)):
            await asyncio.sleep(0)
        assert len(waiting) == READERS
        assert max(waiting) <= HELD_BYTES
        one = len(world.expected) // READERS
        for client in random.Random(3).sample(clients, 5):
            assert await client.receive(one) == bytes(world.expected[:one])
        assert max(held(world)) <= HELD_BYTES
        for client in clients:
            client.close()

    run(kind, tmp_path, scenario, SMALL_SOCKETS)
