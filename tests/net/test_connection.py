"""A connection frames bytes in any chunks, answers in order, and stays inside its bounds."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.kinds import ConfigError
from pykbroker.net.admission import AdmissionLimits
from pykbroker.net.connection import DRAIN_SECONDS, CloseConnection, Connection
from pykbroker.net.connection_home import Limits, WaitingMemory
from pykbroker.net.connection_state import End
from pykbroker.net.listener import Listener
from pykbroker.net.replies import AnswerBuffers, Pending
from tests.net.fakes import FakeLoop, FakeRuntime, connect, feed, frame, make_listener

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime


class Echo:
    """Answers each request with its own bytes, at once or when the test does it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.loop: FakeLoop | None = None

    def __call__(self, connection: Connection, data: memoryview) -> AnswerBuffers | Pending | None:
        body = bytes(data)
        self.seen.append(body)
        if body.startswith(b"later"):
            assert self.loop is not None
            pending = Later(self.loop.create_future(), body)
            self.futures.append(pending.future)
            return pending
        if body.startswith(b"silent"):
            return None
        if body.startswith(b"bad"):
            raise CloseConnection("it was bad")
        return [frame(body)]


class Later:
    def __init__(self, future: asyncio.Future[Any], body: bytes) -> None:
        self.future = future
        self._body = body

    def encode(self, result: Any) -> AnswerBuffers:
        return [frame(self._body + result)]


def start(limits: Limits | None = None) -> tuple[Echo, Listener, FakeLoop]:
    echo = Echo()
    listener = make_listener(echo, limits)
    echo.loop = cast(FakeLoop, listener.loop)
    return echo, listener, echo.loop


@given(
    st.lists(st.binary(min_size=1, max_size=9000), max_size=12),
    st.lists(st.integers(1, 20_000), min_size=1, max_size=30),
)
def test_any_chunking_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    bodies = [b"x" + body for body in bodies]
    echo, listener, _ = start()
    connection, transport = connect(listener)
    stream = b"".join(map(frame, bodies))
    position = turn = 0
    while position < len(stream):
        cut = cuts[turn % len(cuts)]
        feed(connection, stream[position : position + cut])
        position += cut
        turn += 1
    assert echo.seen == bodies
    assert bytes(transport.written) == stream
    assert listener.memory.used <= 2 * 9004 + 8192


def test_answers_leave_in_request_order() -> None:
    echo, listener, loop = start()
    connection, transport = connect(listener)
    feed(connection, frame(b"a") + frame(b"later 1") + frame(b"b") + frame(b"later 2") + frame(b"c"))
    assert bytes(transport.written) == frame(b"a")
    echo.futures[1].set_result(b"!")
    loop.turn()
    assert bytes(transport.written) == frame(b"a")
    echo.futures[0].set_result(b"?")
    loop.turn()
    assert bytes(transport.written) == b"".join(map(frame, (b"a", b"later 1?", b"b", b"later 2!", b"c")))


def test_a_client_that_sends_no_more_gets_the_answers_that_are_not_there_yet() -> None:
    """As in Apache Kafka, which looks at a connection again when it has answered."""
    echo, listener, loop = start()
    connection, transport = connect(listener)
    feed(connection, frame(b"later 1") + frame(b"a") + frame(b"later 2"))
    assert connection.eof_received()
    assert not transport.closed
    echo.futures[0].set_result(b"!")
    loop.turn()
    assert bytes(transport.written) == frame(b"later 1!") + frame(b"a")
    assert not transport.closed
    echo.futures[1].set_result(b"!")
    loop.turn()
    assert bytes(transport.written) == frame(b"later 1!") + frame(b"a") + frame(b"later 2!")
    assert transport.closed


def test_a_client_that_sends_no_more_is_not_waited_for_for_ever() -> None:
    """Only a write shows that a client is gone altogether."""
    echo, listener, loop = start()
    connection, transport = connect(listener)
    feed(connection, frame(b"later"))
    connection.eof_received()
    loop.pass_seconds(DRAIN_SECONDS - 0.1)
    assert not transport.closed
    loop.pass_seconds(0.2)
    assert transport.closed
    connection.connection_lost(None)
    assert echo.futures[0].cancelled()


