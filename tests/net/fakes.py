"""A transport and a listener's world without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from pykbroker.net.connection import Connection, DispatchFrame
from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import Listener
from pykbroker.runtime import Runtime
from pykbroker.sasl.sasl_connection import ListenerAuthentication


class FakeTransport(asyncio.Transport):
    """Keeps the written bytes; shows if reading is paused."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self._host = host

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._host, 4711) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.writes += 1
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        for data in list_of_data:
            self.write(data)

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class FakeRuntime:
    def __init__(self, loop: FakeLoop | None = None) -> None:
        self.loop = loop or FakeLoop()


class FakeTimer:
    def __init__(self, at: float, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.at, self._callback, self._args = at, callback, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._callback(*self._args)


class FakeLoop:
    """A clock that moves, and callbacks that run, only when the test does it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[FakeTimer] = []
        self.ready: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object, context: object = None) -> None:
        self.ready.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> FakeTimer:
        timer = FakeTimer(self.now + delay, callback, args)
        self.timers.append(timer)
        return timer

    def pass_seconds(self, seconds: float) -> None:
        """Move the clock, and run the timers that are due by then, each at its time."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if not timer.cancelled and timer.at <= until]:
            timer = min(due, key=lambda timer: timer.at)
            self.now = max(self.now, timer.at)
            timer.run()
            self.turn()
        self.timers = [timer for timer in self.timers if not timer.cancelled]
        self.now = until

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context)

    def turn(self) -> None:
        """Run everything that was scheduled, and everything that that schedules."""
        while self.ready:
            ready, self.ready = self.ready, []
            for callback, args in ready:
                callback(*args)


def make_listener(
    dispatch: DispatchFrame, limits: Limits | None = None, authentication: ListenerAuthentication | None = None
) -> Listener:
    """Return a listener without a socket, to which the test passes connections."""
    protocol = "PLAINTEXT" if authentication is None else "SASL_PLAINTEXT"
    listener = Listener(cast(Runtime, FakeRuntime()), protocol, limits or Limits(), security_protocol=protocol)
    listener.answer_with(dispatch, authentication)
    return listener


def connect(listener: Listener, host: str = "127.0.0.1") -> tuple[Connection, FakeTransport]:
    connection, transport = Connection(listener), FakeTransport(host)
    connection.connection_made(transport)
    return connection, transport


def feed(connection: Connection, data: bytes) -> None:
    """Pass received bytes as a transport does."""
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        connection.buffer_updated(count)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big", signed=True) + body
