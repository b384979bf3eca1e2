"""The part of a log that compaction may clean, and how much a cleaning would gain. Pure.

Apache Kafka's rules: the part begins at the first offset that was never cleaned (the checkpoint). It ends at the active
segment, the last stable offset, or the first segment with a record newer than `min.compaction.lag.ms`, whichever comes
first.

Invariant: the cleanable part consists of whole segments in which every transaction is decided and every record is
replicated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.segment import Segment

if TYPE_CHECKING:
    from pykbroker_log.partition_log import PartitionLog


@dataclass(slots=True, frozen=True)
class Cleanable:
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Exclusive end, the base offset of a segment."""
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """The milliseconds for which `max.compaction.lag.ms` has required a cleaning; 0 if it requires none."""
    invalid_checkpoint: str = ""
    """The reason why the checkpoint could not be used; empty if it could."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def must_be_cleaned(self) -> bool:
        return self.delay_ms > 0 and self.cleanable_bytes > 0


def cleanable(log: PartitionLog, checkpoint: int | None, now_ms: int, jumps: Jumps = NO_JUMPS) -> Cleanable:
    """Return what can be cleaned of a log that was cleaned up to `checkpoint` (None if it never was). Raises
    OSError."""
    segments, config = log.files.segments, log.config
    sealed, active = segments[:-1], segments[-1]
    first_dirty, invalid = _first_dirty(log, checkpoint)
    dirty = sealed[_floor(sealed, first_dirty) :] if first_dirty < active.base_offset else []
    end = min(log.last_stable_offset, active.base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if jumps.age_ms(now_ms, segment.largest_timestamp()) < config.min_compaction_lag_ms:
                end = min(end, segment.base_offset)
                break
    # Only whole segments: the end moves back to the beginning of the segment that contains it.
    first_uncleanable = segments[_floor(segments, max(first_dirty, end))].base_offset
    return Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(segment.size for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        delay_ms=_delay_ms(dirty, config.max_compaction_lag_ms, now_ms, jumps),
        invalid_checkpoint=invalid,
    )


def _first_dirty(log: PartitionLog, checkpoint: int | None) -> tuple[int, str]:
    start = log.log_start_offset
    if checkpoint is None:
        return start, ""
    if checkpoint < start:
        # This is normal when retention deletes segments of a compacted log.
        return start, "" if log.config.delete else f"it is before the log's start {start}"
    if checkpoint > log.log_end_offset:
        # The log has lost its end: the records that are there now may never have been cleaned.
        return start, f"it is behind the log's end {log.log_end_offset}"
    return checkpoint, ""


def _floor(segments: Sequence[Segment], offset: int) -> int:
    """The index of the segment that contains `offset`."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def _delay_ms(dirty: Sequence[Segment], max_lag_ms: int, now_ms: int, jumps: Jumps) -> int:
    if now_ms + jumps.total_ms <= max_lag_ms:
        # Segments are not read in the usual case.
        return 0
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms)
    return max(0, jumps.age_ms(now_ms, oldest) - max_lag_ms)
