"""A voter that is to stand at its start begins an election, if it would wait for a leader."""

from __future__ import annotations

import pytest

from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.ready import Now
from pykbroker_raft.states import Role
from tests.raft.test_states import VOTERS, key, node


@pytest.mark.parametrize(
    ("stored", "after"),
    [
        (ElectionState(5), Role.PROSPECTIVE),
        (ElectionState(5, voted=key(2)), Role.PROSPECTIVE),
        # A follower has no answer of its leader yet, which may have ended together with it.
        (ElectionState(5, leader_id=2), Role.PROSPECTIVE),
        # This voter led in epoch 5, and may have lost records that it did not fsync.
        (ElectionState(5, leader_id=1), Role.RESIGNED),
        (ElectionState(5, voted=key(1)), Role.CANDIDATE),
    ],
)
def test_a_voter_that_has_just_started(stored: ElectionState, after: Role) -> None:
    subject = node(stored)
    subject.start(Now(0, 0), stands=True)
    assert subject.state.role is after
    # A pre-vote raises no epoch.
    assert subject.epoch == 5


def test_a_replica_that_is_no_voter_does_not_stand() -> None:
    others = VOTERS.removed(key(1))
    assert others is not None
    subject = node(ElectionState(5), others)
    subject.start(Now(0, 0), stands=True)
    assert subject.state.role is Role.UNATTACHED
