"""Peers that are gone: this node has lost a connection to such a peer, and the peer refuses a new connection or does
not come back.

When a process dies, its sockets are closed. Then its port refuses connections, or its address no longer exists (a
container). Three kinds of peers do not count as gone: a peer that takes a new connection, a silent peer whose
connection this node has ended, and a peer to which this node had no connection.

Responsible for the probe right after the loss. Other parts that try to connect to the same peer report its later
refusals. Not responsible for the reaction when a peer is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.liveness.peer_ends import AGAIN_MS, LATE_MS, RETURN_MS
from pykbroker.liveness.prober import PortVerdict, Prober, RunningProbes
from pykbroker.net.client import PeerAddress
from pykbroker.runtime import Runtime

#: The port of a process that has died refuses a new connection within this time.
DOUBT_SECONDS = 0.1
#: The effect of a refusal ends after this time. By then a broker's session is over, because the default of
#: broker.session.timeout.ms is 9 s.
GONE_SECONDS = 10.0
#: If the timer for a peer's return fires late by more than this time, the decision waits, because this node may not yet
#: have read the bytes that arrived in the meantime.
_LATE_SECONDS = LATE_MS / 1000


class LostPeers:
    """The lost peers of one event loop: a PeerWatch (net/client.py). Each callback gets the address of the peer.

    * `doubted` is called when a connection is lost, and `settled` after DOUBT_SECONDS at most. Between the two calls it
      is unknown if the peer is gone.
    * `gone` is called each time that a lost peer refuses a connection. It is also called once for a peer that ended its
      connection, takes no new connection, and is not back after RETURN_MS.
    * `left` is called once before `gone`, if the peer itself ended its connection.
    * `back` is called when a peer that was gone answers again, or has not refused for GONE_SECONDS.
    """

    def __init__(
        self,
        runtime: Runtime,
        prober: Prober,
        gone: Callable[[PeerAddress], object],
        back: Callable[[PeerAddress], object] = lambda _: None,
        doubted: Callable[[PeerAddress], object] = lambda _: None,
        settled: Callable[[PeerAddress], object] = lambda _: None,
        left: Callable[[PeerAddress], object] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._gone = gone
        self._back = back
        self._doubted = doubted
        self._settled = settled
        self._left = left
        #: peers that ended their connection and may come back, each with the timer after which it counts as gone
        self._away: dict[PeerAddress, asyncio.TimerHandle] = {}
        #: peers of which it is unknown if they are gone, each with the timer that ends the doubt without a verdict
        self._doubts: dict[PeerAddress, asyncio.TimerHandle] = {}
        #: peers that were lost and have not been ready since, each with the timer that ends the effect of its last
        #: refusal, or None if no refusal has an effect
        self._lost: dict[PeerAddress, asyncio.TimerHandle | None] = {}
        self._probes: RunningProbes[PeerAddress] = RunningProbes(prober)
        self._is_closed = False

    def ready(self, address: PeerAddress) -> None:
        self._forget(address)
        self._lost.pop(address, None)
        self._probes.end(address)
        self._end_wait(address)
        self._settle(address)

    def lost(self, address: PeerAddress, by_peer: bool) -> None:
        if self._is_closed:
            return
        self._lost.setdefault(address, None)
        if by_peer and address not in self._away:
            self._wait_for(address, RETURN_MS / 1000)
        if address not in self._probes:
            self._settle(address)
            self._doubts[address] = self._runtime.loop.call_later(DOUBT_SECONDS, self._settle, address)
            self._doubted(address)
            # Probe at once, because the parts that need the connection pause before they connect again.
            self._probes.begin(address, address, lambda verdict: self._probed(address, verdict))

    def refused(self, address: PeerAddress) -> None:
        if address in self._lost and not self._is_closed:
            counts = self._lost[address]
            if counts is not None:
                counts.cancel()
            self._lost[address] = self._runtime.loop.call_later(GONE_SECONDS, self._forget, address)
            self._probes.end(address)
            if self._end_wait(address):
                self._left(address)
            self._gone(address)
            self._settle(address)

    def close(self) -> None:
        self._is_closed = True
        for address in list(self._doubts):
            self._settle(address)
        for counts in self._lost.values():
            if counts is not None:
                counts.cancel()
        self._probes.close()
        for address in list(self._away):
            self._end_wait(address)

    def _wait_for(self, address: PeerAddress, seconds: float) -> None:
        due = self._runtime.loop.time() + seconds
        self._away[address] = self._runtime.loop.call_at(due, self._not_back, address, due)

    def _not_back(self, address: PeerAddress, due: float) -> None:
        if self._runtime.loop.time() - due > _LATE_SECONDS:
            self._wait_for(address, AGAIN_MS / 1000)
        else:
            self.refused(address)

    def _end_wait(self, address: PeerAddress) -> bool:
        """Stop waiting for the peer to come back. Return False if there was no such wait."""
        away = self._away.pop(address, None)
        if away is not None:
            away.cancel()
        return away is not None

    def _probed(self, address: PeerAddress, verdict: PortVerdict) -> None:
        if verdict is PortVerdict.REFUSED:
            self.refused(address)
        elif verdict is PortVerdict.ACCEPTED:
            self._end_wait(address)
        self._settle(address)

    def _forget(self, address: PeerAddress) -> None:
        """End the effect of the refusal of this peer."""
        counts = self._lost.get(address)
        if counts is not None:
            counts.cancel()
            self._lost[address] = None
            self._back(address)

    def _settle(self, address: PeerAddress) -> None:
        doubt = self._doubts.pop(address, None)
        if doubt is not None:
            doubt.cancel()
            self._settled(address)
