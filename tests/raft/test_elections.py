"""One replica in an election, told of each vote by hand."""

from __future__ import annotations

from pykbroker_raft import rpc
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.raft_node import RaftNode
from pykbroker_raft.ready import Now, Outgoing
from pykbroker_raft.states import Candidate, Role
from pykbroker_wire.errors import ErrorCode
from tests.raft.test_states import key, node


def refuse(subject: RaftNode, outgoing: Outgoing, now: Now) -> None:
    """The answer of a voter that gave its vote of this epoch to another candidate."""
    answer = rpc.vote_response(2, ErrorCode.NONE, -1, subject.epoch, None, granted=False)
    subject.response(outgoing.correlation_id, outgoing.destination, answer, now)


def test_b5_a_candidate_that_lost_waits_out_its_timeout() -> None:
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
    assert subject.role is Role.PROSPECTIVE
    assert subject.epoch == candidate.epoch
