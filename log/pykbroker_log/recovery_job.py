"""Recovery of logs after an unclean stop, to the state of a clean stop: the job of a worker process.

Responsible for how much there is to check, and for checking it and making the result durable. Not responsible for the
checks themselves (log_loading.py), nor for when and in which process (pykbroker/storage/recovery.py).

Invariants:
* No other process has the logs open. The job's recovery point and log start come from the checkpoints.
* A kill at any moment loses only the work so far: everything above the recovery point is checked again.
* At the end each log is durable up to its end, with its indexes, epochs and producer snapshot. It may then be opened as
  after a clean stop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.disk import Disk, parent_of
from pykbroker_log.flush_state import Flush, sync
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_loading import LogLoader
from pykbroker_log.producers import BatchMetadata, ProducerStates
from pykbroker_log.segment import Segment
from pykbroker_log.side_files import SideFiles


@dataclass(slots=True, frozen=True)
class Unrecovered:
    """A log after an unclean stop."""

    path: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    producer_id_expiration_ms: int
    now_ms: int
    dense: bool
    """See PartitionLog.open."""


class Recovered(NamedTuple):
    log_end_offset: int
    summary: str | None
    """A summary for one log line."""
    warnings: list[str]
    """Warnings for the operator."""
    batches: dict[int, list[BatchMetadata]]
    """By producer: a snapshot has only the last batch, but a client may repeat any of the last five."""


def unchecked_segments(disk: Disk, path: str, recovery_point: int) -> list[int]:
    """Return the sizes of the segments that will be read, in order: those that reach past the recovery point."""
    sizes = []
    for name, size in disk.scan(path):
        found = names.parse_segment_file(name)
        if found is not None and found.kind == names.LOG and not found.state:
            sizes.append((found.base_offset, size))
    first = bisect_right([base for base, _ in sizes[1:]], recovery_point)
    return [size for _, size in sizes[first:]]


def recover(disk: Disk, logs: Sequence[Unrecovered]) -> Generator[int, None, list[Recovered]]:
    """Recover logs of one directory one after the other. All fsyncs are done together, because small ones then share a
    commit of the file system's journal. Yields the bytes that were checked since the last yield. Raises OSError."""
    found: list[Recovered] = []
    flushes: list[Flush] = []
    segments: list[Segment] = []
    try:
        for log in logs:
            found.append((yield from _recover(disk, log, flushes, segments)))
        sync(disk, parent_of(logs[0].path), flushes)
        for flush in flushes:
            if flush.missing is not None:
                raise flush.missing
    finally:
        for segment in segments:
            segment.close()
    return found


def _recover(
    disk: Disk, log: Unrecovered, flushes: list[Flush], segments: list[Segment]
) -> Generator[int, None, Recovered]:
    """Recover one log, but leave its fsyncs and open segments to the caller."""
    producers = ProducerStates(log.producer_id_expiration_ms)
    side = SideFiles(disk, log.path)
    loaded = yield from LogLoader(
        disk,
        log.path,
        config=log.config,
        producers=producers,
        now_ms=log.now_ms,
        clean=False,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        dense=log.dense,
    ).steps()
    segments += loaded.segments
    side.snapshots = tuple(loaded.snapshots)
    side.found_unsynced(loaded.rewritten)
    side.take_snapshot(producers, max(log.log_start_offset, loaded.segments[0].base_offset))
    side.write_epochs(loaded.epochs)
    paths, folders = side.take_unsynced(again=True)
    first = bisect_right([segment.base_offset for segment in loaded.segments[1:]], log.recovery_point - 1)
    files = [file for segment in loaded.segments[first:] for file in segment.unsynced_files(sealed=True)]
    flushes.append(Flush(0, loaded.log_end_offset, paths, folders, files))
    batches = {producer_id: entry.batches for producer_id, entry in producers.entries.items() if len(entry.batches) > 1}
    return Recovered(loaded.log_end_offset, loaded.recovery, loaded.warnings, batches)
