"""UpdateRaftVoter: a voter moves to another address."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker_raft import rpc
from pykbroker_raft.log_view import LogView
from pykbroker_raft.raft_node import Inbound, RaftConfig, RaftNode
from pykbroker_raft.ready import Now
from pykbroker_raft.states import Leader
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode

KEY = ReplicaKey(1, b"1" * 16)
HOME = (Endpoint("CONTROLLER", "home", 1),)
AWAY = (Endpoint("CONTROLLER", "away", 2),)
TWO = (Endpoint("CONTROLLER", "home", 1), Endpoint("OTHER", "home", 3))


def leader(
    kraft_version: int = 1,
    endpoints: tuple[Endpoint, ...] = HOME,
    *,
    flushed: bool = True,
    known: tuple[Endpoint, ...] = HOME,
    known_at: int = -1,
) -> RaftNode:
    """The only voter. Its voter set has the endpoints `known` and is at the offset `known_at`."""
    voters = VoterSet.of([VoterNode(KEY, known)])
    history = VoterHistory(VoterSet() if kraft_version else voters.without_directories())
    history.reset(known_at, voters if kraft_version else None, kraft_version)
    node = RaftNode(
        RaftConfig(1, KEY.directory_id, "c", endpoints=endpoints), random.Random(1), LogView(), history, None
    )
    node.start(Now(0, 0))
    if flushed:
        node.flushed(node.log.end_offset, Now(1, 1))
    node.ready()
    return node


def update(node: RaftNode, voter: VoterNode, cluster: str = "c", epoch: int = 1) -> Any:
    node.receive(Inbound(1, rpc.update_voter_request(cluster, epoch, voter), 0, "CONTROLLER"), Now(2, 2))
    (reply,) = node.ready().replies
    return reply.response


def test_update_is_appended_and_in_force_at_once() -> None:
    node = leader()
    moved = VoterNode(KEY, AWAY)
    response = update(node, moved)
    assert response.error_code == ErrorCode.NONE
    assert (response.current_leader.leader_id, response.current_leader.host) == (1, "home")
    assert node.voters == VoterSet.of([moved])
    # Only one change at a time: this one is not committed yet.
    assert update(node, moved).error_code == ErrorCode.REQUEST_TIMED_OUT
    node.flushed(node.log.end_offset, Now(3, 3))
    assert update(node, VoterNode(KEY, HOME)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("voter", "cluster", "epoch", "error"),
    [
        (VoterNode(KEY, AWAY), "other", 1, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (VoterNode(KEY, AWAY), "c", 0, ErrorCode.FENCED_LEADER_EPOCH),
        (VoterNode(KEY, AWAY), "c", 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (VoterNode(ReplicaKey(9, b"9" * 16), AWAY), "c", 1, ErrorCode.VOTER_NOT_FOUND),
        (VoterNode(ReplicaKey(1), AWAY), "c", 1, ErrorCode.INVALID_REQUEST),
        (VoterNode(KEY, ()), "c", 1, ErrorCode.INVALID_REQUEST),
        (VoterNode(KEY, (Endpoint("CONTROLLER", "", 1),)), "c", 1, ErrorCode.INVALID_REQUEST),
        (VoterNode(KEY, (Endpoint("CONTROLLER", " ", 1),)), "c", 1, ErrorCode.INVALID_REQUEST),
        (VoterNode(KEY, (*AWAY, Endpoint("OTHER", "", 3))), "c", 1, ErrorCode.INVALID_REQUEST),
        (VoterNode(KEY, AWAY, 2, 3), "c", 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(voter: VoterNode, cluster: str, epoch: int, error: ErrorCode) -> None:
    node = leader()
    assert update(node, voter, cluster, epoch).error_code == error
    assert node.voters == VoterSet.of([VoterNode(KEY, HOME)])


def test_configured_voters_are_remembered() -> None:
    """With kraft.version 0 nothing is written: a voter's data is kept until this leadership ends."""
    node = leader(kraft_version=0)
    end = node.log.end_offset
    replaced = VoterNode(ReplicaKey(1, b"2" * 16), AWAY)
    assert update(node, replaced).error_code == ErrorCode.NONE
    assert node.log.end_offset == end
    assert isinstance(node.state, Leader)
    assert node.state.told_voters == VoterSet.of([replaced])
    assert update(node, VoterNode(ReplicaKey(9, b"9" * 16), AWAY)).error_code == ErrorCode.VOTER_NOT_FOUND
    assert update(node, VoterNode(KEY, AWAY, 1, 1)).error_code == ErrorCode.INVALID_REQUEST


def test_nothing_is_remembered_before_the_epoch_is_committed() -> None:
    node = leader(kraft_version=0, flushed=False)
    assert update(node, VoterNode(KEY, AWAY)).error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("endpoints", [TWO, TWO[::-1]])
def test_update_that_changes_nothing_writes_no_record(endpoints: tuple[Endpoint, ...]) -> None:
    """A voter of Apache Kafka sends its endpoints in any order."""
    node = leader(endpoints=TWO, known=TWO)
    end = node.log.end_offset
    for _ in range(2):
        # A record would have to be committed before the second answer could be NONE.
        assert update(node, VoterNode(KEY, endpoints)).error_code == ErrorCode.NONE
    assert node.log.end_offset == end
    assert update(node, VoterNode(KEY, (TWO[0], Endpoint("OTHER", "away", 3)))).error_code == ErrorCode.NONE
    assert node.log.end_offset == end + 1


def test_leader_whose_entry_names_its_endpoints_in_another_order_writes_no_voter_set() -> None:
    node = leader(endpoints=TWO, known=TWO[::-1], known_at=0)
    assert node.voters == VoterSet.of([VoterNode(KEY, TWO[::-1])])


def test_leader_whose_entry_has_no_host_writes_its_address() -> None:
    node = leader(known=(Endpoint("CONTROLLER", "", 1),), known_at=0)
    assert node.voters == VoterSet.of([VoterNode(KEY, HOME)])


def test_leader_that_moved_writes_its_new_address() -> None:
    node = leader(endpoints=AWAY)
    assert node.voters == VoterSet.of([VoterNode(KEY, AWAY)])
