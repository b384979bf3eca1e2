"""Records of a metadata log that no node uses, whole and damaged."""

from __future__ import annotations

import pytest

from pykbroker_log.disk import write_new
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft import batches, checkpoint
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.stored_records import UnreadableRecords, read_records
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet

VOTERS = VoterSet.of([VoterNode(ReplicaKey(1, b"d" * 16), (Endpoint("CONTROLLER", "here", 9093),))])


def folder(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("m")
    for name, data in files.items():
        write_new(disk, f"m/{name}", data)
    return disk


def segment(base: int) -> str:
    return f"{base:020d}.log"


def data(base: int, *values: bytes) -> bytes:
    return batches.data_batch(values, base, 1, 0)


def test_a_snapshot_and_the_log_after_it() -> None:
    snapshot = b"".join(checkpoint.encode([b"a", b"b"], epoch=1, now_ms=0, kraft_version=1, voters=VOTERS))
    disk = folder(
        {
            checkpoint.file_name(OffsetAndEpoch(4, 1)): snapshot,
            segment(0): data(0, b"old", b"old") + data(2, b"old", b"old"),
            segment(4): data(4, b"c"),
            segment(5): data(5, b"d") + b"torn",
        }
    )
    found = read_records(disk, "m")
    assert (found.values, found.voters, found.end_offset) == ([b"a", b"b", b"c", b"d"], VOTERS, 6)


def test_voters_of_the_log() -> None:
    change = batches.control_batch([batches.voters(VOTERS)], 1, 1, 0)
    found = read_records(folder({segment(0): data(0, b"a") + change}), "m")
    assert (found.values, found.voters) == ([b"a"], VOTERS)


def test_an_empty_folder() -> None:
    found = read_records(folder({}), "m")
    assert (found.values, found.voters, found.end_offset) == ([], None, 0)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({segment(3): data(3, b"a")}, "no snapshot is before it"),
        ({segment(0): data(0, b"a", b"b")[:-1], segment(2): data(2, b"c")}, "is damaged at offset 0"),
        ({segment(0): data(0, b"a"), segment(2): data(2, b"c")}, "is damaged at offset 1"),
        ({checkpoint.file_name(OffsetAndEpoch(4, 1)): b"x"}, "its latest snapshot is damaged"),
    ],
)
def test_damage(files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(UnreadableRecords, match=reason):
        read_records(folder(files), "m")
