"""A leader whose process is gone: its followers elect another one at once, by the usual rules."""

from __future__ import annotations

import pytest

from pykbroker_raft import rpc
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.leader_refusal import SPREAD_MS
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.raft_node import Inbound, RaftNode
from pykbroker_raft.ready import Now
from pykbroker_raft.states import Follower, Role
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import FetchRequest
from pykbroker_wire.messages.vote import VoteRequest
from tests.raft.simulation import Faults, SimNode, Simulation
from tests.raft.test_states import VOTERS, key, node

CALM = Faults(0, 0, 0, 0, 0, 0)


def follower(voters: VoterSet = VOTERS) -> RaftNode:
    """Voter 1, which follows 2 and has received a response from it in epoch 5."""
    subject = node(ElectionState(5, leader_id=2), voters)
    subject.start(Now(0, 0))
    answer(subject, Now(1, 1))
    return subject


def answer(subject: RaftNode, now: Now) -> None:
    """Answer the fetch that is under way, as the leader."""
    outgoing = next(each for each in subject.ready().requests if isinstance(each.request, FetchRequest))
    response = rpc.fetch_response(outgoing.request.MAX_VERSION, ErrorCode.NONE, 2, 5, None, 0, 0)
    subject.response(outgoing.correlation_id, outgoing.destination, response, now)
    assert isinstance(subject.state, Follower)
    assert subject.state.has_fetched


def role(subject: RaftNode) -> Role:
    return subject.state.role


def asks_for_vote(subject: RaftNode, now: Now) -> bool:
    """Ask for a pre-vote as voter 3. Return whether it is granted."""
    request = rpc.vote_request("cluster", key(3), subject.epoch, key(1), OffsetAndEpoch(0, 0), True)
    subject.receive(Inbound(1, request, request.MAX_VERSION, "CONTROLLER"), now)
    reply = subject.ready().replies[-1]
    granted: bool = reply.response.topics[0].partitions[0].vote_granted
    return granted


def test_a_refused_voter_stands_for_election_in_a_random_while() -> None:
    subject = follower()
    subject.leader_refused(2, 5, Now(10, 10))
    assert role(subject) is Role.FOLLOWER
    subject.tick(Now(10 + SPREAD_MS, 0))
    assert role(subject) is Role.PROSPECTIVE
    assert subject.epoch == 5
    asked = [each.request for each in subject.ready().requests if isinstance(each.request, VoteRequest)]
    assert asked
    assert all(each.topics[0].partitions[0].pre_vote for each in asked)


def test_a_refused_voter_grants_pre_votes() -> None:
    subject = follower()
    assert not asks_for_vote(subject, Now(9, 9))
    subject.leader_refused(2, 5, Now(10, 10))
    assert asks_for_vote(subject, Now(10, 10))


def test_a_voter_that_let_another_stand_waits_for_the_outcome() -> None:
    """Two candidates of one epoch would split the votes."""
    subject = follower()
    subject.leader_refused(2, 5, Now(10, 10))
    assert asks_for_vote(subject, Now(10, 10))
    subject.tick(Now(10 + SPREAD_MS - 1, 0))
    assert role(subject) is Role.FOLLOWER
    subject.tick(Now(10 + 2 * SPREAD_MS, 0))
    assert role(subject) is Role.PROSPECTIVE


@pytest.mark.parametrize(("leader", "epoch"), [(3, 5), (2, 4), (2, 6)])
def test_news_of_another_leader_change_nothing(leader: int, epoch: int) -> None:
    subject = follower()
    subject.leader_refused(leader, epoch, Now(10, 10))
    assert not asks_for_vote(subject, Now(10, 10))
    subject.tick(Now(10 + SPREAD_MS, 0))
    assert role(subject) is Role.FOLLOWER


def test_a_second_report_does_not_put_the_election_off() -> None:
    subject = follower()
    for now_ms in range(10, 10 + SPREAD_MS + 1, 10):
        subject.leader_refused(2, 5, Now(now_ms, 0))
    subject.tick(Now(10 + SPREAD_MS, 0))
    assert role(subject) is Role.PROSPECTIVE


def test_an_answer_of_the_leader_takes_everything_back() -> None:
    subject = follower()
    subject.leader_refused(2, 5, Now(10, 10))
    answer(subject, Now(10, 10))
    subject.tick(Now(10 + 2 * SPREAD_MS, 0))
    assert role(subject) is Role.FOLLOWER
    assert not asks_for_vote(subject, Now(10 + 2 * SPREAD_MS, 0))


def test_an_observer_stands_for_nothing() -> None:
    subject = follower(VoterSet.of([VOTERS.voters[1], VOTERS.voters[2]]))
    subject.leader_refused(2, 5, Now(10, 10))
    subject.tick(Now(10 + SPREAD_MS, 0))
    assert role(subject) is Role.FOLLOWER


def the_leader(run: Simulation) -> SimNode | None:
    return next((each for each in run.nodes.values() if each.raft is not None and each.raft.is_leader), None)


@pytest.mark.slow
@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_leader_is_replaced_long_before_the_fetch_timeout(seed: int, voters: int) -> None:
    run = Simulation(700 + seed, voters=voters, observers=0, faults=CALM)
    assert run.run_until(lambda: len(run.acknowledged) > 10, 20_000)
    leader = the_leader(run)
    assert leader is not None
    run.crash(leader)
    before = run.now_ms
    for other in run.nodes.values():
        if other is not leader:
            # Data from the leader arrives before the end of its connection.
            run.at(run.chance.randrange(10, 20), lambda other=other: run.report_refusal(other))  # type: ignore[misc]
    assert run.run_until(lambda: the_leader(run) is not None, 20_000)
    # After split votes a candidate waits for a timeout of a second; here the votes never split.
    assert run.now_ms - before < 2 * SPREAD_MS
    run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_quorum_survives_wrong_reports(seed: int) -> None:
    """Flapping ports, and firewalls that refuse connections: a report is never more than a reason to ask for votes."""
    faults = Faults(drop=0.05, repeat=0.05, slow=0.1, crash=0.006, partition=0.006, snapshot=0.02, refusal=0.2)
    run = Simulation(8000 + seed, voters=3, observers=1, faults=faults)
    run.run(2500)
    run.finish()
