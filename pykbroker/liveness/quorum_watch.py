"""Find out that no controller can be elected: so many voters refuse connections that the others are no majority.

A broker asks while it waits for the controller's permission to stop. When all nodes of a cluster are stopped at once,
the last ones have no controller. Without this watch they would wait until their session is over. Decision 23 says why a
refusal proves a death, and what does not.

Most voters also refuse while they restart together, and then a controller comes back. A broker that leads a partition
which another broker could lead waits for that controller. If it stopped at once, the partition would have no leader
until the new controller notices. When all nodes stop at once the voters stay away, and a longer wait gains nothing.

Responsible for the rounds of probes. Not responsible for what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.liveness.prober import PortVerdict, Prober, RunningProbes
from pykbroker.runtime import Runtime
from pykbroker_raft.voters import VoterSet

#: With a controller, a controlled shutdown is over sooner, so that most shutdowns need no probe.
FIRST_SECONDS = 0.5
#: From the end of a round to the next.
EVERY_SECONDS = 0.2
#: Voters that restart listen again within this time, also those of Apache Kafka.
RESTART_SECONDS = 4.0


class QuorumWatch:
    """Rounds of probes until `then` is called, once, or until `close`. If this node is one of `voters`, it is alive."""

    def __init__(
        self,
        runtime: Runtime,
        prober: Prober,
        node_id: int,
        voters: Callable[[], VoterSet],
        has_heirs: Callable[[], bool],
        then: Callable[[], object],
    ) -> None:
        """`has_heirs` returns True while another broker could lead a partition that this one leads."""
        self._runtime = runtime
        self._node_id = node_id
        self._voters = voters
        self._has_heirs = has_heirs
        self._then = then
        #: by the id of the voter
        self._probes: RunningProbes[int] = RunningProbes(prober)
        self._refused = 0
        # The time of the first of the consecutive rounds in which most voters have refused.
        self._refused_since: float | None = None
        self._timer: asyncio.TimerHandle | None = runtime.loop.call_later(FIRST_SECONDS, self._round)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._probes.close()

    def _round(self) -> None:
        self._refused = 0
        for voter in self._voters():
            if voter.key.id != self._node_id and voter.endpoints:
                point = voter.endpoints[0]
                self._probes.begin(voter.key.id, (point.host, point.port), self._probed)
        self._end_of_round()

    def _probed(self, verdict: PortVerdict) -> None:
        self._refused += verdict is PortVerdict.REFUSED
        self._end_of_round()

    def _end_of_round(self) -> None:
        if self._probes:
            return
        voters = len(self._voters())
        if voters and voters - self._refused <= voters // 2:
            now = self._runtime.loop.time()
            if self._refused_since is None:
                self._refused_since = now
            if now - self._refused_since >= RESTART_SECONDS or not self._has_heirs():
                self.close()
                self._then()
                return
        else:
            self._refused_since = None
        self._timer = self._runtime.loop.call_later(EVERY_SECONDS, self._round)
