"""Whether no controller can come any more: so many voters refuse connections that the others are no majority.

Asked by a broker that waits for the controller's leave to stop. When all nodes of a cluster are told to stop at once,
the last ones have no controller; without this they wait until their session would be over. Decision 23 says why a
refusal is as good as a death notice, and what else is not.

Responsible for the rounds of probes. Not responsible for what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pykbroker.net.probe import PortProbe, PortVerdict
from pykbroker.runtime import Runtime
from pykbroker_raft.voters import VoterSet

#: A controlled shutdown is over sooner where there is a controller: most are never watched.
FIRST_SECONDS = 0.5
#: From the end of a round to the next.
EVERY_SECONDS = 0.2


class QuorumWatch:
    """Rounds of probes until `then` is called, once, or until `close`. Of `voters` this node is alive, if it is one."""

    def __init__(
        self, runtime: Runtime, node_id: int, voters: Callable[[], VoterSet], then: Callable[[], object]
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._voters = voters
        self._then = then
        self._probes: dict[int, PortProbe] = {}
        self._refused = 0
        self._timer: asyncio.TimerHandle | None = runtime.loop.call_later(FIRST_SECONDS, self._round)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for probe in self._probes.values():
            probe.cancel()
        self._probes.clear()

    def _round(self) -> None:
        self._refused = 0
        for voter in self._voters():
            if voter.key.id != self._node_id and voter.endpoints:
                point = voter.endpoints[0]
                told = partial(self._probed, voter.key.id)
                self._probes[voter.key.id] = PortProbe(self._runtime, point.host, point.port, told)
        self._end_of_round()

    def _probed(self, number: int, verdict: PortVerdict) -> None:
        del self._probes[number]
        self._refused += verdict is PortVerdict.REFUSED
        self._end_of_round()

    def _end_of_round(self) -> None:
        if self._probes:
            return
        voters = len(self._voters())
        if voters and voters - self._refused <= voters // 2:
            self.close()
            self._then()
        else:
            self._timer = self._runtime.loop.call_later(EVERY_SECONDS, self._round)
