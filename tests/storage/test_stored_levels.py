"""Levels of features in the stored metadata, which the start judges before it writes anything."""

from __future__ import annotations

import pytest

from pykbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_LATEST, REGISTERED
from pykbroker.storage import stored_levels
from pykbroker.storage.format import StorageFormatError
from pykbroker.storage.stored_levels import check_levels
from pykbroker_log.disk import write_new
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft import batches, checkpoint
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.stored.metadata import FeatureLevelRecord
from pykbroker_wire.stored_framing import encode_metadata_record

NEWER = METADATA_VERSION_LATEST + 1


def level(value: int, name: str = METADATA_VERSION) -> bytes:
    return encode_metadata_record(FeatureLevelRecord(name=name, feature_level=value), 0)


def log(base: int, *values: bytes) -> bytes:
    return batches.data_batch(values, base, 1, 0)


def check(files: dict[str, bytes]) -> None:
    disk = MemoryDisk()
    disk.make_dirs(f"d/{DIRECTORY}")
    for name, data in files.items():
        write_new(disk, f"d/{DIRECTORY}/{name}", data)
    check_levels(disk, "d")


def in_segment(*values: bytes) -> dict[str, bytes]:
    return {f"{0:020d}.log": log(0, *values)}


@pytest.mark.parametrize("name", sorted(REGISTERED.keys() - {KRAFT_VERSION}))
def test_each_served_level_passes_and_the_next_one_does_not(name: str) -> None:
    lowest, highest = REGISTERED[name].min, REGISTERED[name].max
    for value in range(lowest, highest + 1):
        check(in_segment(level(value, name)))
    with pytest.raises(StorageFormatError, match=f"{name} is at level {highest + 1}"):
        check(in_segment(level(METADATA_VERSION_LATEST), level(highest + 1, name)))


def test_a_feature_of_a_later_release() -> None:
    with pytest.raises(StorageFormatError, match=r"later\.version is at level 1"):
        check(in_segment(level(1, "later.version")))
    check(in_segment(level(0, "later.version")))


def test_the_level_of_the_quorum_is_in_control_records() -> None:
    check(in_segment(level(2, KRAFT_VERSION)))


def test_the_latest_level_counts() -> None:
    check(in_segment(level(NEWER), level(METADATA_VERSION_LATEST)))
    with pytest.raises(StorageFormatError):
        check(in_segment(level(METADATA_VERSION_LATEST), level(NEWER)))


def test_a_snapshot_counts_and_the_log_before_it_does_not() -> None:
    snapshot = checkpoint.file_name(OffsetAndEpoch(1, 1))

    def content(value: int) -> bytes:
        return b"".join(checkpoint.encode([level(value)], epoch=1, now_ms=0, kraft_version=0, voters=None))

    after = {f"{1:020d}.log": log(1, b"another record")}
    check({snapshot: content(METADATA_VERSION_LATEST), f"{0:020d}.log": log(0, level(NEWER)), **after})
    with pytest.raises(StorageFormatError):
        check({snapshot: content(NEWER), **after})


def test_a_level_across_two_parts_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = in_segment(level(NEWER))
    place = next(iter(files.values())).index(stored_levels._FRAME)
    for size in range(place, place + len(level(NEWER)) + 1):
        monkeypatch.setattr(stored_levels, "_PART_BYTES", size)
        with pytest.raises(StorageFormatError):
            check(files)


def test_bytes_that_look_like_a_level_stop_no_start() -> None:
    check(in_segment(b"a value of a setting: " + level(NEWER)))
    check(in_segment(stored_levels._FRAME))
    # A batch that the power loss has cut off is no record.
    ((name, data),) = in_segment(level(METADATA_VERSION_LATEST)).items()
    check({name: data + log(1, level(NEWER))[:-1]})


def test_a_node_without_metadata() -> None:
    check_levels(MemoryDisk(), "d")
    check({})
    check({f"{7:020d}.log": log(7, level(NEWER))})