def test_requests_that_wait_for_a_bound_are_answered_after_the_last_byte() -> None:
    echo, listener, loop = start(Limits(unanswered_requests=1))
    connection, transport = connect(listener)
    feed(connection, frame(b"later 1") + frame(b"later 2") + frame(b"a"))
    assert len(echo.seen) == 1
    # TLS passes the end with the bytes before it, also to a connection that reads no more.
    assert connection.eof_received()
    for number in range(2):
        echo.futures[number].set_result(b"")
        loop.turn()
    assert bytes(transport.written) == frame(b"later 1") + frame(b"later 2") + frame(b"a")
    assert transport.closed


def test_who_asks_hears_of_the_last_byte_before_the_answers_leave() -> None:
    """A broker whose kernel has ended its connection may be gone, although its heartbeat waits."""
    echo, listener, loop = start()
    connection, _ = connect(listener)
    finished: list[End] = []
    ended: list[End] = []
    connection.when_finished(finished.append)
    connection.when_ended(ended.append)
    feed(connection, frame(b"later"))
    connection.eof_received()
    assert [end.by_peer for end in finished] == [True]
    assert not ended
    echo.futures[0].set_result(b"")
    loop.turn()
    connection.connection_lost(None)
    assert (len(finished), len(ended)) == (1, 1)


def test_answers_finished_in_one_turn_are_one_write() -> None:
    echo, listener, loop = start()
    connection, transport = connect(listener)
    feed(connection, b"".join(frame(b"later %d" % number) for number in range(10)))
    for future in echo.futures:
        future.set_result(b"")
    loop.turn()
    assert transport.writes == 1


def test_a_request_without_an_answer_leaves_no_gap() -> None:
    _, listener, _ = start()
    connection, transport = connect(listener)
    feed(connection, frame(b"silent") + frame(b"a"))
    assert bytes(transport.written) == frame(b"a")


@pytest.mark.parametrize("size", [0, -1, -(2**31), 104_857_601, 2**31 - 1])
def test_an_impossible_size_closes_with_one_line(size: int, caplog: pytest.LogCaptureFixture) -> None:
    _, listener, _ = start()
    connection, transport = connect(listener)
    with caplog.at_level(logging.INFO):
        feed(connection, size.to_bytes(4, "big", signed=True) + b"rest")
    assert transport.closed
    assert len(caplog.records) == 1
    assert "socket.request.max.bytes" in caplog.text


def test_clients_of_random_bytes_make_one_line_a_minute_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    listener = make_listener(lambda connection, frame: pytest.fail("dispatched"))
    loop = cast(FakeLoop, listener.loop)
    with caplog.at_level(logging.INFO, "pykbroker.net"):
        for size in (*random.Random(1).sample(range(-(2**31), 0), 2000), -7):
            if size == -7:
                loop.now += 61
            connection, transport = connect(listener)
            feed(connection, size.to_bytes(4, "big", signed=True))
            assert transport.closed
        connection, _ = connect(listener)
        feed(connection, b"GET / HTTP/1.1\r\n")
    first, second, http = [record.getMessage().partition("closed: ")[2] for record in caplog.records]
    assert first.startswith("invalid request size -")
    assert second.startswith("invalid request size -7, ")
    assert second.endswith(" (1999 more lines like it were left out)")
    assert http.startswith("the client speaks HTTP")


def test_answers_before_a_bad_request_still_leave(caplog: pytest.LogCaptureFixture) -> None:
    _, listener, _ = start()
    connection, transport = connect(listener)
    with caplog.at_level(logging.INFO):
        feed(connection, frame(b"a") + frame(b"bad") + frame(b"never"))
    assert bytes(transport.written) == frame(b"a")
    assert transport.closed
    assert "it was bad" in caplog.text


def test_a_client_of_http_is_told_apart_in_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    listener = make_listener(lambda connection, frame: pytest.fail("dispatched"))
    loop = cast(FakeLoop, listener.loop)
    said = "closed: the client speaks HTTP, and this listener serves Kafka's protocol alone"

    def lines_of(host: str) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "pykbroker.net"):
            for _ in range(5):
                connection, transport = connect(listener, host)
                feed(connection, b"GET / HTTP/1.1\r\n")
                assert transport.closed
        return [record.getMessage().partition(" on PLAINTEXT: ")[2] for record in caplog.records]

    assert lines_of("10.0.0.1") == [said]
    assert lines_of("10.0.0.1") == []
    assert lines_of("10.0.0.2") == [said]
    loop.now += 61
    assert lines_of("10.0.0.1") == [f"{said} (9 more lines like it were left out)"]


def test_memory_follows_the_bytes_received_not_the_size_declared() -> None:
    _, listener, _ = start()
    connection, _ = connect(listener)
    feed(connection, (104_857_600).to_bytes(4, "big") + b"x" * 10)
    assert listener.memory.used <= 4096
    feed(connection, b"x" * 100_000)
    assert listener.memory.used <= 4 * 100_014


