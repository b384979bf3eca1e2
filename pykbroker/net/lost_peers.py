"""Which peers are gone: a connection to them was lost, and they refuse a new one.

A process that dies closes its sockets, and its port refuses. A peer that is silent, or that takes a connection, is not
gone here, and no peer is gone to which there was no connection. Responsible for the probe right after the loss; later
refusals of the same peer come from whatever tries to reach it. Not responsible for what a lost peer means.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.net.client import PeerAddress
from pykbroker.net.probe import PortProbe, PortVerdict
from pykbroker.runtime import Runtime


class LostPeers:
    """A PeerWatch (net/client.py). `gone` is told each time that a lost peer refuses, `back` when one of these answers
    again."""

    def __init__(
        self,
        runtime: Runtime,
        gone: Callable[[PeerAddress], object],
        back: Callable[[PeerAddress], object] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._gone = gone
        self._back = back
        #: lost, and not ready since; whether it has refused
        self._lost: dict[PeerAddress, bool] = {}
        self._probes: dict[PeerAddress, PortProbe] = {}
        self._is_closed = False

    def ready(self, address: PeerAddress) -> None:
        if self._lost.pop(address, False):
            self._back(address)
        self._end_probe(address)

    def lost(self, address: PeerAddress) -> None:
        if self._is_closed:
            return
        self._lost.setdefault(address, False)
        if address not in self._probes:
            # Now: whatever needs the connection waits before it connects again.
            self._probes[address] = PortProbe(self._runtime, *address, lambda verdict: self._probed(address, verdict))

    def refused(self, address: PeerAddress) -> None:
        if address in self._lost and not self._is_closed:
            self._lost[address] = True
            self._end_probe(address)
            self._gone(address)

    def close(self) -> None:
        self._is_closed = True
        for address in list(self._probes):
            self._end_probe(address)

    def _probed(self, address: PeerAddress, verdict: PortVerdict) -> None:
        del self._probes[address]
        if verdict is PortVerdict.REFUSED:
            self.refused(address)

    def _end_probe(self, address: PeerAddress) -> None:
        probe = self._probes.pop(address, None)
        if probe is not None:
            probe.cancel()
