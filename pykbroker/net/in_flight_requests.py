"""The requests that a connection has sent and that the peer has not answered yet, in the order of their sending.

Pure: messages in, frames out. A Kafka broker answers the requests of one connection in order, so a response belongs to
the oldest request. Responsible for correlation ids, and for the time at which a silent peer counts as vanished. Not
responsible for the transport, the timers and the states of the connection (client.py), nor for the choice of a version
(versions.py).

Invariant: a request that timed out stays here until its response has come, because that response is the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from pykbroker_wire.headers import encode_request
from pykbroker_wire.primitives import DecodeError, TopLevel

_CORRELATION_ID = Struct(">i")


class ClientRequest:
    """One request and the future of its response."""

    __slots__ = (
        "answer",
        "answered",
        "correlation_id",
        "least",
        "message",
        "timeout",
        "timer",
        "version",
        "written_at",
    )

    def __init__(
        self,
        message: TopLevel,
        timeout: float,
        version: int | None,
        least: int,
        answer: asyncio.Future[Any] | None,
        answered: Callable[[Any], None] | None = None,
    ) -> None:
        self.message = message
        #: seconds
        self.timeout = timeout
        #: the version that the caller chose, or None; after writing, the version in which the request was written
        self.version = version
        self.least = least
        #: one of these two is set: `answered` for requests of the connection itself, `answer` for all others
        self.answer = answer
        self.answered = answered
        self.timer: asyncio.TimerHandle | None = None
        self.correlation_id = 0
        self.written_at = 0.0

    def succeed(self, response: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.answered is not None:
            self.answered(response)
        elif self.answer is not None:
            self.answer.set_result(response)

    def fail(self, error: Exception) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class InFlightRequests:
    """The requests of one connection."""

    __slots__ = ("_client_id", "_correlation_id", "_sent")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._sent: deque[ClientRequest] = deque()

    def __bool__(self) -> bool:
        return bool(self._sent)

    @property
    def oldest(self) -> ClientRequest:
        """The request whose response is the next. There must be one."""
        return self._sent[0]

    def add(
        self, request: ClientRequest, message: TopLevel, version: int, now: float
    ) -> list[bytes | bytearray | memoryview]:
        """Return the frame of `message`, which is `request` in the form of `version`. Raises EncodeError, and then
        nothing is added."""
        correlation_id = self._correlation_id
        frame = encode_request(message.API_KEY, version, correlation_id, self._client_id, message)
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        request.version = version
        request.correlation_id = correlation_id
        request.written_at = now
        self._sent.append(request)
        return frame

    def take(self, frame: memoryview) -> ClientRequest:
        """Remove and return the request that `frame` answers. Raises DecodeError if it answers none."""
        if not self._sent:
            raise DecodeError("no request waits for it")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 0)
        expected = self._sent[0].correlation_id
        if correlation_id != expected:
            raise DecodeError(f"it has correlation id {correlation_id}, expected is {expected}")
        return self._sent.popleft()

    def vanished_at(self, last_received_at: float) -> float:
        """Return the time at which the peer counts as vanished if no byte arrives until then. There must be a
        request."""
        return max(self._sent[0].written_at, last_received_at) + self._sent[0].timeout

    def clear(self) -> list[ClientRequest]:
        """Remove and return all requests, because the connection has ended."""
        ended = list(self._sent)
        self._sent.clear()
        return ended
