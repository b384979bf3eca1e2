"""Accepting connections: what is refused costs nothing, and a system that refuses is asked again, but not at once."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from pykbroker.runtime import accepting, bind_sockets
from pykbroker.runtime.accepting import Acceptor
from pykbroker.runtime.unix_sockets import UnixSocket


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario)

    return run


Run = Callable[[Coroutine[Any, Any, None]], None]


class Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Aborting(Echo):
    """Ends its connection before the transport was handed over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


async def until(condition: Callable[[], object]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come true")


def clients(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]


async def echoed(sock: socket.socket) -> bytes:
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, b"x")
    return await asyncio.wait_for(loop.sock_recv(sock, 10), 10)


def test_a_connection_that_is_refused_is_closed_and_costs_no_transport(run: Run) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        may_come = [False, True, False]
        protocols: list[Echo] = []

        def accept() -> Echo | None:
            if not may_come.pop(0):
                return None
            protocols.append(Echo())
            return protocols[-1]

        acceptor = Acceptor(loop, bind_sockets("127.0.0.1", 0, 50), accept)
        await acceptor.serve()
        first, second, third = clients(acceptor.port, 3)
        assert await echoed(second) == b"x"
        (made,) = protocols
        assert made.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for refused in (first, third):
            refused.setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(refused, 1), 10) == b""
        assert not may_come
        for sock in (first, second, third):
            sock.close()
        acceptor.close()

    run(scenario())


def test_a_lack_of_descriptors_does_not_spin_and_passes(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """uvloop's own server closes its socket for good then."""
    monkeypatch.setattr(accepting, "_AGAIN_SECONDS", 0.01)

    class Listening:
        """A listening socket of a process that has no descriptor left."""

        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock
            self.refusals = 3
            self.accepts = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sock, name)

        def accept(self) -> Any:
            self.accepts += 1
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self._sock.accept()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        (sock,) = bind_sockets("127.0.0.1", 0, 50)
        listening = Listening(sock)
        acceptor = Acceptor(loop, [cast(socket.socket, listening)], Echo)
        await acceptor.serve()
        waits = clients(acceptor.port, 1)[0]
        await until(lambda: listening.accepts)
        # It is not looked at again before the pause has passed.
        for _ in range(10):
            await asyncio.sleep(0)
        assert await echoed(waits) == b"x"
        assert listening.accepts <= 5
        waits.close()
        acceptor.close()

    run(scenario())
    lines = [record.getMessage() for record in caplog.records if "cannot be accepted" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].endswith("cannot be accepted: Too many open files")


@pytest.mark.parametrize("length", [10, 150])
def test_a_socket_is_named_by_the_path_that_its_user_gave(
    length: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A longer path than the system takes is bound under another one."""
    folder = tmp_path / ("x" * length)
    folder.mkdir()
    path = folder / "health.sock"

    async def scenario() -> None:
        acceptor = UnixSocket(asyncio.get_running_loop(), str(path), Echo)
        acceptor.failed(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        acceptor.close()

    asyncio.run(scenario())
    assert caplog.messages == [f"A connection to socket {path} cannot be accepted: Too many open files"]


def test_a_descriptor_that_a_connection_gave_back_at_once_is_closed_once(run: Run) -> None:
    """The number may be another file's when the socket's object goes."""

    async def scenario() -> None:
        protocols: list[Echo] = []

        def accept() -> Echo:
            protocols.append(Aborting())
            return protocols[-1]

        acceptor = Acceptor(asyncio.get_running_loop(), bind_sockets("127.0.0.1", 0, 50), accept)
        await acceptor.serve()
        for _ in range(20):
            (sock,) = clients(acceptor.port, 1)
            await until(lambda: protocols and protocols[-1].lost)
            # They take the number.
            files = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
            sock.close()
            protocols.clear()
            await until(lambda: not acceptor._connecting)
            for file in files:
                os.close(file)
        acceptor.close()

    run(scenario())


def test_others_are_served_between_many_connections_that_come_at_once(run: Run) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        counts: list[int] = []
        turn = [0]

        def accept() -> None:
            turn[0] += 1

        acceptor = Acceptor(loop, bind_sockets("127.0.0.1", 0, 100), accept)
        sockets = clients(acceptor.port, 60)
        await acceptor.serve()
        while sum(counts) + turn[0] < 60:
            counts.append(turn[0])
            turn[0] = 0
            await asyncio.sleep(0)
        assert max(counts) <= 16
        for sock in sockets:
            sock.close()
        acceptor.close()

    run(scenario())
