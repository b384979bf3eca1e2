"""Answers that are there already, or come later.

Handlers return a response or a future of one; these keep that choice open when answers are changed, followed or joined.
An answer is always an answer, its error a field of it; only `settle` passes on what was raised, and `judged` makes an
answer of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, Union, cast

from pykbroker_wire.errors import KafkaError

T = TypeVar("T")
U = TypeVar("U")

Later: TypeAlias = Union[T, "asyncio.Future[T]"]


class CallWhenDone(Protocol):
    """Calls a step when the future that it waits for is done. Handlers pass one that keeps the order of appends within
    a connection (dispatch/append_order.py)."""

    def __call__(self, awaited: asyncio.Future[T], step: Callable[[asyncio.Future[T]], object], /) -> None: ...


def at_any_time(awaited: asyncio.Future[T], step: Callable[[asyncio.Future[T]], object]) -> None:
    """For a wait that holds nothing else up."""
    awaited.add_done_callback(step)


def then(value: Later[T], transform: Callable[[T], U]) -> Later[U]:
    """`transform` applied now or when the future is done; cancelling the outer cancels the inner."""
    if not isinstance(value, asyncio.Future):
        return transform(value)
    inner = value
    outer: asyncio.Future[U] = inner.get_loop().create_future()

    def done(finished: asyncio.Future[T]) -> None:
        if outer.done():
            return
        if finished.cancelled():
            outer.cancel()
        else:
            outer.set_result(transform(finished.result()))

    inner.add_done_callback(done)
    outer.add_done_callback(lambda future: inner.cancel() if future.cancelled() else None)
    return outer


def and_then(value: Later[T], follow: Callable[[T], Later[U]]) -> Later[U]:
    """What `follow` answers to it, which may come later still; cancelling the outer cancels what runs."""
    if not isinstance(value, asyncio.Future):
        return follow(value)
    outer: asyncio.Future[U] = value.get_loop().create_future()
    running: asyncio.Future[T] | asyncio.Future[U] = value

    def done(finished: asyncio.Future[T]) -> None:
        nonlocal running
        if outer.done():
            return
        if finished.cancelled():
            outer.cancel()
            return
        second = follow(finished.result())
        if isinstance(second, asyncio.Future):
            running = second
            second.add_done_callback(complete)
        else:
            outer.set_result(second)

    def complete(finished: asyncio.Future[U]) -> None:
        if outer.done():
            return
        if finished.cancelled():
            outer.cancel()
        else:
            outer.set_result(finished.result())

    value.add_done_callback(done)
    outer.add_done_callback(lambda future: running.cancel() if future.cancelled() else None)
    return outer


def judged(future: asyncio.Future[T], answer: Callable[[T], U], refuse: Callable[[KafkaError], U]) -> asyncio.Future[U]:
    """`answer` of the result, `refuse` of a KafkaError; any other error is passed on, and what these two raise."""
    outer: asyncio.Future[U] = future.get_loop().create_future()

    def done(finished: asyncio.Future[T]) -> None:
        # Asked for also when the client has left: asyncio logs an exception that nothing asks for.
        error = None if finished.cancelled() else finished.exception()
        if outer.done():
            return
        if finished.cancelled():
            outer.cancel()
            return
        try:
            if error is None:
                outer.set_result(answer(finished.result()))
            elif isinstance(error, KafkaError):
                outer.set_result(refuse(error))
            else:
                outer.set_exception(error)
        except Exception as bug:  # noqa: BLE001  # dispatch logs it and closes the connection
            outer.set_exception(bug)

    if future.done():
        done(future)
    else:
        future.add_done_callback(done)
    return outer


def settle(answer: asyncio.Future[T], act: Callable[[], Later[T]]) -> None:
    """What `act` returns or raises is the answer, now or later. It is called also when no caller waits any more."""
    try:
        found = act()
    except Exception as error:  # noqa: BLE001  # a closed connection, for one: the waiting caller gets it
        if not answer.done():
            answer.set_exception(error)
        return
    if isinstance(found, asyncio.Future):
        found.add_done_callback(lambda done: _pass_on(done, answer))
    elif not answer.done():
        answer.set_result(found)


def _pass_on(done: asyncio.Future[T], answer: asyncio.Future[T]) -> None:
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())


def gather(parts: Sequence[Later[T]]) -> Later[list[T]]:
    """All of them, in order."""
    missing = [part for part in parts if isinstance(part, asyncio.Future)]
    if not missing:
        return [cast(T, part) for part in parts]
    outer: asyncio.Future[list[T]] = missing[0].get_loop().create_future()

    def done(finished: asyncio.Future[T]) -> None:
        if not outer.done() and all(part.done() for part in missing):
            outer.set_result([part.result() if isinstance(part, asyncio.Future) else part for part in parts])

    def given_up(future: asyncio.Future[list[T]]) -> None:
        if future.cancelled():
            for part in missing:
                part.cancel()

    for part in missing:
        part.add_done_callback(done)
    outer.add_done_callback(given_up)
    return outer
