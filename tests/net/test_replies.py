"""Responses in the order of their requests, whatever the order in which their results come."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.net.connection_home import Limits
from pykbroker.net.promise import Promise
from pykbroker.net.replies import AnswerBuffers, Replies


class Asked:
    """A request that waits for its result."""

    def __init__(self) -> None:
        self.future = Promise()

    def encode(self, result: Any) -> AnswerBuffers:
        if not result:
            raise ZeroDivisionError
        return [result]


def park(replies: Replies, count: int) -> list[Asked]:
    asked = [Asked() for _ in range(count)]
    for one in asked:
        replies.park(one)
    return asked


def finish(replies: Replies, asked: Asked, result: bytes) -> None:
    asked.future.set_result(result)
    replies.finish(asked.future)


def taken(replies: Replies) -> list[bytes]:
    out: list[bytes | bytearray | memoryview] = []
    replies.take(out)
    return list(map(bytes, out))


def test_a_response_waits_for_those_before_it() -> None:
    replies = Replies()
    first, second = park(replies, 2)
    replies.fill(replies.open(), [b"third"])
    finish(replies, second, b"second")
    assert taken(replies) == []
    assert replies.held_bytes == len(b"second") + len(b"third")
    assert (len(replies), replies.parked) == (3, 1)
    finish(replies, first, b"first")
    assert taken(replies) == [b"first", b"second", b"third"]
    assert (len(replies), replies.parked, replies.held_bytes) == (0, 0, 0)


def test_a_request_without_a_response_leaves_no_gap() -> None:
    replies = Replies()
    (first,) = park(replies, 1)
    replies.fill(replies.open(), [])
    finish(replies, first, b"first")
    assert taken(replies) == [b"first"]
    assert not replies


def test_too_many_requests_or_too_many_bytes_are_behind() -> None:
    limits = Limits(unanswered_requests=3, unsent_bytes=10)
    replies = Replies()
    first, second = park(replies, 2)
    assert not replies.is_behind(limits)
    third = park(replies, 1)[0]
    assert replies.is_behind(limits)
    finish(replies, first, b"1")
    taken(replies)
    assert not replies.is_behind(limits)
    finish(replies, third, b"3" * 10)
    assert replies.is_behind(limits)
    finish(replies, second, b"2")
    taken(replies)
    assert not replies.is_behind(limits)


def test_an_error_is_raised_where_the_request_is_finished() -> None:
    replies = Replies()
    first, second = park(replies, 2)
    first.future.set_exception(ValueError("it failed"))
    with pytest.raises(ValueError, match="it failed"):
        replies.finish(first.future)
    with pytest.raises(ZeroDivisionError):
        finish(replies, second, b"")
    assert taken(replies) == []


def test_the_parked_requests_end_together() -> None:
    replies = Replies()
    asked = park(replies, 3)
    asked[0].future.set_exception(ValueError("nobody asks"))
    replies.drop(asked[0].future)
    replies.cancel()
    assert [one.future.cancelled() for one in asked] == [False, True, True]
    assert replies.parked == 0


def test_the_result_of_a_request_that_is_not_parked_is_ignored() -> None:
    replies = Replies()
    (first,) = park(replies, 1)
    replies.drop(first.future)
    first.future.set_exception(ValueError("nobody asks"))
    replies.finish(first.future)
    assert (len(replies), replies.parked) == (1, 0)
    assert taken(replies) == []
