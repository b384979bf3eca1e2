"""Messages between two loops: each once, in order, on the receiver's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from pykbroker.crossing.hand_over import HandOver


def test_on_one_loop_a_message_is_taken_before_put_returns() -> None:
    taken: list[int] = []
    way: HandOver[int] = HandOver(None, taken.append)
    way.put(1)
    assert taken == [1]


def test_a_message_that_is_put_while_another_is_taken_comes_behind_it() -> None:
    taken: list[str] = []

    def take(message: str) -> None:
        if message == "first":
            way.put("second")
        taken.append(message)

    way: HandOver[str] = HandOver(None, take)
    way.put("first")
    assert taken == ["first", "second"]


def test_the_receiver_is_called_once_for_all_that_waits() -> None:
    calls: list[Callable[[], None]] = []
    taken: list[int] = []
    way: HandOver[int] = HandOver(calls.append, taken.append)
    for number in range(3):
        way.put(number)
    assert (len(calls), taken) == (1, [])
    calls[0]()
    assert taken == [0, 1, 2]
    way.put(3)
    assert len(calls) == 2


def test_what_waits_can_be_taken_before_the_receiver_is_called() -> None:
    """As the dispatcher does before the first frame."""
    calls: list[Callable[[], None]] = []
    taken: list[int] = []
    way: HandOver[int] = HandOver(calls.append, taken.append)
    way.put(1)
    assert way.messages
    way.take_all()
    assert taken == [1]
    calls[0]()
    assert taken == [1]


def test_an_error_of_one_message_keeps_no_other_from_being_taken(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[int] = []

    def take(message: int) -> None:
        if message == 1:
            raise ValueError(message)
        taken.append(message)

    calls: list[Callable[[], None]] = []
    way: HandOver[int] = HandOver(calls.append, take)
    for number in range(3):
        way.put(number)
    calls[0]()
    assert taken == [0, 2]
    assert caplog.messages == ["A message from the other loop could not be handled: int"]


def test_nothing_is_taken_after_the_end() -> None:
    taken: list[int] = []
    way: HandOver[int] = HandOver(None, taken.append)
    way.close()
    way.put(1)
    assert (taken, list(way.messages)) == ([], [])


def test_a_receiver_whose_loop_is_closed_gets_nothing_more() -> None:
    loop = asyncio.new_event_loop()
    way: HandOver[int] = HandOver(loop.call_soon_threadsafe, lambda message: None)
    loop.close()
    way.put(1)
    way.put(2)
    assert len(way.messages) <= 1


def test_between_two_threads_nothing_is_lost_and_nothing_overtakes() -> None:
    count = 20_000
    taken: list[int] = []
    threads: set[str] = set()
    loop = asyncio.new_event_loop()

    def take(message: int) -> None:
        taken.append(message)
        threads.add(threading.current_thread().name)
        if message == count - 1:
            loop.stop()

    way: HandOver[int] = HandOver(loop.call_soon_threadsafe, take)
    receiver = threading.Thread(target=loop.run_forever, name="receiver")
    receiver.start()
    for number in range(count):
        way.put(number)
    receiver.join(60)
    loop.close()
    assert taken == list(range(count))
    assert threads == {"receiver"}
