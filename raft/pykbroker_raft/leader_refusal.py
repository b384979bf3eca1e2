"""A leader whose process is gone: its fetch connection ended, and its port refuses a new connection.

Responsible for two timers of a voter that follows such a leader; votes, epochs and logs follow their usual rules.
Apache Kafka waits for controller.quorum.fetch.timeout.ms in this case. In pykbroker the follower grants pre-votes at
once, and stands for election after a random delay. A follower that has granted a pre-vote to another voter waits for
that election: two candidates of one epoch would split the votes, and wait for an election timeout.

Not responsible for detecting the refusal. A wrong report does no harm: the next response of the leader undoes both
changes.
"""

from __future__ import annotations

import random

from pykbroker_raft.current_role import CurrentRole
from pykbroker_raft.ready import Now
from pykbroker_raft.states import Follower

#: The longest delay before a voter stands for election.
SPREAD_MS = 200


class LeaderRefusal:
    """Acts for one replica; without state of its own."""

    def __init__(self, chance: random.Random, roles: CurrentRole) -> None:
        self._chance = chance
        self._roles = roles

    def refused(self, leader_id: int, epoch: int, now: Now) -> None:
        """Record that the leader of this epoch refuses connections. Does nothing unless this voter follows it."""
        state = self._roles.state
        if not isinstance(state, Follower) or (state.leader_id, state.epoch) != (leader_id, epoch):
            return
        if self._roles.is_voter and (state.has_fetched or state.fetch_deadline_ms > now.steady_ms + SPREAD_MS):
            state.leader_left(now.steady_ms + self._chance.randrange(SPREAD_MS + 1))

    def let_stand(self, now: Now) -> None:
        """Wait longer, because a pre-vote was granted to another voter."""
        state = self._roles.state
        if isinstance(state, Follower):
            later = now.steady_ms + SPREAD_MS + self._chance.randrange(SPREAD_MS + 1)
            state.wait_for_leader_until(max(state.fetch_deadline_ms, later))
