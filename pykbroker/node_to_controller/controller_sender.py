"""Sends requests to the active controller, one after the other, and repeats each until it is answered.

Responsible for one request in flight, for asking again after a failure, and for asking a new leader at once (pace.py).
A failure is one of three: no answer, an answer that cannot be decoded, or any error code at the top of the answer. The
owner handles the rest of the answer.

Not responsible for the content: the owner builds each request when it is due, so that it has the newest state. It must
be harmless if the controller handles a request twice, because the answer of a former leader may be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from pykbroker.node_to_controller.controller_channel import Channel, LeaderWatch
from pykbroker.node_to_controller.pace import Pace
from pykbroker.runtime import Runtime
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode, error_name
from pykbroker_wire.primitives import TopLevel

logger = logging.getLogger(__name__)

#: As in Apache Kafka: the timeout of a request, and the first pause after a failure.
REQUEST_TIMEOUT_MS = 30_000
FIRST_PAUSE_MS = 100
#: Explanations for an operator, for errors that repeating the request alone does not solve.
_MEANINGS = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "a broker with this node.id is alive: another process, or this one until "
    "the session of its last run is over",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "this node was formatted for another cluster",
    ErrorCode.INVALID_REGISTRATION: "another broker has registered a directory with the directory.id of one of these, "
    "as a copied directory keeps it",
}
#: Errors that are usually over after a while, so that an operator has nothing to do. If the last run of this broker was
#: killed, or the controller is Apache Kafka's, its session is over by itself.
_PASSING = frozenset({ErrorCode.DUPLICATE_BROKER_REGISTRATION})


class KnownLeader(LeaderWatch, Protocol):
    """The part of the MetadataView that the sender uses."""

    leader_id: int | None


class ControllerSender:
    """`build` returns the request to send now, or None if there is nothing to send. `answered` takes the answer."""

    def __init__(
        self,
        runtime: Runtime,
        channel: Channel,
        leadership: KnownLeader,
        name: str,
        build: Callable[[], TopLevel | None],
        answered: Callable[[Any], None],
        *,
        last_pause_ms: int,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        first_pause_ms: int = FIRST_PAUSE_MS,
    ) -> None:
        """`name` begins the log lines."""
        self._runtime = runtime
        self._channel = channel
        self._name = name
        self._build = build
        self._take_answer = answered
        self._timeout_ms = timeout_ms
        self._pace = Pace(first_pause_ms, last_pause_ms)
        self._last_pause_ms = last_pause_ms
        self._lines = LineLimit(runtime.loop.time)
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight: asyncio.Future[Any] | None = None
        #: the reason of the last failure
        self.last_failure = ""
        #: the name of the newest request
        self._asked = ""
        self._closed = False
        self._pace.leader_changed(leadership.leader_id is not None, 0)
        leadership.on_leader(self._leader_changed)

    @property
    def in_flight(self) -> bool:
        return self._pace.in_flight

    def wake(self, delay_ms: int = 0) -> None:
        """Build and send a request after the delay at the latest, but not before the end of a pause after a failure."""
        self._pace.want(self._now_ms() + delay_ms)
        self._arm()

    def close(self) -> None:
        self._closed = True
        self._abandon()
        self._arm()

    # Time.

    def _now_ms(self) -> int:
        return int(self._runtime.loop.time() * 1000)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._pace.due_ms
        if due_ms is not None and not self._closed:
            delay_ms = max(0, due_ms - self._now_ms())
            self._timer = self._runtime.loop.call_later(delay_ms / 1000, self._send)

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        if self._closed:
            return
        if leader_id is not None:
            self._abandon()
        self._pace.leader_changed(leader_id is not None, self._now_ms())
        self._arm()

    def _abandon(self) -> None:
        """Stop waiting for the answer of a former leader. It may be cut off from the network, and no error may show
        that for a long time."""
        future, self._in_flight = self._in_flight, None
        if future is not None:
            future.cancel()

    # Talking.

    def _send(self) -> None:
        self._timer = None
        request = self._build()
        if request is None:
            self._pace.nothing_to_send()
            return
        self._pace.sent()
        self._asked = type(request).__name__.removesuffix("Request")
        future = self._in_flight = self._channel.send(request, self._timeout_ms)
        future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[Any]) -> None:
        if future is not self._in_flight:
            # The request was abandoned. The exception is read anyway, because the loop reports exceptions that are
            # never read.
            if not future.cancelled():
                future.exception()
            return
        self._in_flight = None
        error = None if future.cancelled() else future.exception()
        try:
            if future.cancelled() or error is not None:
                self._failed(f"no answer from the controller: {error!r}")
            elif future.result().error_code:
                code = future.result().error_code
                meaning = f" ({_MEANINGS[code]})" if code in _MEANINGS else ""
                self._failed(f"the controller says {error_name(code)}{meaning}", is_expected=code in _PASSING)
            else:
                self._pace.answered()
                self._take_answer(future.result())
        finally:
            self._arm()

    def _failed(self, reason: str, *, is_expected: bool = False) -> None:
        self.last_failure = reason
        first = self._pace.failures == 0
        pause_ms = self._pace.failed(self._now_ms())
        level = logging.INFO if first or is_expected else logging.WARNING
        # While the pauses grow, each unexpected failure has a log line. Later there is one line a minute. An expected
        # failure has one line a minute from the first on.
        is_limited = is_expected or pause_ms == self._last_pause_ms
        left_out = self._lines.take(reason) if is_limited else ""
        if left_out is None:
            return
        when = f"again and again, at least every {self._last_pause_ms}" if is_expected else f"again in {pause_ms}"
        logger.log(level, "%s %s: %s; trying %s ms%s", self._name, self._asked, reason, when, left_out)
