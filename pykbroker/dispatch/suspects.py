"""Suspects: requests whose connection to the controller ended before their answer came. Each is sent again alone.

One of these requests may be the reason why the controller ended the connection, and may have this effect at each try.
On the connection that all requests share, it would make the other requests fail too. So the suspects are sent one after
the other on a connection that nothing else uses. A request during which this connection ends as well is at fault.

Responsible for the order, and for ending requests that have waited too long. Not responsible for the answer to the
request at fault (forwarding.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from pykbroker.node_to_controller.controller_channel import Channel


class Suspects:
    """The queue of suspects. No other part may send on `channel`. The queue has no limit of its own; it is bounded by
    the requests that clients have under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._waiting: deque[tuple[Any, int, asyncio.Future[Any], asyncio.TimerHandle]] = deque()
        self._is_busy = False

    def send(self, request: Any, timeout_ms: int, until: float) -> asyncio.Future[Any]:
        """Return a future of the answer or of the channel's error. It fails with TimeoutError if the request's turn has
        not come by `until`, a time of the loop. `timeout_ms` counts from the time when the request is sent."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((request, timeout_ms, answer, self._loop.call_at(until, _give_up, answer)))
        self._next()
        return answer

    def _next(self) -> None:
        while self._waiting and not self._is_busy:
            request, timeout_ms, answer, timer = self._waiting.popleft()
            timer.cancel()
            if not answer.done():
                self._is_busy = True
                sent = self._channel.send(request, timeout_ms)
                sent.add_done_callback(partial(self._came, answer))

    def _came(self, answer: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._is_busy = False
        if not answer.done():
            if done.cancelled():
                answer.cancel()
            elif (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())
        self._next()


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError("the requests before it were not answered in time"))
