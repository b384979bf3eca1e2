"""HTTP over real sockets: its responses, its refusals, and its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from unittest import mock

import pytest

from pykbroker.net import http_server
from pykbroker.net.http_server import HttpBounds, HttpRequest, HttpResponse, HttpServer
from pykbroker.runtime import OsRuntime

LINES = 20_000
MB = 1 << 20


async def handle(request: HttpRequest) -> HttpResponse:
    if request.target == "/long":
        return HttpResponse(200, (f"line {number}\n" for number in range(LINES)))
    if request.target == "/size":
        return HttpResponse(200, [f"{None if request.body is None else len(request.body)}\n"])
    if request.target == "/later":
        await asyncio.sleep(0.2)
    return HttpResponse(200, [f"{request.method} {request.target} {request.headers.get('x', '')}\n"])


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


def serve(scenario: Callable[[Connect], Awaitable[None]], bounds: HttpBounds | None = None) -> None:
    async def main() -> None:
        server = HttpServer(OsRuntime(asyncio.get_running_loop()), "127.0.0.1", 0, handle, bounds=bounds)
        await server.open()
        try:
            async with asyncio.timeout(60):
                await scenario(lambda: asyncio.open_connection("127.0.0.1", server.port))
        finally:
            server.close()

    asyncio.run(main())


async def ask(streams: Streams, *lines: str) -> bytes:
    """Return the bytes that come until the connection ends."""
    reader, writer = streams
    writer.write("\r\n".join([*lines, "", ""]).encode())
    answer = await reader.read()
    writer.close()
    return answer


def test_a_request_is_answered_and_the_connection_is_kept() -> None:
    async def scenario(connect: Connect) -> None:
        reader, writer = await connect()
        for word in ("one", "two"):
            writer.write(f"GET /{word} HTTP/1.1\r\nHost: here\r\nX: y\r\n\r\n".encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            text = await reader.readuntil(b"0\r\n\r\n")
            assert f"GET /{word} y\n".encode() in text
        writer.close()

    serve(scenario)


def test_requests_that_come_at_once_are_answered_in_their_order() -> None:
    async def scenario(connect: Connect) -> None:
        one = "GET /long HTTP/1.1\r\nHost: here\r\n\r\n"
        answer = await ask(await connect(), one + "GET /last HTTP/1.1", "Host: here", "Connection: close")
        assert answer.count(b"line ") == LINES
        assert answer.rstrip().endswith(b"0")
        assert answer.index(b"GET /last") > answer.index(b"line 19999")

    serve(scenario)


def test_a_head_has_no_body() -> None:
    async def scenario(connect: Connect) -> None:
        answer = await ask(await connect(), "HEAD /long HTTP/1.1", "Host: here", "Connection: close")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"line" not in answer

    serve(scenario)


@pytest.mark.slow
def test_very_many_heads_at_once() -> None:
    async def scenario(connect: Connect) -> None:
        heads = 3000
        first = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" * heads
        answer = await ask(await connect(), f"{first}HEAD / HTTP/1.1", "Host: a", "Connection: close")
        assert answer.count(b"HTTP/1.1 200") == heads + 1

    serve(scenario)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /" + b"x" * (http_server.MAX_HEAD_BYTES + 1), b"431"),
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_ends(sent: bytes, status: bytes) -> None:
    async def scenario(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 " + status)
        writer.close()

    serve(scenario)


@pytest.mark.parametrize(("method", "has_body"), [("POST", True), ("HEAD", False)])
def test_a_mistake_in_a_body_is_answered_and_the_connection_ends(method: str, has_body: bool) -> None:
    async def scenario(connect: Connect) -> None:
        # The request before it was a HEAD, or was not: each answer has the body of its own request.
        for before in ("HEAD", "POST"):
            reader, writer = await connect()
            writer.write(f"{before} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.write(f"{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode())
            answer = await reader.read()
            refused = answer[answer.index(b"HTTP/1.1 400") :]
            assert b"connection: close\r\n" in refused
            assert (b"illegal chunk header" in refused) is has_body
            writer.close()

    serve(scenario)


def test_a_silent_connection_ends() -> None:
    async def scenario(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET / HT")
        assert await reader.read() == b""
        writer.close()

    serve(scenario, HttpBounds(silence_seconds=0.05))


def test_a_request_that_comes_byte_by_byte_has_its_time_and_no_more() -> None:
    async def scenario(connect: Connect) -> None:
        reader, writer = await connect()
        end = asyncio.ensure_future(reader.read())
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not end.done():
            writer.write(b"1\r\nx\r\n")
            await asyncio.wait({end}, timeout=0.01)
        writer.close()

    serve(scenario, HttpBounds(silence_seconds=0.2))


@pytest.mark.parametrize(("size", "status"), [(0, b"0"), (9, b"9"), (10, b"10"), (11, b"None"), (4 * MB, b"None")])
def test_a_body_is_kept_up_to_its_bound_and_the_rest_of_a_longer_one_is_read(size: int, status: bytes) -> None:
    async def scenario(connect: Connect) -> None:
        for _ in range(2):
            reader, writer = await connect()
            head = f"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + b"x" * size)
            assert (await reader.read()).split(b"\r\n\r\n")[1].splitlines()[1] == status
            writer.close()

    serve(scenario, HttpBounds(body_bytes=10))


def test_an_answer_may_take_longer_than_a_request() -> None:
    async def scenario(connect: Connect) -> None:
        answer = await ask(await connect(), "GET /later HTTP/1.1", "Host: a", "Connection: close")
        assert answer.startswith(b"HTTP/1.1 200")

    serve(scenario, HttpBounds(silence_seconds=0.05))


def test_what_is_sent_ahead_stays_in_the_network() -> None:
    """A client that sends requests without reading the responses must not fill the node's memory with them."""
    taken: list[int] = []
    waiting: asyncio.Queue[http_server._Connection] = asyncio.Queue()

    class Counting(http_server._Connection):
        def data_received(self, data: bytes) -> None:
            taken.append(len(data))
            super().data_received(data)

        def pause_writing(self) -> None:
            super().pause_writing()
            waiting.put_nowait(self)

    async def scenario(connect: Connect) -> None:
        _, writer = await connect()
        request = b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n"
        writer.write(request * (64 * MB // len(request)))
        # The first response waits for its reader; until then no more bytes are taken.
        connection = await waiting.get()
        assert connection._transport is not None
        assert not connection._transport.is_reading()
        # The node has made one read, or a few.
        assert sum(taken) < 4 * MB
        writer.transport.abort()

    with mock.patch.object(http_server, "_Connection", Counting):
        serve(scenario)


def test_there_are_only_so_many_connections() -> None:
    async def scenario(connect: Connect) -> None:
        first = await connect()
        first[1].write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert await first[0].readline()

        async def is_served() -> bool:
            try:
                return (await ask(await connect(), "GET / HTTP/1.0")).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

        assert not await is_served()
        first[1].close()
        # Its end may not be noticed yet.
        while not await is_served():
            pass

    serve(scenario, HttpBounds(connections=1))


@pytest.mark.slow
def test_a_client_that_does_not_read_is_waited_for_and_costs_no_memory() -> None:
    asked: list[int] = []

    async def endless(request: HttpRequest) -> HttpResponse:
        def parts() -> Iterator[str]:
            number = 0
            while True:
                number += 1
                asked.append(number)
                yield "x" * 1000

        return HttpResponse(200, parts())

    async def main() -> None:
        server = HttpServer(OsRuntime(asyncio.get_running_loop()), "127.0.0.1", 0, endless)
        await server.open()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        before = -1
        while len(asked) != before or not asked:
            before = len(asked)
            await asyncio.sleep(0.2)
        # The buffers of both ends are full: some megabytes of the system's own.
        assert len(asked) < 50_000
        server.close()
        writer.close()

    asyncio.run(asyncio.wait_for(main(), 60))
