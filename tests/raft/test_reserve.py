"""Room that is reserved for the metadata log."""

from __future__ import annotations

import pytest

from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft import batches
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.metadata_storage import MetadataStorage, StorageConfig
from pykbroker_raft.reserve import FILE, MARGIN_BYTES, Reserve

SIZE = 1 << 20
NOW = 1_700_000_000_000


def disk_with(room: int) -> MemoryDisk:
    disk = MemoryDisk(record=False, capacity_bytes=room)
    disk.make_dirs("d/m")
    return disk


def fill(disk: MemoryDisk) -> None:
    """Use up the rest of the disk."""
    file = disk.open("d/ballast", create=True)
    size = file.size()
    file.pwritev([bytes(disk.usage("d")[1])], size)
    file.close()
    assert disk.usage("d")[1] == 0


def storage_on(disk: MemoryDisk) -> MetadataStorage:
    return MetadataStorage.open(disk, "d", StorageConfig(reserve_bytes=SIZE), NOW)


def record(storage: MetadataStorage, size: int) -> bytes:
    offset = storage.log.log_end_offset
    return bytes(batches.data_batch([bytes(size)], base_offset=offset, epoch=1, timestamp_ms=NOW))


def test_the_reserve_takes_its_room_and_gives_it_back() -> None:
    disk = disk_with(4 * SIZE)
    reserve = Reserve(disk, "d", "d/m", SIZE)
    assert reserve.make()
    assert disk.usage("d")[1] == 3 * SIZE
    assert reserve.give_up()
    assert not reserve.give_up()
    assert disk.usage("d")[1] == 4 * SIZE
    assert not disk.exists(f"d/m/{FILE}")


def test_no_reserve_where_there_is_no_room() -> None:
    disk = disk_with(SIZE + MARGIN_BYTES - 1)
    reserve = Reserve(disk, "d", "d/m", SIZE)
    assert not reserve.make()
    assert not disk.exists(f"d/m/{FILE}")


def test_a_reserve_that_was_cut_is_made_anew() -> None:
    disk = disk_with(8 * SIZE)
    file = disk.open(f"d/m/{FILE}", create=True)
    file.pwritev([b"cut"], 0)
    file.close()
    assert Reserve(disk, "d", "d/m", SIZE).make()
    file = disk.open(f"d/m/{FILE}")
    assert file.size() == SIZE
    file.close()


@pytest.mark.parametrize("what", ["records", "a vote"])
def test_a_full_disk_takes_metadata_into_the_room_of_the_reserve(what: str) -> None:
    disk = disk_with(8 * SIZE)
    storage = storage_on(disk)
    storage.append(record(storage, 10), 1, NOW)
    fill(disk)
    if what == "records":
        for _ in range(10):
            storage.append(record(storage, 1000), 1, NOW)
        assert storage.log.log_end_offset == 11
    else:
        storage.write_election_state(ElectionState(7, None))
        stored = storage.read_election_state()
        assert stored is not None
        assert stored.epoch == 7
    assert not storage.reserve.is_there


def test_when_the_reserve_is_used_up_nothing_is_half_written() -> None:
    disk = disk_with(8 * SIZE)
    storage = storage_on(disk)
    fill(disk)
    while storage.has_room_for(100_000):
        storage.append(record(storage, 100_000), 1, NOW)
    end, size = storage.log.log_end_offset, storage.log.size_bytes
    assert end > 5
    fill(disk)
    with pytest.raises(StorageError) as failed:
        storage.append(record(storage, 100_000), 1, NOW)
    assert failed.value.is_full
    assert (storage.log.log_end_offset, storage.log.size_bytes) == (end, size)
    disk.unlink("d/ballast")
    assert storage.make_reserve()
    storage.append(record(storage, 100_000), 1, NOW)
    storage.close()
    assert storage_on(disk).log.log_end_offset == end + 1


def test_a_snapshot_that_does_not_fit_takes_no_room() -> None:
    disk = disk_with(8 * SIZE)
    storage = storage_on(disk)
    storage.append(record(storage, 10), 1, NOW)
    fill(disk)
    with pytest.raises(StorageError):
        storage.write_snapshot(
            OffsetAndEpoch(1, 1), [bytes(100_000)] * 5, now_ms=NOW, last_timestamp_ms=NOW, kraft_version=1, voters=None
        )
    assert disk.usage("d")[1] == 0
    assert storage.reserve.is_there
