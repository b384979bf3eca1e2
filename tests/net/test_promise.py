"""A result without a turn of the loop: delivered within the call that sets it, still in the order of requests."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, cast

import pytest

from pykbroker.net.connection import Connection
from pykbroker.net.promise import Promise
from pykbroker.net.replies import AnswerBuffers, Pending
from tests.net.fakes import FakeLoop, connect, feed, frame, make_listener


class Asked:
    def __init__(self, body: bytes) -> None:
        self.future = Promise()
        self._body = body

    def encode(self, result: Any) -> AnswerBuffers:
        return [frame(self._body + result)]


class Handler:
    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def __call__(self, connection: Connection, data: memoryview) -> AnswerBuffers | Pending | None:
        self.asked.append(Asked(bytes(data)))
        return self.asked[-1]


def test_it_is_told_at_once_also_to_who_comes_later() -> None:
    promise, heard = Promise(), list[Any]()
    promise.add_done_callback(lambda done: heard.append(done.result()))
    assert not heard
    promise.set_result(1)
    promise.add_done_callback(lambda done: heard.append(done.result()))
    assert heard == [1, 1]
    assert not promise.cancelled()


def test_nobody_hears_what_was_cancelled() -> None:
    promise, heard = Promise(), list[Any]()
    promise.add_done_callback(heard.append)
    promise.cancel()
    promise.set_result(1)
    assert not heard
    assert promise.cancelled()


class Waiting:
    """The object that waits for a promise usually holds it."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        promise.when_cancelled(self.stop)

    def stop(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("end", [lambda promise: promise.set_result(1), Promise.cancel])
def test_what_has_ended_leaves_no_circle_to_collect(end: Callable[[Promise], object]) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            end(Waiting(Promise()).promise)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_only_answer_of_a_connection_leaves_within_the_call() -> None:
    handler = Handler()
    connection, transport = connect(make_listener(handler))
    for number in range(3):
        feed(connection, frame(b"%d" % number))
        handler.asked[-1].future.set_result(b"!")
        assert transport.writes == number + 1
    assert bytes(transport.written) == b"".join(map(frame, (b"0!", b"1!", b"2!")))


def test_several_leave_together_and_in_order() -> None:
    handler = Handler()
    listener = make_listener(handler)
    connection, transport = connect(listener)
    feed(connection, frame(b"a") + frame(b"b") + frame(b"c"))
    for number in (1, 0, 2):
        handler.asked[number].future.set_result(b"!")
    cast(FakeLoop, listener.loop).turn()
    assert bytes(transport.written) == b"".join(map(frame, (b"a!", b"b!", b"c!")))
    assert transport.writes == 1


def test_an_answer_for_a_client_that_is_gone() -> None:
    handler = Handler()
    connection, transport = connect(make_listener(handler))
    feed(connection, frame(b"a"))
    connection.connection_lost(None)
    handler.asked[0].future.set_result(b"!")
    assert not transport.written
