"""The table of transitions, and the first state of a replica for each quorum-state."""

from __future__ import annotations

import random

import pytest

from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import LogView
from pykbroker_raft.majority import QuorumReplicas, Tally
from pykbroker_raft.raft_node import RaftConfig, RaftNode
from pykbroker_raft.ready import Now
from pykbroker_raft.states import (
    TRANSITIONS,
    VOTERS_ONLY,
    Candidate,
    Follower,
    IllegalTransition,
    Leader,
    Prospective,
    Resigned,
    Role,
    State,
    Unattached,
    check_transition,
)
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterNode, VoterSet

LISTENER = "CONTROLLER"


def key(id: int) -> ReplicaKey:
    return ReplicaKey(id, bytes([id]) * 16)


VOTERS = VoterSet.of(VoterNode(key(id), (Endpoint(LISTENER, f"host{id}", 9093),)) for id in (1, 2, 3))


def state(role: Role, epoch: int) -> State:
    match role:
        case Role.UNATTACHED:
            return Unattached(epoch)
        case Role.PROSPECTIVE:
            return Prospective(epoch, Tally.of(VOTERS, 1), 0)
        case Role.CANDIDATE:
            return Candidate(epoch, Tally.of(VOTERS, 1), 0, key(1))
        case Role.LEADER:
            return Leader(epoch, 1, 0, QuorumReplicas.of(key(1), VOTERS), (1, 2), 0, 0)
        case Role.FOLLOWER:
            return Follower(epoch, 2, VOTERS.endpoints(2), 0, 0)
        case Role.RESIGNED:
            return Resigned(epoch, 1, [], {2, 3}, 0)


@pytest.mark.parametrize("old", list(Role))
@pytest.mark.parametrize("new", list(Role))
def test_transitions(old: Role, new: Role) -> None:
    if new in TRANSITIONS[old]:
        check_transition(state(old, 3), state(new, 4), may_stand=True)
    else:
        with pytest.raises(IllegalTransition):
            check_transition(state(old, 3), state(new, 4), may_stand=True)


@pytest.mark.parametrize("old", list(Role))
@pytest.mark.parametrize("new", list(Role))
def test_epoch_never_decreases(old: Role, new: Role) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(state(old, 3), state(new, 2), may_stand=True)


@pytest.mark.parametrize("new", sorted(VOTERS_ONLY, key=str))
@pytest.mark.parametrize("old", list(Role))
def test_observers_stand_for_nothing(old: Role, new: Role) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(state(old, 3), state(new, 4), may_stand=False)


@pytest.mark.parametrize("new", [Role.UNATTACHED, Role.FOLLOWER])
@pytest.mark.parametrize("old", [Role.LEADER, Role.RESIGNED])
def test_a_leader_follows_nobody_in_its_own_epoch(old: Role, new: Role) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(state(old, 3), state(new, 3), may_stand=True)


def test_a_vote_is_not_forgotten() -> None:
    with pytest.raises(IllegalTransition):
        check_transition(Unattached(3, voted=key(2)), Unattached(3, voted=key(3)), may_stand=True)


def node(stored: ElectionState | None, voters: VoterSet = VOTERS, log: LogView | None = None, id: int = 1) -> RaftNode:
    history = VoterHistory()
    history.reset(-1, voters, 1)
    config = RaftConfig(id, key(id).directory_id, "cluster", endpoints=(Endpoint(LISTENER, f"host{id}", 9093),))
    return RaftNode(config, random.Random(1), log or LogView(), history, stored)


@pytest.mark.parametrize(
    ("stored", "role", "epoch"),
    [
        (None, Role.UNATTACHED, 0),
        (ElectionState(5), Role.UNATTACHED, 5),
        (ElectionState(5, leader_id=1), Role.RESIGNED, 5),
        (ElectionState(5, leader_id=2), Role.FOLLOWER, 5),
        (ElectionState(5, leader_id=9), Role.UNATTACHED, 5),
        (ElectionState(5, voted=key(1)), Role.CANDIDATE, 5),
        (ElectionState(5, voted=key(2)), Role.UNATTACHED, 5),
        (ElectionState(5, leader_id=2, voted=key(2)), Role.FOLLOWER, 5),
    ],
)
def test_first_role(stored: ElectionState | None, role: Role, epoch: int) -> None:
    subject = node(stored)
    subject.start(Now(0, 0))
    assert (subject.state.role, subject.epoch) == (role, epoch)


def test_epoch_of_the_log_counts_when_quorum_state_is_behind() -> None:
    subject = node(ElectionState(2), log=LogView(0, 10, 10, [(1, 0), (4, 5)]))
    subject.start(Now(0, 0))
    assert (subject.state.role, subject.epoch) == (Role.UNATTACHED, 4)


def test_vote_in_quorum_state_is_kept() -> None:
    subject = node(ElectionState(5, voted=key(2)))
    subject.start(Now(0, 0))
    assert subject.state.voted == key(2)


@pytest.mark.parametrize(
    "stored", [None, ElectionState(7), ElectionState(7, leader_id=1), ElectionState(7, voted=key(1))]
)
def test_only_voter_leads_at_once_in_a_new_epoch(stored: ElectionState | None) -> None:
    subject = node(stored, VoterSet.of([VOTERS.voters[0]]))
    subject.start(Now(0, 0))
    assert subject.is_leader
    ready = subject.ready()
    before = 0 if stored is None else stored.epoch
    # A candidacy in quorum-state continues in its own epoch, as in Kafka.
    assert subject.epoch == (before if stored is not None and stored.voted is not None else before + 1)
    assert ready.election is not None
    assert (ready.election.epoch, ready.election.leader_id) == (subject.epoch, 1)
    assert subject.high_watermark is None
    subject.flushed(subject.log.end_offset, Now(1, 1))
    assert subject.high_watermark == 3
