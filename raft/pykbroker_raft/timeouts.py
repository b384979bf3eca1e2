"""The times after which a replica of the quorum gives up waiting; pure.

Invariant: an election timeout is between one and two times controller.quorum.election.timeout.ms. So voters that lose
their leader at the same time do not all stand for election at the same time.
"""

from __future__ import annotations

import random

from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.ready import Now


class Timeouts:
    """The timeouts of one replica. `chance` is the only source of random numbers."""

    __slots__ = ("_chance", "_config")

    def __init__(self, config: RaftConfig, chance: random.Random) -> None:
        self._config = config
        self._chance = chance

    def election_deadline_ms(self, now: Now) -> int:
        """Return the end of a new election timeout, which is random."""
        timeout = self._config.election_timeout_ms
        return now.steady_ms + (timeout + self._chance.randrange(timeout) if timeout > 0 else 0)

    def check_quorum_deadline_ms(self, now: Now) -> int:
        """Return the time at which a leader must resign if no majority fetches from it."""
        return now.steady_ms + self._config.fetch_timeout_ms * 3 // 2