def test_buffers_are_given_back_when_the_connection_ends() -> None:
    _, listener, _ = start()
    connection, _ = connect(listener)
    feed(connection, (1_000_000).to_bytes(4, "big") + b"x" * 500_000)
    assert listener.memory.used > 0
    connection.connection_lost(None)
    assert listener.memory.used == 0
    assert not listener.connections


def test_unanswered_requests_are_bounded() -> None:
    echo, listener, loop = start(Limits(unanswered_requests=3))
    connection, transport = connect(listener)
    feed(connection, b"".join(frame(b"later %d" % number) for number in range(10)))
    assert len(echo.seen) == 3
    assert not transport.reading
    echo.futures[0].set_result(b"")
    loop.turn()
    assert len(echo.seen) == 4
    assert not transport.reading
    while len(echo.seen) < 10 or not all(future.done() for future in echo.futures):
        for future in echo.futures:
            if not future.done():
                future.set_result(b"")
        loop.turn()
    assert transport.reading
    assert bytes(transport.written) == b"".join(frame(b"later %d" % number) for number in range(10))


def test_nothing_is_dispatched_while_answers_cannot_leave() -> None:
    echo, listener, _ = start()
    connection, transport = connect(listener)
    connection.pause_writing()
    assert not transport.reading
    feed(connection, frame(b"a"))
    assert echo.seen == []
    connection.resume_writing()
    assert echo.seen == [b"a"]
    assert transport.reading


def test_requests_that_wait_end_with_the_connection() -> None:
    echo, listener, loop = start()
    connection, _ = connect(listener)
    feed(connection, frame(b"later"))
    connection.connection_lost(None)
    loop.turn()
    assert echo.futures[0].cancelled()


def test_a_request_that_stops_arriving_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    _, listener, loop = start(Limits(frame_seconds=60))
    connection, transport = connect(listener)
    feed(connection, frame(b"abc")[:5])
    loop.now += 59
    connection.tidy(loop.now)
    assert not transport.closed
    loop.now += 2
    with caplog.at_level(logging.INFO):
        connection.tidy(loop.now)
    assert transport.closed
    assert "did not arrive" in caplog.text


def test_the_time_of_a_request_does_not_begin_with_the_one_before() -> None:
    """Formerly a producer whose requests always arrived in two parts was closed in the middle of one, after 30 s."""
    _, listener, loop = start(Limits(frame_seconds=60))
    connection, transport = connect(listener)
    whole = frame(b"abc")
    for _ in range(40):
        feed(connection, whole[:5])
        connection.tidy(loop.now)
        assert not transport.closed
        feed(connection, whole[5:])
        loop.now += 2


def test_an_idle_connection_is_closed_but_not_one_that_waits() -> None:
    _, listener, loop = start(Limits(idle_seconds=600))
    idle, idle_transport = connect(listener)
    waiting, waiting_transport = connect(listener)
    feed(waiting, frame(b"later"))
    loop.now += 601
    idle.tidy(loop.now)
    waiting.tidy(loop.now)
    assert idle_transport.closed
    assert not waiting_transport.closed


def test_connections_per_address_are_bounded() -> None:
    _, listener, _ = start()
    listener.admission.change(AdmissionLimits(per_address=2, address_overrides={"10.0.0.2": 3}))
    assert [connect(listener, "10.0.0.1")[1].closed for _ in range(3)] == [False, False, True]
    assert [connect(listener, "10.0.0.2")[1].closed for _ in range(4)] == [False, False, False, True]


def test_memory_that_waits_for_whole_requests_is_bounded() -> None:
    """queued.max.request.bytes: over the bound no connection is read, except the one that holds all of it."""
    _, listener, _ = start()
    listener.memory = WaitingMemory(200_000)
    first, first_transport = connect(listener)
    second, second_transport = connect(listener)
    feed(first, (1_000_000).to_bytes(4, "big") + b"x" * 150_000)
    feed(second, (1_000_000).to_bytes(4, "big") + b"x" * 150_000)
    assert not second_transport.reading
    first.connection_lost(None)
    assert first_transport.reading
    assert second_transport.reading


