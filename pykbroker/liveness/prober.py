"""A probe finds out if a peer still accepts connections: it makes one TCP connection, and closes it.

A process that ends closes its sockets one after the other. One of its connections may end before its port refuses, and
the kernel resets the connections that the port has accepted in between. So if a probe's connection soon ends, the probe
connects again. A peer that neither accepts nor refuses a connection is silent. Its machine is off, its network is cut,
or a filter drops the packets.

Each event loop of a node has one `Prober`. Each part that probes has `RunningProbes` of its own, which use that prober.
Two parts never share a probe. A probe that began earlier may have found the peer alive before the second part needed
the verdict.

Responsible for verdicts about addresses. Not responsible for what follows from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Generic, TypeVar, cast

from pykbroker.net.client import PeerAddress
from pykbroker.runtime import Runtime

K = TypeVar("K", bound=Hashable)

#: A peer that has neither accepted nor refused a connection after this time is silent.
PATIENCE_SECONDS = 1.0
#: A process that is alive does not end a connection within this time.
LASTS_SECONDS = 0.05
#: When this many connections have ended early, the peer counts as ACCEPTED. PAUSE_SECONDS is the pause between them.
TRIES = 5
PAUSE_SECONDS = 0.005


class PortVerdict(Enum):
    """The result of a probe."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    #: The peer has not answered in time, or there was any other error.
    SILENT = "silent"


class _Held(asyncio.Protocol):
    """A connection that sends nothing. `lost` is done when the connection ends."""

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
    """Calls `then` with one verdict about the address, unless the probe is cancelled before."""

    def __init__(self, runtime: Runtime, address: PeerAddress, then: Callable[[PortVerdict], object]) -> None:
        self._runtime = runtime
        self._host, self._port = address
        self._then = then
        self._tries = 0
        self._held: _Held | None = None
        self._attempt: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._patience = runtime.loop.call_later(PATIENCE_SECONDS, self._end, PortVerdict.SILENT)
        self._try()

    def cancel(self) -> None:
        """End the probe without a call of `then`."""
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
            # The peer accepted the connection, and reset it before this side had the result.
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
            # Something at the address accepts connections and ends them soon, for example a proxy of a container.
            self._end(PortVerdict.ACCEPTED)


class RunningProbes(Generic[K]):
    """The running probes of one part, at most one for each key."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober
        self._running: dict[K, PortProbe] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._running

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, key: K, address: PeerAddress, then: Callable[[PortVerdict], object]) -> None:
        """Probe the address, and end an earlier probe of the same key. `then` is called once with the verdict, later,
        unless the probe is ended before."""

        def found(verdict: PortVerdict) -> None:
            del self._running[key]
            then(verdict)

        self.end(key)
        self._running[key] = self._prober.begin(address, found)

    def end(self, key: K) -> None:
        """End the probe without a verdict, if it runs."""
        probe = self._running.pop(key, None)
        if probe is not None:
            probe.cancel()

    def close(self) -> None:
        """End all probes."""
        for key in list(self._running):
            self.end(key)


class Prober:
    """The prober of one event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def begin(self, address: PeerAddress, then: Callable[[PortVerdict], object]) -> PortProbe:
        return PortProbe(self._runtime, address, then)
