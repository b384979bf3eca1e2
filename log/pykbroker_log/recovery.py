"""What an unclean stop has left of one log, brought to where a clean stop leaves it: the job of a worker process.

Responsible for how much there is to check, and for checking it and making the result durable. Not responsible for the
checks themselves (loading.py), nor for when and in which process (pykbroker/replica/recovery.py).

Invariants:
* Nobody else has the log open. What it is told (recovery point, log start) is what the checkpoints say.
* Being killed at any moment costs the work done so far: what is above the recovery point is checked again.
* When it is over, the log up to its end is durable with its indexes, epochs and producer snapshot; it may then be
  opened as after a clean stop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.disk import Disk
from pykbroker_log.loading import Loader
from pykbroker_log.log_config import LogConfig
from pykbroker_log.producers import BatchMetadata, ProducerStates
from pykbroker_log.side_files import SideFiles


@dataclass(slots=True, frozen=True)
class Unrecovered:
    """A log as an unclean stop has left it."""

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
    """What was done, for one line about it."""
    warnings: list[str]
    """What an operator has to know."""
    batches: dict[int, list[BatchMetadata]]
    """By producer: a snapshot remembers the last one only, while a client may repeat any of the last five."""


def unchecked_segments(disk: Disk, path: str, recovery_point: int) -> list[int]:
    """The sizes of the segments that will be read, in order: those that reach past the recovery point."""
    sizes = []
    for name, size in disk.scan(path):
        found = names.parse_segment_file(name)
        if found is not None and found.kind == names.LOG and not found.state:
            sizes.append((found.base_offset, size))
    first = bisect_right([base for base, _ in sizes[1:]], recovery_point)
    return [size for _, size in sizes[first:]]


def recover(disk: Disk, log: Unrecovered) -> Generator[int, None, Recovered]:
    """Yields the bytes that were checked since it last did. Raises OSError."""
    producers = ProducerStates(log.producer_id_expiration_ms)
    side = SideFiles(disk, log.path)
    loaded = yield from Loader(
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
    try:
        side.snapshots = loaded.snapshots
        side.found_unsynced(loaded.rewritten)
        side.take_snapshot(producers, max(log.log_start_offset, loaded.segments[0].base_offset))
        side.write_epochs(loaded.epochs)
        side.sync()
        first = bisect_right([segment.base_offset for segment in loaded.segments[1:]], log.recovery_point - 1)
        for segment in loaded.segments[first:]:
            segment.fsync()
            segment.fsync_indexes()
            yield 0
    finally:
        for segment in loaded.segments:
            segment.close()
    batches = {producer_id: entry.batches for producer_id, entry in producers.entries.items() if len(entry.batches) > 1}
    return Recovered(loaded.log_end_offset, loaded.recovery, loaded.warnings, batches)
