"""Questions from one loop to the other, and their answers, which are matched by number.

Each side uses only futures of its own loop. Each question is answered once, also if the asking side has stopped
waiting. Not responsible for timeouts: the part that asks has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from pykbroker.crossing.loop_messages import LoopAnswered, LoopAsked
from pykbroker.runtime import Runtime


class Calls:
    """The asking side. `put` hands a message over to the other loop."""

    def __init__(self, runtime: Runtime, put: Callable[[LoopAsked], None]) -> None:
        self._runtime = runtime
        self._put = put
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def ask(self, question: Any) -> asyncio.Future[Any]:
        """Return a future of the answer, which fails with the error that the other side raised. The question must not
        be changed afterwards."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._runtime.loop.create_future()
        self._waiting[number] = future
        self._put(LoopAsked(number, question))
        return future

    def answered(self, message: LoopAnswered) -> None:
        """Take a message of the other loop."""
        future = self._waiting.pop(message.number, None)
        if future is None or future.done():
            return
        if message.error is not None:
            future.set_exception(message.error)
        else:
            future.set_result(message.answer)

    def close(self) -> None:
        """Cancel the questions that wait for an answer."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()


class CallsAnswered:
    """The answering side. `put` hands a message over to the loop that has asked."""

    def __init__(self, put: Callable[[LoopAnswered], None], answer: Callable[[Any], Any]) -> None:
        """`answer` is called with each question. It returns the answer or a future of it, or raises an error, which is
        sent as the answer."""
        self._put = put
        self._answer = answer

    def asked(self, message: LoopAsked) -> None:
        """Take a message of the other loop."""
        number = message.number
        try:
            result = self._answer(message.question)
        except Exception as error:  # noqa: BLE001  # it is raised again where the answer is waited for
            # The error is sent without the frames of this loop.
            self._put(LoopAnswered(number, None, error.with_traceback(None)))
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(partial(self._done, number))
        else:
            self._put(LoopAnswered(number, result, None))

    def _done(self, number: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._put(LoopAnswered(number, None, ConnectionError("the receiver has stopped")))
        elif (error := future.exception()) is not None:
            self._put(LoopAnswered(number, None, error.with_traceback(None)))
        else:
            self._put(LoopAnswered(number, future.result(), None))
