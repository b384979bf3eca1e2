"""Snapshots on the disk: a thread writes one while the event loop looks for the latest."""

from __future__ import annotations

from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft import batches
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.metadata_storage import MetadataStorage, StorageConfig

NOW = 1_700_000_000_000


def test_the_loop_may_look_at_the_snapshots_while_one_is_written() -> None:
    """Comparing two snapshots is Python code, so the thread may run in the middle of it."""
    disk = MemoryDisk(record=False)
    disk.make_dirs("d")
    storage = MetadataStorage.open(disk, "d", StorageConfig(), NOW)

    def written(end: int) -> tuple[OffsetAndEpoch, int]:
        while storage.log.log_end_offset < end:
            offset = storage.log.log_end_offset
            storage.append(bytes(batches.data_batch([b"r"], base_offset=offset, epoch=1, timestamp_ms=NOW)), 1, NOW)
        made = OffsetAndEpoch(end, 1)
        size = storage.write_snapshot(made, [b"state"], now_ms=NOW, last_timestamp_ms=NOW, kraft_version=1, voters=None)
        return made, size

    first = written(1)
    storage.note_snapshot(*first)
    looking = iter(storage.snapshots)
    second = written(2)
    assert list(looking) == [first[0]]
    storage.note_snapshot(*second)
    assert storage.latest_snapshot == second[0]
