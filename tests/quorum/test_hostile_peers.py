"""A peer of the quorum that sends what no node would send: no committed record changes, and the replica goes on.

The messages can be decoded. Others are refused before the quorum (tests/badinput).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.quorum.driver import QuorumDriver
from pykbroker_log.disk import read_file
from pykbroker_raft.leader_news import MAX_EPOCH_STEP
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_raft.replica_log import LeaderLostCommitted
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import begin_quorum_epoch as begin
from pykbroker_wire.messages import vote
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest
from tests.quorum.hostile import IDS, Hostile, HostilePeers
from tests.quorum.world import CLUSTER, InlineRuntime, driver, run, until

MESSAGES = 120
VOTERS = VoterSet.of(
    VoterNode(ReplicaKey(id, bytes([id]) * 16), (Endpoint("CONTROLLER", f"c{id}", 9093),)) for id in IDS
)
OWN = VoterSet.of([next(iter(VOTERS))])


def replica(runtime: InlineRuntime, peers: HostilePeers | None, voters: VoterSet, **fields: Any) -> QuorumDriver:
    """Return node 1. Its quorum is configured, so that the same directory can be started with other voters."""
    return driver(
        runtime,
        peers=peers,
        directory_id=bytes([1]) * 16,
        endpoints=VOTERS.endpoints(1),
        static_voters=voters,
        election_timeout_ms=10,
        fetch_timeout_ms=20,
        election_backoff_max_ms=5,
        fetch_max_wait_ms=5,
        request_timeout_ms=20,
        retry_backoff_ms=1,
        **fields,
    )


async def with_a_log(runtime: InlineRuntime) -> None:
    """Let node 1 commit records while it is alone."""
    runtime.disk.make_dirs("meta")
    quorum = replica(runtime, None, OWN)
    await quorum.start()
    for number in range(5):
        quorum.append([b"own %d" % number] * 3)
    await until(lambda: quorum.high_watermark == quorum.log_end_offset)
    await quorum.stop()


def stored(quorum: QuorumDriver, end: int) -> bytes:
    """Return the bytes of the log below an offset."""
    return quorum.storage.read(0, 1 << 30, end)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["leader", "voter", "observer"])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_committed_changes_and_the_replica_goes_on(role: str, seed: int) -> None:
    async def test() -> None:
        rng = random.Random(f"{role} {seed}")
        runtime = InlineRuntime()
        await with_a_log(runtime)
        hostile = Hostile(rng)
        peers = HostilePeers(hostile)
        voters = OWN if role == "leader" else VOTERS
        quorum = replica(runtime, peers, voters, is_controller=role != "observer")
        peers.quorum = quorum
        await quorum.start()
        assert quorum.is_only_voter == (voters is OWN)
        committed, kept = 0, b""
        for _ in range(MESSAGES):
            if role != "observer":
                quorum.handle(*hostile.request(quorum), "CONTROLLER")
            await asyncio.sleep(0.0005)
            assert stored(quorum, quorum.log_end_offset).startswith(kept)
            if quorum.failed is not None:
                break
            committed = max(committed, quorum.high_watermark or 0)
            kept = stored(quorum, committed)
        if quorum.failed is None:
            described = quorum.handle(DescribeQuorumRequest(topics=[]))
            assert described.error_code == ErrorCode.NONE
            assert quorum.epoch < MAX_EPOCH_STEP
        else:
            # As in Apache Kafka: a leader that lacks committed records is not followed further.
            assert isinstance(quorum.failed, LeaderLostCommitted)
        assert committed > 0 or role != "leader"
        await quorum.stop(timeout_ms=1)

    run(test)


def vote_in(epoch: int, cluster_id: str = CLUSTER, voter: int = 1, directory: bytes = bytes([1]) * 16) -> Any:
    partition = vote.RequestPartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=2,
        replica_directory_id=bytes([2]) * 16,
        voter_directory_id=directory,
        last_offset_epoch=0,
        last_offset=0,
    )
    topic = vote.RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=voter, topics=[topic])


def begin_in(epoch: int, cluster_id: str = CLUSTER, voter: int = 1, directory: bytes = bytes([1]) * 16) -> Any:
    partition = begin.RequestPartitionData(
        partition_index=0, voter_directory_id=directory, leader_id=2, leader_epoch=epoch
    )
    topic = begin.RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return begin.BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=voter, topics=[topic])


@pytest.mark.parametrize("make", [vote_in, begin_in])
def test_an_epoch_out_of_nowhere_is_refused(make: Callable[..., Any]) -> None:
    """An election raises the epoch by one. If the greatest epoch were believed, no election could follow."""

    async def test() -> None:
        runtime = InlineRuntime()
        await with_a_log(runtime)
        quorum = replica(runtime, None, OWN)
        await quorum.start()
        before = quorum.epoch
        state = read_file(runtime.disk, f"meta/{DIRECTORY}/quorum-state")
        log = stored(quorum, quorum.log_end_offset)

        def code(request: Any) -> int:
            answer = quorum.handle(request, 1)
            return int(answer.error_code or answer.topics[0].partitions[0].error_code)

        assert code(make(2**31 - 1)) == ErrorCode.INVALID_REQUEST
        assert code(make(before + MAX_EPOCH_STEP)) == ErrorCode.INVALID_REQUEST
        assert code(make(before - 1)) == ErrorCode.FENCED_LEADER_EPOCH
        assert code(make(before + 1, cluster_id="another")) == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert (quorum.epoch, quorum.is_leader) == (before, True)
        assert read_file(runtime.disk, f"meta/{DIRECTORY}/quorum-state") == state
        if make is vote_in:
            # The vote is for another voter, or for this voter with another disk.
            assert code(make(before, voter=3)) == ErrorCode.INVALID_VOTER_KEY
            assert code(make(before, directory=bytes([9]) * 16)) == ErrorCode.INVALID_VOTER_KEY
        assert stored(quorum, quorum.log_end_offset) == log
        await quorum.stop()

    run(test)
