"""One replica in an election; the test sends each vote."""

from __future__ import annotations

from pykbroker_raft import rpc
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.raft_node import Inbound, RaftNode
from pykbroker_raft.ready import Now, Outgoing
from pykbroker_raft.states import Candidate, Role
from pykbroker_wire.errors import ErrorCode
from tests.raft.test_states import key, node


def refuse(subject: RaftNode, outgoing: Outgoing, now: Now) -> None:
    """Answer for a voter that gave its vote of this epoch to another candidate."""
    answer = rpc.vote_response(2, ErrorCode.NONE, -1, subject.epoch, None, granted=False)
    subject.response(outgoing.correlation_id, outgoing.destination, answer, now)


def test_a_candidate_that_lost_waits_out_its_timeout() -> None:
    """It asked for pre-votes in the same millisecond, and so deposed the leader that had just been elected."""
    subject = node(ElectionState(5, voted=key(1)))
    subject.start(Now(0, 0))
    candidate = subject.state
    assert isinstance(candidate, Candidate)
    requests = subject.ready().requests
    assert len(requests) == 2
    for outgoing in requests:
        refuse(subject, outgoing, Now(3, 3))
    assert candidate.votes.lost
    assert subject.state is candidate
    assert subject.deadline_ms == candidate.election_deadline_ms
    last = Now(candidate.election_deadline_ms - 1, 0)
    subject.tick(last)
    assert subject.state is candidate
    assert subject.ready().requests == []
    subject.tick(Now(candidate.election_deadline_ms, 0))
    assert subject.state.role is Role.PROSPECTIVE
    assert subject.epoch == candidate.epoch


def resigned() -> RaftNode:
    """Voter 1, which led epoch 5 before its restart."""
    subject = node(ElectionState(5, leader_id=1), log=LogView(0, 10, 10, [(5, 0)]))
    subject.start(Now(0, 0))
    assert subject.state.role is Role.RESIGNED
    return subject


def grants(subject: RaftNode, end: OffsetAndEpoch, epoch: int, pre_vote: bool) -> bool:
    """Ask for a vote as voter 2, whose log ends at `end`. Return whether it is granted."""
    request = rpc.vote_request("cluster", key(2), epoch, key(1), end, pre_vote)
    subject.receive(Inbound(1, request, request.MAX_VERSION, "CONTROLLER"), Now(1, 1))
    partition = subject.ready().replies[-1].response.topics[0].partitions[0]
    assert partition.error_code == ErrorCode.NONE
    granted: bool = partition.vote_granted
    return granted


def test_a_resigned_leader_grants_pre_votes_to_an_up_to_date_log() -> None:
    """As in Apache Kafka. A resigned leader refused them, and two voters had no controller until its election
    timeout."""
    subject = resigned()
    assert grants(subject, OffsetAndEpoch(10, 5), 5, pre_vote=True)
    assert subject.state.role is Role.RESIGNED
    assert subject.epoch == 5


def test_a_resigned_leader_refuses_a_pre_vote_to_a_shorter_log() -> None:
    assert not grants(resigned(), OffsetAndEpoch(9, 5), 5, pre_vote=True)


def test_a_resigned_leader_votes_in_the_next_epoch_only() -> None:
    """It has given the vote of its own epoch to itself."""
    subject = resigned()
    assert not grants(subject, OffsetAndEpoch(10, 4), 5, pre_vote=False)
    assert grants(subject, OffsetAndEpoch(10, 5), 6, pre_vote=False)