def test_of_many_unfinished_requests_one_always_goes_on() -> None:
    """Formerly each held a part of the bound, each was muted for the others, and none had a deadline."""
    _, listener, loop = start(Limits(frame_seconds=60.0))
    listener.memory = WaitingMemory(200_000)
    pairs = [connect(listener) for _ in range(3)]
    for size in (30_000, 60_000, 120_000):
        for connection, transport in pairs:
            if transport.reading:
                begin = b"" if connection._received.filled else (1_000_000).to_bytes(4, "big")
                feed(connection, begin + b"x" * size)
    assert [transport.reading for _, transport in pairs].count(True) == 1
    loop.now += 61
    for left in (2, 1, 0):
        for connection, transport in pairs:
            if transport.reading and not transport.closed:
                connection.tidy(loop.now)
                assert transport.closed
                connection.connection_lost(None)
                break
        assert sum(not transport.closed for _, transport in pairs) == left
        loop.now += 61
    assert listener.memory.used == 0


def test_a_request_has_its_whole_time_after_a_pause() -> None:
    """Formerly its deadline ran on during the pause, so it was closed as soon as it could continue."""
    _, listener, loop = start(Limits(frame_seconds=60.0))
    connection, transport = connect(listener)
    feed(connection, (1_000_000).to_bytes(4, "big") + b"x" * 100)
    connection.mute()
    loop.now += 100
    connection.unmute()
    connection.tidy(loop.now + 59)
    assert not transport.closed
    connection.tidy(loop.now + 61)
    assert transport.closed


def test_answers_behind_one_that_is_not_there_are_bounded_by_their_bytes() -> None:
    """Formerly one waiting request, and a thousand large responses after it, were all held."""
    echo, listener, loop = start(Limits(unsent_bytes=10_000))
    connection, transport = connect(listener)
    feed(connection, frame(b"later"))
    for _ in range(20):
        if transport.reading:
            feed(connection, frame(b"x" * 2_000))
    assert not transport.reading
    assert len(echo.seen) == 1 + 5
    echo.futures[0].set_result(b"")
    loop.turn()
    assert transport.reading
    assert len(transport.written) == len(frame(b"later")) + 6 * 2_004


def test_finished_answers_leave_before_the_connection_closes() -> None:
    echo, listener, loop = start()
    connection, transport = connect(listener)
    feed(connection, frame(b"later"))
    echo.futures[0].set_result(b"!")
    ready, loop.ready = loop.ready, []
    for callback, args in ready:
        callback(*args)
    feed(connection, frame(b"bad"))
    loop.turn()
    assert bytes(transport.written) == frame(b"later!")
    assert transport.closed


def test_a_closed_connection_whose_client_reads_nothing_is_aborted() -> None:
    _, listener, loop = start()
    connection, transport = connect(listener)
    feed(connection, frame(b"bad"))
    assert transport.closed
    connection.tidy(loop.now + 4)
    assert not transport.aborted
    connection.tidy(loop.now + 6)
    assert transport.aborted


def test_a_bug_in_a_handler_ends_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    def broken(connection: Connection, data: memoryview) -> AnswerBuffers | Pending | None:
        raise ZeroDivisionError

    listener = make_listener(broken)
    connection, transport = connect(listener)
    feed(connection, frame(b"a"))
    assert transport.closed
    assert "ZeroDivisionError" in caplog.text


def test_who_is_served_at_once_behind_others_that_wait_is_read() -> None:
    """Formerly it was muted and unmuted before it was ready, and never read again."""
    _, listener, loop = start()
    other = Listener(cast("Runtime", FakeRuntime(loop)), "OTHER", Limits(), admission=listener.admission)
    other.answer_with(listener.dispatch)
    listener.admission.change(AdmissionLimits(listener_connections={"PLAINTEXT": 1}))
    connect(listener)
    _, waiting = connect(listener)
    assert not waiting.reading
    connection, transport = connect(other)
    assert transport.reading
    feed(connection, frame(b"a"))
    assert bytes(transport.written) == frame(b"a")


def test_who_is_muted_for_two_reasons_waits_for_both() -> None:
    """It has two throttled responses. Formerly the end of the first pause also ended the second."""
    _, listener, _ = start()
    connection, transport = connect(listener)
    connection.mute()
    connection.mute()
    connection.unmute()
    assert not transport.reading
    connection.unmute()
    assert transport.reading


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_listener_that_is_not_plaintext_refuses_to_be_made(protocol: str) -> None:
    runtime = cast("Runtime", FakeRuntime())
    Listener(runtime, "PLAIN", Limits())
    with pytest.raises(ConfigError, match=protocol):
        Listener(runtime, "OTHER", Limits(), security_protocol=protocol)
