"""pykbroker's files against those that Apache Kafka 4.3.1 has written (tests/golden/raft)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft import batches, checkpoint
from pykbroker_raft.election_state import CorruptQuorumState, ElectionState
from pykbroker_raft.log_view import BOOTSTRAP_SNAPSHOT, LogView, OffsetAndEpoch
from pykbroker_raft.metadata_storage import format_voters, read_bootstrap, write_bootstrap
from pykbroker_raft.raft_node import RaftConfig, RaftNode
from pykbroker_raft.ready import Append, Now
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterHistory

GOLDEN = Path(__file__).parents[1] / "golden" / "raft"


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def timestamps(data: bytes) -> list[int]:
    return [batch.timestamp_ms for batch in batches.intact(data)]


def test_standalone_checkpoint() -> None:
    theirs = golden("standalone.checkpoint")
    content = checkpoint.decode(theirs)
    head, foot = timestamps(theirs)
    ours = checkpoint.encode(
        [],
        epoch=0,
        now_ms=head,
        last_timestamp_ms=content.last_timestamp_ms,
        kraft_version=content.kraft_version,
        voters=content.voters,
    )
    first = next(batches.intact(theirs))
    assert next(ours) == theirs[: first.size]
    # The footer was written some milliseconds later.
    assert batches.control_batch([batches.snapshot_footer()], 3, 0, foot) == theirs[first.size :]


def test_format_writes_what_kafka_reads() -> None:
    content = checkpoint.decode(golden("standalone.checkpoint"))
    assert content.voters is not None
    disk = MemoryDisk()
    disk.make_dirs("d")
    format_voters(disk, "d", content.voters, 1234)
    written = read_file(disk, "d/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
    assert len(written) == len(golden("standalone.checkpoint"))
    again = checkpoint.decode(written)
    assert (again.voters, again.kraft_version) == (content.voters, 1)
    assert disk.list("d/__cluster_metadata-0") == ["00000000000000000000-0000000000.checkpoint"]


def test_bootstrap_checkpoint() -> None:
    theirs = golden("bootstrap.checkpoint")
    disk = MemoryDisk()
    disk.make_dirs("d")
    assert read_bootstrap(disk, "d") is None
    values = [value for batch in checkpoint.decode(theirs).values for value in batch]
    assert len(values) == 6
    write_bootstrap(disk, "d", values, timestamps(theirs)[0])
    assert read_bootstrap(disk, "d") == values
    ours = read_file(disk, "d/bootstrap.checkpoint")
    header = next(batches.intact(theirs)).size
    assert len(ours) == len(theirs)
    assert ours[:header] == theirs[:header]


def test_first_batch_of_a_new_quorum() -> None:
    theirs = golden("first-batch.log")
    content = checkpoint.decode(golden("standalone.checkpoint"))
    assert content.voters is not None
    history = VoterHistory()
    history.reset(-1, content.voters, content.kraft_version)
    key: ReplicaKey = content.voters.voters[0].key
    config = RaftConfig(1, key.directory_id, "x", endpoints=(Endpoint("CONTROLLER", "localhost", 29193),))
    node = RaftNode(config, random.Random(0), LogView(snapshots={BOOTSTRAP_SNAPSHOT: 241}), history, None)
    node.start(Now(0, timestamps(theirs)[0]))
    (step,) = node.ready().log
    assert isinstance(step, Append)
    assert step.records == theirs


def test_quorum_state() -> None:
    theirs = golden("quorum-state")
    assert ElectionState.from_bytes(theirs) == ElectionState(1, 1, kraft_version=1)
    assert ElectionState(1, 1, kraft_version=1).to_bytes() == theirs
    version_0 = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert ElectionState(1, 1, voters=(1,)).to_bytes() == version_0
    assert ElectionState.from_bytes(version_0) == ElectionState(1, 1, None, (1,), 0)


@pytest.mark.parametrize("epoch", [0, 7])
def test_quorum_state_keeps_the_vote(epoch: int) -> None:
    state = ElectionState(epoch, None, ReplicaKey(3, bytes(range(16))), kraft_version=1)
    assert ElectionState.from_bytes(state.to_bytes()) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1}',
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}',
        b'{"leaderId":"x","leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    ],
)
def test_unreadable_quorum_state(data: bytes) -> None:
    with pytest.raises(CorruptQuorumState):
        ElectionState.from_bytes(data)


def test_snapshot_names() -> None:
    name = checkpoint.file_name(OffsetAndEpoch(434, 2))
    assert name == "00000000000000000434-0000000002.checkpoint"
    assert checkpoint.parse_name(name) == checkpoint.SnapshotName(OffsetAndEpoch(434, 2), "")
    part = checkpoint.parse_name("00000000000000000434-0000000002-7236523342.checkpoint.part")
    assert part == checkpoint.SnapshotName(OffsetAndEpoch(434, 2), ".part")
    assert checkpoint.parse_name("bootstrap.checkpoint") is None
    assert checkpoint.parse_name("leader-epoch-checkpoint") is None


def test_cut_off_or_damaged_snapshot() -> None:
    whole = b"".join(checkpoint.encode([b"a", b"b"], epoch=1, now_ms=5))
    assert checkpoint.decode(whole).values == [[b"a", b"b"]]
    for size in range(len(whole)):
        with pytest.raises(checkpoint.CorruptMetadataSnapshot):
            checkpoint.decode(whole[:size])
    with pytest.raises(checkpoint.CorruptMetadataSnapshot):
        checkpoint.decode(whole + whole)
    damaged = bytearray(whole)
    damaged[100] ^= 1
    with pytest.raises(checkpoint.CorruptMetadataSnapshot):
        checkpoint.decode(bytes(damaged))
