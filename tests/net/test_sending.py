"""Regions of files leave in order with what is around them, whatever the socket, the client and the page cache do."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import socket
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from pykbroker.net.connection import Connection
from pykbroker.net.listener import Limits, Listener
from pykbroker.net.replies import Buffers
from pykbroker.runtime import OsRuntime
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsRegion
from tests.net.fakes import frame

SIZE = 3_000_000
pytestmark = pytest.mark.slow


@pytest.fixture(params=["uvloop", "asyncio"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


class World:
    """A listener that answers each request with bytes, a region of one file, and bytes."""

    def __init__(self, folder: pathlib.Path, loop: asyncio.AbstractEventLoop, limits: Limits | None = None) -> None:
        self.contents = random.Random(7).randbytes(SIZE)
        self.disk = OsDisk()
        self.path = f"{folder}/f"
        self.file = self.disk.open(self.path, create=True)
        self.file.pwritev([self.contents], 0)
        self.file.fsync()
        self.runtime = OsRuntime(loop, self.disk)
        self.listener = Listener(self.runtime, "PLAINTEXT", limits or Limits())
        self.expected = bytearray()
        self.asked = 0
        self._asked_again = asyncio.Event()

    def answer(self, connection: Connection, request: memoryview) -> Buffers:
        assert connection.zero_copy
        self.asked += 1
        self._asked_again.set()
        start, size, around = (int(part) for part in bytes(request).split())
        head, tail = b"h" * around, b"t" * around
        region = self.file.region(start, size)
        assert region is not None
        self.expected += head + self.contents[start : start + size] + tail
        return cast(Buffers, [head, region, tail])

    async def client(self) -> socket.socket:
        await self.listener.bind("127.0.0.1", 0, 10)
        await self.listener.serve(self.answer)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        sock.setblocking(False)
        await self.runtime.loop.sock_connect(sock, ("127.0.0.1", self.listener.port))
        return sock

    async def receive(self, sock: socket.socket, count: int, at_once: int = 1 << 20) -> bytes:
        got = bytearray()
        while len(got) < count:
            data = await asyncio.wait_for(self.runtime.loop.sock_recv(sock, min(at_once, count - len(got))), 30)
            assert data, f"closed after {len(got)} of {count}"
            got += data
        return bytes(got)

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
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    folder: pathlib.Path,
    scenario: Callable[[World], asyncio.Future[None]],
    limits: Limits | None = None,
) -> World:
    loop = new_loop()
    world = World(folder, loop, limits)
    try:
        loop.run_until_complete(scenario(world))
        return world
    finally:
        world.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_pipelined_answers_in_order(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: pathlib.Path, cold: bool
) -> None:
    choice = random.Random(cold)

    async def scenario(world: World) -> None:
        sock = await world.client()
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
            await world.runtime.loop.sock_sendall(sock, b"".join(map(frame, requests)))
            total = sum(int(size) + 2 * int(around) for _, size, around in (request.split() for request in requests))
            # Sometimes a client takes it in small pieces, and the socket is full all the time.
            got = await world.receive(sock, total, choice.choice([10_000, 1 << 20]))
            assert got == bytes(world.expected)
            world.expected.clear()
        sock.close()

    world = run(new_loop, tmp_path, scenario)  # type: ignore[arg-type]
    assert not world.disk.descriptors.lent


def test_a_client_that_reads_nothing_is_asked_no_more_and_holds_one_descriptor(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: pathlib.Path
) -> None:
    async def scenario(world: World) -> None:
        sock = await world.client()
        await world.runtime.loop.sock_sendall(sock, frame(b"0 3000000 50") * 20)
        before = -1
        while before != world.asked:
            before = world.asked
            await asyncio.sleep(0.05)
        # What the bound allows, one more, and what the kernel's buffers took.
        assert world.asked < 10
        assert world.disk.descriptors.lent == 1
        got = await world.receive(sock, 20 * 3_000_100)
        assert got == bytes(world.expected)
        sock.close()

    run(new_loop, tmp_path, scenario, Limits(unsent_bytes=4_000_000))  # type: ignore[arg-type]


def test_what_a_slow_client_has_kept_waiting_is_asked_about_again(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile it may have left memory, and the loop would wait for the device."""
    known = waits = 0
    is_resident, load, send = OsRegion.is_resident, OsRegion.load, OsRegion.send

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

    monkeypatch.setattr(OsRegion, "is_resident", asks)
    monkeypatch.setattr(OsRegion, "load", loads)
    monkeypatch.setattr(OsRegion, "send", sends)

    async def scenario(world: World) -> None:
        sock = await world.client()
        await world.runtime.loop.sock_sendall(sock, frame(b"0 3000000 50") * 4)
        assert await world.receive(sock, 4 * 3_000_100) == bytes(world.expected)
        sock.close()

    run(new_loop, tmp_path, scenario)  # type: ignore[arg-type]
    assert waits


def test_an_answer_of_a_deleted_file_still_leaves_and_one_that_is_cut_off_ends_the_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        sock = await world.client()
        await world.runtime.loop.sock_sendall(sock, frame(b"0 3000000 50") * 10)
        await world.until_asked(10)
        fd = os.open(world.path, os.O_RDWR)
        world.file.close()
        world.disk.unlink(world.path)
        assert await world.receive(sock, 5 * 3_000_100) == bytes(world.expected[: 5 * 3_000_100])
        os.ftruncate(fd, 1_000_000)
        os.close(fd)
        with pytest.raises((ConnectionError, AssertionError)):
            await world.receive(sock, 5 * 3_000_100)
        sock.close()

    with caplog.at_level("INFO"):
        run(new_loop, tmp_path, scenario, Limits(unsent_bytes=1 << 30))  # type: ignore[arg-type]
    assert "shorter than it was" in caplog.text
    assert caplog.text.count("Connection from") == 1


def test_a_connection_that_is_closed_still_sends_what_was_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: pathlib.Path
) -> None:
    async def scenario(world: World) -> None:
        sock = await world.client()
        await world.runtime.loop.sock_sendall(sock, frame(b"0 3000000 50") * 2)
        await world.until_asked(2)
        (connection,) = world.listener.connections
        connection.close("the test says so")
        assert await world.receive(sock, 2 * 3_000_100) == bytes(world.expected)
        assert await world.runtime.loop.sock_recv(sock, 1) == b""
        sock.close()

    world = run(new_loop, tmp_path, scenario)  # type: ignore[arg-type]
    assert not world.disk.descriptors.lent
