"""The oldest segments that retention deletes: below the log start, by size, and by age. Pure.

Invariants:
* A segment is deleted only when all of it lies below the high watermark.
* The reasons are checked in Apache Kafka's order. One pass gives the same result as Kafka's three: the deleted segments
  are a prefix, and if a segment is not deleted for size, none after it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.log_config import LogConfig
from pykbroker_log.segment import Segment


class Breach(NamedTuple):
    """A segment to delete, and the reason in Apache Kafka's words."""

    segment: Segment
    reason: str


def breached(
    segments: Sequence[Segment],
    *,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    jumps: Jumps = NO_JUMPS,
) -> list[Breach]:
    """Return the segments to delete, oldest first; all of them if even the active one has expired. In a tiered log only
    those before the log start are deleted, because no copy of the others in a remote tier is known."""
    expires = config.delete and not config.is_tiered
    by_size = expires and config.retention_bytes >= 0
    total = sum(segment.size for segment in segments) if by_size else 0
    found: list[Breach] = []
    for index, segment in enumerate(segments):
        is_active = index == len(segments) - 1
        end = log_end_offset if is_active else segments[index + 1].base_offset
        if end > high_watermark or (is_active and segment.size == 0):
            break
        if not is_active and end <= log_start_offset:
            reason = f"log start offset {log_start_offset} breach"
            total -= segment.size
        elif by_size and total - config.retention_bytes - segment.size >= 0:
            total -= segment.size
            reason = f"log retention size {config.retention_bytes} breach. Log size after deletion will be {total}."
        elif expires and 0 <= config.retention_ms < jumps.age_ms(now_ms, segment.largest_timestamp()):
            total -= segment.size
            by = "largest record timestamp in" if segment.max_timestamp >= 0 else "last modified time of"
            reason = f"log retention time {config.retention_ms}ms breach based on the {by} the segment"
        else:
            break
        found.append(Breach(segment, reason))
    return found
