"""When claims are judged, and how a failure is raised.

Responsible for the time that an application has to come to its end, and for `ClaimFailed`. Not responsible for what a
claim means (claims.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from pykbroker_worlds.checking.claims import Claim, Followed, Wrong
from pykbroker_worlds.checking.conversations import Conversations
from pykbroker_worlds.checking.evidence import Effect, Evidence, NotReadable, topics_of
from pykbroker_worlds.checking.leaders import Leaders
from pykbroker_worlds.checking.story import last_state, story_of
from pykbroker_worlds.history.events import Place
from pykbroker_worlds.simulated.sim_cluster import SimCluster

#: Virtual seconds after everything has come, in which something may be done again.
_SETTLE_SECONDS: Final = 12.0
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.25, 8.0


class ClaimFailed(AssertionError):
    """A claim does not hold. The text is the story of it."""

    def __init__(self, claim: Claim, wrong: Wrong, story: str) -> None:
        super().__init__(story)
        self.claim = claim
        self.wrong = wrong


class Judge:
    """Holds the claims of a world. `insist` waits until they hold, or raises ClaimFailed."""

    def __init__(
        self, cluster: SimCluster, conversations: Conversations, leaders: Leaders, effects: Sequence[Effect]
    ) -> None:
        self.claims: list[Claim] = []
        self._within_seconds = 0.0
        self._cluster = cluster
        self._conversations = conversations
        self._leaders = leaders
        self._effects = effects

    def add(self, claims: Sequence[Claim], within_seconds: float) -> None:
        """`within_seconds`: the virtual time that applications have after the scenario. The longest one counts."""
        self.claims += claims
        longest = [claim.within_seconds for claim in claims if isinstance(claim, Followed)]
        self._within_seconds = max(self._within_seconds, within_seconds, *longest)

    async def insist(self, check: Callable[[], None]) -> None:
        """Wait until every claim holds, and for some time more. `check` raises if an application failed. Raises
        ClaimFailed."""
        loop = self._cluster.world.loop
        began, look, has_settled = loop.time(), _FIRST_LOOK_SECONDS, False
        ends: dict[Place, int] = {}
        while True:
            found = await self._first_wrong(began, ends)
            if found is None and has_settled:
                return
            if found is None:
                has_settled = True
                await asyncio.sleep(_SETTLE_SECONDS)
            else:
                claim, wrong = found
                if not wrong.may_come or loop.time() > began + self._within_seconds:
                    state = await last_state(self._cluster, self._conversations)
                    events = self._cluster.world.story
                    story = story_of(claim, wrong, events, self._effects, self._conversations, self._leaders, state)
                    raise ClaimFailed(claim, wrong, story)
                await asyncio.sleep(look)
                look = min(2 * look, _LAST_LOOK_SECONDS)
            check()

    async def _first_wrong(self, until: float, ends: dict[Place, int]) -> tuple[Claim, Wrong] | None:
        """Return what is wrong for good, else what may still come, else None."""
        now = self._cluster.world.loop.time()
        evidence = Evidence(self._effects, self._conversations, topics_of(self._cluster), now, until, ends)
        waiting = None
        for claim in self.claims:
            try:
                wrong = claim.judge(evidence)
            except NotReadable as error:
                wrong = Wrong("not readable", str(error), (), may_come=True)
            if wrong is not None and not wrong.may_come:
                return claim, wrong
            if wrong is not None:
                waiting = waiting or (claim, wrong)
            # A callback of its own for each: a long one would be taken for stuck.
            await asyncio.sleep(0)
        return waiting
