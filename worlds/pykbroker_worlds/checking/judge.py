"""When claims are judged, and how a failure is raised.

Responsible for the time that an application has to come to its end, and for `Broken`. Not responsible for what a claim
means (claims.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from pykbroker_worlds.checking.claims import Claim, Wrong
from pykbroker_worlds.checking.conversations import Conversations
from pykbroker_worlds.checking.evidence import Effect, Evidence, logs_of
from pykbroker_worlds.checking.story import last_state, tell
from pykbroker_worlds.simulated.sim_cluster import SimCluster

#: Virtual seconds after everything has come, in which something may be done again.
_SETTLE_SECONDS: Final = 12.0
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.25, 8.0


class Broken(AssertionError):
    """A claim does not hold. The text is the story of it."""

    def __init__(self, claim: Claim, story: str) -> None:
        super().__init__(story)
        self.claim = claim


class Judge:
    """Holds the claims of a world. `insist` waits until they hold, or raises Broken."""

    def __init__(self, cluster: SimCluster, conversations: Conversations, effects: Sequence[Effect]) -> None:
        self.claims: list[Claim] = []
        #: virtual seconds that an application has after the scenario
        self.within_seconds = 120.0
        self._cluster = cluster
        self._conversations = conversations
        self._effects = effects

    def _evidence(self, until: float) -> Evidence:
        logs = logs_of(self._cluster, lambda topic: not topic.startswith("__"))
        return Evidence(self._effects, self._conversations, logs, self._cluster.world.loop.time(), until)

    async def insist(self, check: Callable[[], None]) -> None:
        """Wait until every claim holds, and for some time more. `check` raises if an application failed. Raises
        Broken."""
        if not self.claims:
            return
        loop = self._cluster.world.loop
        began, look, has_settled = loop.time(), _FIRST_LOOK_SECONDS, False
        while True:
            found = self._first_wrong(began)
            if found is None and has_settled:
                return
            if found is None:
                has_settled = True
                await asyncio.sleep(_SETTLE_SECONDS)
            else:
                claim, wrong = found
                if not wrong.may_come or loop.time() >= began + self.within_seconds:
                    await self._raise(claim, wrong)
                await asyncio.sleep(look)
                look = min(2 * look, _LAST_LOOK_SECONDS)
            check()

    def _first_wrong(self, until: float) -> tuple[Claim, Wrong] | None:
        """Return what is wrong for good, else what may still come, else None."""
        evidence = self._evidence(until)
        waiting = None
        for claim in self.claims:
            wrong = claim.judge(evidence)
            if wrong is not None and not wrong.may_come:
                return claim, wrong
            if wrong is not None:
                waiting = waiting or (claim, wrong)
        return waiting

    async def _raise(self, claim: Claim, wrong: Wrong) -> None:
        state = await last_state(self._cluster, self._conversations)
        raise Broken(claim, tell(claim, wrong, self._cluster.world.story, self._conversations, state))
