"""The times after which a replica gives up waiting."""

from __future__ import annotations

import random

from pykbroker_raft.identity import RaftConfig
from pykbroker_raft.ready import Now
from pykbroker_raft.timeouts import Timeouts


def timeouts(seed: int = 7, election_timeout_ms: int = 1000) -> Timeouts:
    config = RaftConfig(1, b"d" * 16, "c", election_timeout_ms=election_timeout_ms, fetch_timeout_ms=2000)
    return Timeouts(config, random.Random(seed))


def test_election_timeouts_are_spread_over_one_to_two_times_the_key() -> None:
    found = timeouts()
    drawn = [found.election_deadline_ms(Now(0, 0)) for _ in range(200)]
    assert 1000 <= min(drawn) < 1100
    assert 1900 < max(drawn) < 2000
    assert drawn == [again.election_deadline_ms(Now(0, 0)) for again in [timeouts()] for _ in range(200)]


def test_a_timeout_of_zero_draws_nothing() -> None:
    assert timeouts(election_timeout_ms=0).election_deadline_ms(Now(0, 0)) == 0


def test_a_leader_waits_for_one_and_a_half_fetch_timeouts() -> None:
    assert timeouts().check_quorum_deadline_ms(Now(500, 0)) == 3500
