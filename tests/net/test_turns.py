"""A connection that has sent many requests at once leaves time for others between them, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pykbroker.net.connection import TURN_SECONDS, CloseConnection, Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import RECEIVE_BYTES, Listener
from pykbroker.net.replies import AnswerBuffers
from pykbroker.runtime import OsRuntime
from tests.net.fakes import connect, feed, frame, make_listener


def loops() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    import uvloop

    return [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=loops(), ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario)

    return run


async def serve(runtime: OsRuntime, dispatch: Callable[[Connection, memoryview], AnswerBuffers]) -> Listener:
    listener = Listener(runtime, "PLAINTEXT", Limits())
    await listener.bind("127.0.0.1", 0, 50)
    await listener.serve(dispatch)
    return listener


async def read_frames(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    return [await reader.readexactly(int.from_bytes(await reader.readexactly(4))) for _ in range(count)]


@pytest.mark.parametrize("padding", [10, 20_000], ids=["in one read", "in many full reads"])
def test_slow_requests_that_came_together_let_another_client_in(
    padding: int, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Formerly all of them were dispatched in one turn of the loop."""
    slow = [b"slow %3d " % number + b"." * padding for number in range(60)]
    seen: list[bytes] = []

    async def scenario() -> None:
        runtime = OsRuntime(asyncio.get_running_loop())
        other = socket.socket()

        def dispatch(connection: Connection, request: memoryview) -> AnswerBuffers:
            body = bytes(request[:9])
            if len(seen) == 1:
                other.send(frame(b"other"))
            seen.append(body)
            if body.startswith(b"slow"):
                time.sleep(TURN_SECONDS / 2)
            return [frame(body)]

        listener = await serve(runtime, dispatch)
        other.connect(("127.0.0.1", listener.port))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while len(listener.connections) < 2:  # noqa: ASYNC110  # the loop accepts them in some turns
            await asyncio.sleep(0)
        writer.write(b"".join(map(frame, slow)))
        # Its requests keep their order, whatever comes between them.
        assert await read_frames(reader, len(slow)) == [body[:9] for body in slow]
        assert seen.index(b"other") <= 12
        writer.close()
        other.close()
        listener.close()
        runtime.close()

    run(scenario())


class Slow:
    """Each request takes two milliseconds of a clock that only these requests move."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.listener = make_listener(self)
        self.loop: Any = self.listener.loop

    def __call__(self, connection: Connection, request: memoryview) -> AnswerBuffers:
        body = bytes(request)
        self.seen.append(body)
        self.loop.now += 0.002
        if body == b"mutes":
            connection.mute()
        if body == b"closes":
            raise CloseConnection("it was asked to")
        return [frame(body)]

    def one_turn(self) -> int:
        """Return the number of requests that were dispatched in it."""
        before = len(self.seen)
        ready, self.loop.ready = self.loop.ready, []
        for callback, args in ready:
            callback(*args)
        return len(self.seen) - before


def test_each_turn_dispatches_for_some_milliseconds() -> None:
    slow = Slow()
    connection, transport = connect(slow.listener)
    bodies = [b"%d" % number for number in range(8)]
    feed(connection, b"".join(map(frame, bodies)) + frame(b"the rest")[:5])
    counts = [len(slow.seen)]
    while slow.loop.ready:
        assert not transport.reading
        counts.append(slow.one_turn())
    assert counts == [3, 3, 2]
    assert slow.seen == bodies
    assert bytes(transport.written) == b"".join(map(frame, bodies))
    assert transport.reading
    feed(connection, frame(b"the rest")[5:])
    assert slow.seen[-1] == b"the rest"


def test_reads_of_one_turn_share_its_time() -> None:
    """A transport whose buffer was full reads again at once."""
    slow = Slow()
    connection, transport = connect(slow.listener)
    body = b"." * (RECEIVE_BYTES // 2 - 4)
    for _ in range(2):
        feed(connection, frame(body) * 2)
    assert len(slow.seen) == 3
    assert not transport.reading
    slow.loop.turn()
    assert len(slow.seen) == 4
    assert transport.reading


def test_a_request_that_waits_before_it_appends_still_holds_back_the_next_turn() -> None:
    slow = Slow()
    connection, _ = connect(slow.listener)
    feed(connection, b"".join(map(frame, [b"1", b"2", b"mutes", b"4", b"5"])))
    slow.loop.turn()
    assert slow.seen == [b"1", b"2", b"mutes"]
    slow.loop.now += 60
    connection.unmute()
    slow.loop.turn()
    assert slow.seen == [b"1", b"2", b"mutes", b"4", b"5"]


def test_a_connection_that_ends_between_two_turns_dispatches_no_more() -> None:
    slow = Slow()
    connection, _ = connect(slow.listener)
    feed(connection, b"".join(map(frame, [b"1", b"2", b"3", b"4"])))
    connection.connection_lost(None)
    slow.loop.turn()
    assert slow.seen == [b"1", b"2", b"3"]
    closed, _ = connect(slow.listener)
    feed(closed, b"".join(map(frame, [b"5", b"6", b"7", b"closes", b"8"])))
    slow.loop.turn()
    assert slow.seen[-1] == b"closes"
