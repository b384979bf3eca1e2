"""The checks after a power loss can fail: each of these deliberately wrong variants must be noticed.

Each planted bug is a likely mistake: a missing sync, a wrong order, a file that is trusted although a crash may have
torn it. If a variant passed, no check would cover it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker_log import disk as disks
from pykbroker_log import names, offset_checkpoints
from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.deletion import Deletion
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.log_loading import LogLoader
from pykbroker_log.memory_disk import MemoryDisk, MemoryFile
from pykbroker_log.offset_checkpoints import OffsetCheckpoints
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producer_loading import ProducerLoader
from pykbroker_log.segment import Segment
from pykbroker_log.side_files import SideFiles
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.records.batch import CorruptBatch
from testkit.logs.power_loss import Workload
from tests.log.test_power_loss import RetiringWorkload, examine_all

Patch = pytest.MonkeyPatch

#: A variant is wrong with each of these seeds, and one must show it. The seeds that find the most come first.
SEEDS = [6, 5, 1, 0, *range(7, 12)]
#: The seeds that show these variants before others, and sooner.
FIRST = {
    "a recovery point is ahead of the flush": 1,
    "sealed indexes are not fsynced": 5,
    "side files are never synced": 4,
    "a truncation leaves its checkpoints": 5,
    "a truncation is not synced": 2,
}
#: another workload shows this one sooner
WORKLOADS: dict[str, type[Workload]] = {"retired names go before the log start is durable": RetiringWorkload}


def nothing(*_: object, **__: object) -> None:
    pass


def no_fsync_of(*endings: str) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        fsync = MemoryFile.fsync

        def some(file: MemoryFile) -> None:
            if not file._path.endswith(endings):
                fsync(file)

        patch.setattr(MemoryFile, "fsync", some)

    return plant


def no_fsync_dir_of(ending: str) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        fsync_dir = MemoryDisk.fsync_dir

        def some(disk: MemoryDisk, path: str) -> None:
            if not path.endswith(ending):
                fsync_dir(disk, path)

        patch.setattr(MemoryDisk, "fsync_dir", some)

    return plant


def rename_before_fsync(patch: Patch) -> None:
    def write_atomic(disk: Disk, path: str, data: bytes, *, suffix: str = ".tmp") -> None:
        disks.write_new(disk, path + suffix, data, sync=False)
        disk.rename(path + suffix, path)
        disk.fsync_dir(disks.parent_of(path))

    patch.setattr(offset_checkpoints, "write_atomic", write_atomic)


def overwrite_in_place(patch: Patch) -> None:
    def write_atomic(disk: Disk, path: str, data: bytes, *, suffix: str = ".tmp") -> None:
        disks.write_new(disk, path, data)
        disk.fsync_dir(disks.parent_of(path))

    patch.setattr(offset_checkpoints, "write_atomic", write_atomic)


def recovery_point_ahead_of_the_flush(patch: Patch) -> None:
    patch.setattr(OffsetCheckpoints, "prepare_recovery_points", _with_recovery_points(lambda log: log.log_end_offset))


def _with_recovery_points(value: Callable[[PartitionLog], int]) -> Callable[[OffsetCheckpoints], Callable[[], None]]:
    def prepare(checkpoints: OffsetCheckpoints) -> Callable[[], None]:
        checkpoints.recovery_points.update(checkpoints._of_logs(value))
        return checkpoints._writer(names.RECOVERY_POINTS, checkpoints.recovery_points)

    return prepare


def truncation_that_is_not_synced(patch: Patch) -> None:
    truncate_to = PartitionLog.truncate_to

    def unsynced(log: PartitionLog, offset: int) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(MemoryFile, "fsync", nothing)
            within.setattr(MemoryDisk, "fsync_dir", nothing)
            truncate_to(log, offset)

    patch.setattr(PartitionLog, "truncate_to", unsynced)


def clean_shutdown_that_is_kept(patch: Patch) -> None:
    unlink = MemoryDisk.unlink

    def some(disk: MemoryDisk, path: str) -> None:
        if not path.endswith(names.CLEAN_SHUTDOWN):
            unlink(disk, path)

    patch.setattr(MemoryDisk, "unlink", some)


def clean_shutdown_that_may_come_back(patch: Patch) -> None:
    """The unlink is not synced."""

    def unsynced(sign: CleanShutdown) -> None:
        if not sign.is_claimed and sign.was_clean:
            sign._disk.unlink(sign._path)
        sign.is_claimed = True

    patch.setattr(CleanShutdown, "claim", unsynced)


def clean_shutdown_that_goes_late(patch: Patch) -> None:
    """The file is removed after the log was opened, with the first checkpoint."""
    patch.setattr(LogDir, "claim", nothing)


def clean_shutdown_before_the_checkpoints(patch: Patch) -> None:
    close = LogDir.close

    def early(log_dir: LogDir, *, clean: bool, broker_epoch: int = -1) -> None:
        if clean:
            disks.write_atomic(log_dir.disk, f"{log_dir.path}/{names.CLEAN_SHUTDOWN}", b"{}")
        close(log_dir, clean=clean, broker_epoch=broker_epoch)

    patch.setattr(LogDir, "close", early)


def names_before_the_log_start(patch: Patch) -> None:
    patch.setattr(Deletion, "_may_go", lambda deletion: bool(deletion.retired))


def later_segments_are_kept(patch: Patch) -> None:
    def nothing_is_removed(loader: LogLoader, *_: object, **__: object) -> Iterator[int]:
        return iter(())

    patch.setattr(LogLoader, "_remove_from", nothing_is_removed)


def segments_out_of_line_are_kept(patch: Patch) -> None:
    patch.setattr(LogLoader, "_why_out_of_line", lambda *_: "")


def snapshots_of_another_past(patch: Patch) -> None:
    rewrite = ProducerLoader.rewrite

    def believe(loader: ProducerLoader, offset: int) -> None:
        if offset in loader.snapshots:
            loader.rewritten.add(offset)
        else:
            rewrite(loader, offset)

    patch.setattr(ProducerLoader, "rewrite", believe)


def an_index_is_believed(patch: Patch) -> None:
    patch.setattr(Segment, "has_whole_index", lambda _: True)


def the_active_segment_is_not_scanned(patch: Patch) -> None:
    load = LogLoader.__init__

    def clean(loader: LogLoader, *args: Any, **kwargs: Any) -> None:
        load(loader, *args, **kwargs)
        loader.clean = True

    patch.setattr(LogLoader, "__init__", clean)


def index_entries_ahead_of_their_batch(patch: Patch) -> None:
    append_batch = Segment.append_batch

    def ahead(segment: Segment, data: Any, size: int, last_offset: int, max_timestamp: int) -> None:
        segment.offset_index.append(last_offset, segment.size + size)
        append_batch(segment, data, size, last_offset, max_timestamp)

    patch.setattr(Segment, "append_batch", ahead)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "segments are not fsynced": no_fsync_of(names.LOG),
    "sealed indexes are not fsynced": no_fsync_of(names.OFFSET_INDEX, names.TIME_INDEX),
    "the partition's folder is not fsynced": no_fsync_dir_of("t-0"),
    "the directory is not fsynced": no_fsync_dir_of("data"),
    "side files are never synced": lambda patch: patch.setattr(SideFiles, "sync", nothing),
    "a checkpoint is renamed before it is fsynced": rename_before_fsync,
    "a checkpoint is written in its place": overwrite_in_place,
    "a recovery point is ahead of the flush": recovery_point_ahead_of_the_flush,
    "a truncation leaves its checkpoints": lambda patch: patch.setattr(
        OffsetCheckpoints, "before_truncation", lambda *_: []
    ),
    "a truncation is not synced": truncation_that_is_not_synced,
    "the sign of a clean stop is not taken away": clean_shutdown_that_is_kept,
    "the sign of a clean stop may come back": clean_shutdown_that_may_come_back,
    "the sign of a clean stop goes too late": clean_shutdown_that_goes_late,
    "the sign of a clean stop comes before the flush": clean_shutdown_before_the_checkpoints,
    "retired names go before the log start is durable": names_before_the_log_start,
    "what lies behind a torn segment is kept": later_segments_are_kept,
    "a segment that does not follow is kept": segments_out_of_line_are_kept,
    "snapshots of another past are believed": snapshots_of_another_past,
    "a sealed index is believed": an_index_is_believed,
    "the active segment is not scanned": the_active_segment_is_not_scanned,
    "an index entry leads behind its batch": index_entries_ahead_of_their_batch,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PLANTED)
def test_it_is_noticed(what: str, monkeypatch: Patch) -> None:
    PLANTED[what](monkeypatch)
    for seed in (FIRST.get(what, SEEDS[0]), *SEEDS):
        try:
            examine_all(WORKLOADS.get(what, Workload)(seed))
        except (AssertionError, CorruptBatch, KeyError, KafkaError, StorageError) as noticed:
            print(f"seed {seed}: {noticed!r:.300}")
            return
    pytest.fail(f"nobody notices that {what}")
