"""Whether a peer still takes connections: one TCP connection, made to be closed.

A process that ends closes its sockets one after the other: a connection of it may end before its port refuses, and the
kernel resets what the port took meanwhile. So a connection that does not last is tried again. What is neither taken nor
refused is SILENT: a machine that is off, a network that is cut, a filter that drops.

Responsible for one verdict about one address. Not responsible for what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

from pykbroker.runtime import Runtime

#: Without an answer for so long a peer is silent.
PATIENCE_SECONDS = 1.0
#: A process that is alive keeps a connection for longer than this.
LASTS_SECONDS = 0.05
#: Connections that do not last, before the peer counts as one that takes them, and the pause before the next.
TRIES = 5
PAUSE_SECONDS = 0.005


class PortVerdict(Enum):
    """What came of a probe."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    #: no answer in time, or any other error
    SILENT = "silent"


class _Held(asyncio.Protocol):
    """A connection that says nothing. `lost` is done when it ends before `let_go`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lost: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def let_go(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class PortProbe:
    """One verdict about `host`:`port`, told to `then` once, unless it is cancelled before."""

    def __init__(self, runtime: Runtime, host: str, port: int, then: Callable[[PortVerdict], object]) -> None:
        self._runtime = runtime
        self._host = host
        self._port = port
        self._then = then
        self._tries = 0
        self._held: _Held | None = None
        self._attempt: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._patience = runtime.loop.call_later(PATIENCE_SECONDS, self._end, PortVerdict.SILENT)
        self._try()

    def cancel(self) -> None:
        """Nothing is told any more."""
        if self._is_over:
            return
        self._is_over = True
        for timer in (self._patience, self._timer):
            if timer is not None:
                timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._held is not None:
            self._held.let_go()

    def _end(self, verdict: PortVerdict) -> None:
        if not self._is_over:
            self.cancel()
            self._then(verdict)

    def _try(self) -> None:
        self._tries += 1
        loop = self._runtime.loop
        held = self._held = _Held(loop)
        self._attempt = self._runtime.connect(lambda: held, self._host, self._port)
        self._attempt.add_done_callback(self._tried)

    def _tried(self, attempt: asyncio.Future[Any]) -> None:
        held = self._held
        assert held is not None
        if attempt.cancelled():
            return
        error = attempt.exception()
        if self._is_over:
            held.let_go()
        elif isinstance(error, ConnectionRefusedError):
            self._end(PortVerdict.REFUSED)
        elif isinstance(error, ConnectionResetError):
            # Taken, and reset before this side has seen that it was taken.
            self._again()
        elif error is not None:
            self._end(PortVerdict.SILENT)
        else:
            self._timer = self._runtime.loop.call_later(LASTS_SECONDS, self._end, PortVerdict.ACCEPTED)
            held.lost.add_done_callback(lambda lost: self._again())

    def _again(self) -> None:
        if self._is_over:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._tries < TRIES:
            self._timer = self._runtime.loop.call_later(PAUSE_SECONDS, self._try)
        else:
            # Something takes connections there and does not keep them: a proxy of a container, for one.
            self._end(PortVerdict.ACCEPTED)
