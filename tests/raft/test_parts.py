"""The parts of a replica: each owns its state, and the node passes each message to its part by its type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pykbroker_raft
from pykbroker_raft.raft_node import Inbound
from pykbroker_raft.ready import Destination, Now
from pykbroker_wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from pykbroker_wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from pykbroker_wire.messages.fetch import FetchRequest
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest
from pykbroker_wire.messages.update_raft_voter import UpdateRaftVoterRequest
from pykbroker_wire.messages.vote import VoteRequest, VoteResponse
from tests.parsed import parsed
from tests.raft.test_states import node

HOME = Path(pykbroker_raft.__file__).parent
#: The parts that act. They act on the others: `current_role`, `replica_log` and `outbox` own the data that all read.
PARTS = (
    "raft_node",
    "election",
    "quorum_epoch",
    "fetch_server",
    "fetch_client",
    "snapshot_transfer",
    "voter_changes",
    "leader_news",
)
MUTATORS = {"append", "add", "clear", "discard", "extend", "insert", "pop", "popleft", "remove", "setdefault", "update"}


def changed(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the targets that a module assigns to or deletes, and the containers on which it calls a mutator."""
    for found in ast.walk(tree):
        if isinstance(found, ast.Assign | ast.Delete):
            yield from found.targets
        elif isinstance(found, ast.AnnAssign | ast.AugAssign):
            yield found.target
        elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute) and found.func.attr in MUTATORS:
            yield found.func.value


def is_own(target: ast.expr) -> bool:
    """Return True for a local name, or an attribute of the part itself."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return isinstance(target.value, ast.Name) and target.value.id == "self"
    return True


@pytest.mark.parametrize("part", PARTS)
def test_a_part_changes_no_attribute_of_another(part: str) -> None:
    tree = parsed(HOME / f"{part}.py")
    foreign = [f"{part}.py:{target.lineno} {ast.unparse(target)}" for target in changed(tree) if not is_own(target)]
    assert not foreign


def test_every_request_of_the_quorum_has_its_handler_by_type() -> None:
    requests = [
        VoteRequest(),
        BeginQuorumEpochRequest(),
        EndQuorumEpochRequest(),
        FetchRequest(),
        FetchSnapshotRequest(),
        UpdateRaftVoterRequest(cluster_id="another"),
    ]
    subject = node(None)
    subject.start(Now(0, 0))
    for token, request in enumerate(requests):
        subject.receive(Inbound(token, request, request.MAX_VERSION, "CONTROLLER"), Now(1, 1))
    replies = subject.ready().replies
    assert [type(reply.response).__name__.replace("Response", "Request") for reply in replies] == [
        type(request).__name__ for request in requests
    ]


def test_a_message_of_another_type_is_a_bug() -> None:
    class VoteRequestOfAnother(VoteRequest):
        pass

    subject = node(None)
    subject.start(Now(0, 0))
    for request in (DescribeQuorumRequest(), VoteRequestOfAnother()):
        with pytest.raises(TypeError, match="is no request of the quorum"):
            subject.receive(Inbound(1, request, 0, "CONTROLLER"), Now(1, 1))
    # It asks for pre-votes when its election timeout is over.
    subject.tick(Now(10_000, 10_000))
    outgoing = next(each for each in subject.ready().requests if isinstance(each.request, VoteRequest))
    source: Destination = outgoing.destination
    with pytest.raises(TypeError, match="is no response of the quorum"):
        subject.response(outgoing.correlation_id, source, DescribeQuorumResponse(), Now(10_001, 10_001))
    subject.response(outgoing.correlation_id, source, VoteResponse(), Now(10_001, 10_001))
    # The response is dropped, because the request has been answered.
    subject.response(outgoing.correlation_id, source, DescribeQuorumResponse(), Now(10_001, 10_001))
