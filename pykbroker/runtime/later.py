"""Answers that are available now or come later.

There are three ways to say "later", and each has its place:

* `Later` is a value, or a future of it. Handlers and coordinators return it, because most answers are there at once.
  These functions transform, chain and join such answers and keep both forms possible.
* `OnOutcome` is a callback for work of storage/ and replica/ that has no value, only an end. It costs no turn of the
  loop.
* `Promise` (net/promise.py) is the answer of a request that waits. It calls its connection at once, without the loop.

An error is a field of the answer and is not raised. An exception is a bug, or the end of a connection. All functions
here pass it on to the answer, and `judged` turns it into an answer if it is a KafkaError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, Union, cast

from pykbroker_wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
U = TypeVar("U")

Later: TypeAlias = Union[T, "asyncio.Future[T]"]
#: Called once, with NONE or with the error. It may be called before the function that takes it has returned.
OnOutcome: TypeAlias = Callable[[ErrorCode], None]


class CallWhenDone(Protocol):
    """Calls a step when the future that it waits for is done. Handlers pass one that keeps the order of appends within
    a connection (dispatch/append_order.py)."""

    def __call__(self, awaited: asyncio.Future[T], step: Callable[[asyncio.Future[T]], object], /) -> None: ...


def at_any_time(awaited: asyncio.Future[T], step: Callable[[asyncio.Future[T]], object]) -> None:
    """The `CallWhenDone` for a wait that delays nothing else."""
    awaited.add_done_callback(step)


def then(value: Later[T], transform: Callable[[T], U]) -> Later[U]:
    """Return `transform(value)`, now or when the future is done. Cancelling the outer future cancels `value`. The outer
    future gets an exception of `value` or of `transform`."""
    if not isinstance(value, asyncio.Future):
        return transform(value)
    inner = value
    outer: asyncio.Future[U] = inner.get_loop().create_future()

    def done(finished: asyncio.Future[T]) -> None:
        if not outer.done():
            settle(outer, lambda: transform(finished.result()))

    inner.add_done_callback(done)
    outer.add_done_callback(lambda future: inner.cancel() if future.cancelled() else None)
    return outer


def and_then(value: Later[T], follow: Callable[[T], Later[U]]) -> Later[U]:
    """Return what `follow(value)` returns, which may be a future too. Cancelling the outer future cancels the inner
    future that is running. The outer future gets an exception of either future or of `follow`."""
    if not isinstance(value, asyncio.Future):
        return follow(value)
    outer: asyncio.Future[U] = value.get_loop().create_future()
    running: asyncio.Future[T] | asyncio.Future[U] = value

    def done(finished: asyncio.Future[T]) -> None:
        def go_on() -> Later[U]:
            nonlocal running
            second = follow(finished.result())
            if isinstance(second, asyncio.Future):
                running = second
            return second

        if not outer.done():
            settle(outer, go_on)

    value.add_done_callback(done)
    outer.add_done_callback(lambda future: running.cancel() if future.cancelled() else None)
    return outer


def judged(future: asyncio.Future[T], answer: Callable[[T], U], refuse: Callable[[KafkaError], U]) -> asyncio.Future[U]:
    """Return a future of `answer(result)`, or of `refuse(error)` if `future` raised a KafkaError. Other errors are
    passed on, and so are those that the two functions raise."""
    outer: asyncio.Future[U] = future.get_loop().create_future()

    def done(finished: asyncio.Future[T]) -> None:
        # The exception is read even if the client has left, because asyncio logs exceptions that are never read.
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
    """Complete `answer` with what `act` returns or raises, now or later. It is cancelled if a future is cancelled whose
    result `act` reads or returns. `act` is called even if no caller waits for the answer."""
    try:
        found = act()
    except asyncio.CancelledError:
        answer.cancel()
        return
    except Exception as error:  # noqa: BLE001  # a closed connection, for example: the waiting caller gets the error
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
    """Return all answers, in order. The outer future gets an exception of a part when all parts are done."""
    missing = [part for part in parts if isinstance(part, asyncio.Future)]
    if not missing:
        return [cast(T, part) for part in parts]
    outer: asyncio.Future[list[T]] = missing[0].get_loop().create_future()
    left = len(missing)

    def done(finished: asyncio.Future[T]) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not outer.done():
            settle(outer, lambda: [part.result() if isinstance(part, asyncio.Future) else part for part in parts])

    def given_up(future: asyncio.Future[list[T]]) -> None:
        if future.cancelled():
            for part in missing:
                part.cancel()

    for part in missing:
        part.add_done_callback(done)
    outer.add_done_callback(given_up)
    return outer
