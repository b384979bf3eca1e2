"""Finds out that no controller can be elected: so many voters refuse connections that the other voters are not a
majority.

A broker uses it while it waits for the controller's permission to stop. When all nodes of a cluster are stopped at
once, the last nodes have no controller. Without this watch they would wait until their session is over. Decision 23
explains why a refusal proves that a process has ended, and which signs do not prove it.

Voters that restart together also refuse for a short time, and then there is a controller again. So this broker waits
for that controller while it leads a partition that another broker could lead. If it stopped at once, the partition
would have no leader until the new controller noticed that. When all nodes stop at once, the voters do not come back,
and a longer wait gains nothing.

Responsible for the rounds of probes. Not responsible for stopping the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.liveness.prober import PortVerdict, Prober, RunningProbes
from pykbroker.runtime import Runtime
from pykbroker_raft.voters import VoterSet

#: The first round begins after this time. A controlled shutdown with a controller is over before, so most shutdowns
#: need no probe.
FIRST_SECONDS = 0.5
#: The time from the end of a round to the next round.
EVERY_SECONDS = 0.2
#: Voters that restart accept connections again within this time, also voters that run Apache Kafka.
RESTART_SECONDS = 4.0


class QuorumWatch:
    """Rounds of probes, until `then` is called once, or until `close`. If this node is one of `voters`, it counts as
    alive."""

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
        #: voter id -> its probe in the present round
        self._probes: RunningProbes[int] = RunningProbes(prober)
        self._refused = 0
        # The end of the first of the consecutive rounds in which the voters that do not refuse are not a majority, or
        # None.
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
