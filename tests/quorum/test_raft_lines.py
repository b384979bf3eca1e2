"""The log lines about a replica's peers: each fact once, however often it happens."""

from __future__ import annotations

import logging

import pytest

from pykbroker.quorum.raft_lines import RaftLines
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.ready import Destination, Outgoing
from pykbroker_raft.voters import ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode, error_name
from pykbroker_wire.messages.vote import VoteRequest, VoteResponse


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> RaftLines:
    caplog.set_level(logging.WARNING)
    return RaftLines(2, "ours")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(id), ()) for id in ids)


def test_a_peer_that_refuses_everything_is_one_line(lines: RaftLines, caplog: pytest.LogCaptureFixture) -> None:
    def answer(number: int, code: int) -> list[str]:
        lines.answered(
            Outgoing(1, Destination(number, f"c{number}", 9093), VoteRequest(), 100), VoteResponse(error_code=code)
        )
        return said(caplog)

    (line,) = answer(1, ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert "c1:9093 refuses Vote with INCONSISTENT_CLUSTER_ID: it belongs to another cluster" in line
    assert "formatted for ours" in line
    assert answer(1, ErrorCode.INCONSISTENT_CLUSTER_ID) == []
    assert len(answer(3, ErrorCode.INCONSISTENT_CLUSTER_ID)) == 1
    # A change is logged again. Usual answers during a change of leaders are never logged.
    assert len(answer(1, 9999)) == 1
    assert answer(1, ErrorCode.NONE) == []
    assert answer(1, ErrorCode.BROKER_NOT_AVAILABLE) == []
    assert len(answer(1, ErrorCode.INCONSISTENT_CLUSTER_ID)) == 1
    lines.answered(Outgoing(1, Destination(1, "c1", 9093), VoteRequest(), 100), None)
    assert said(caplog) == []


def test_configured_voters_that_differ_from_the_leaders_are_named(
    lines: RaftLines, caplog: pytest.LogCaptureFixture
) -> None:
    own = voters(1, 2)
    lines.voters(own, 0, None)
    lines.voters(own, 0, (1, 2))
    assert said(caplog) == []
    for _ in range(2):
        lines.voters(own, 0, (1, 2, 3))
    (line,) = said(caplog)
    assert "names 1, 2, but the newest leader in the metadata log was elected by the voters 1, 2, 3" in line
    # With voters in the log nothing can differ.
    lines.voters(own, 1, (1, 2, 4))
    assert said(caplog) == []


def test_a_damaged_snapshot_is_one_line(lines: RaftLines, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        lines.damaged_snapshot(OffsetAndEpoch(7, 1), 1, ValueError("cut off"))
    assert len(said(caplog)) == 1
    lines.damaged_snapshot(OffsetAndEpoch(9, 1), 1, ValueError("cut off"))
    assert len(said(caplog)) == 1


def test_a_code_of_a_release_to_come() -> None:
    assert ErrorCode.received(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.received(104) is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (error_name(9999), error_name(-1), error_name(74)) == (
        "error 9999",
        "UNKNOWN_SERVER_ERROR",
        "FENCED_LEADER_EPOCH",
    )
