"""Which of the oldest segments may go: below the log's start, by size, and by age. Pure.

Invariants:
* A segment is deleted only when all of it lies below the high watermark.
* The reasons are asked in Apache Kafka's order. One pass gives what its three give: what may go is a prefix, and once
  a segment is not too much by size, none after it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykbroker_log.log_config import LogConfig
from pykbroker_log.segment import Segment


class Breach(NamedTuple):
    """A segment that is to go, and why, in Apache Kafka's words."""

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
) -> list[Breach]:
    """The segments to delete, from the front on; all of them when even the active one has expired. Of a tiered log only
    those before its start: no copy of the others in a remote tier is known."""
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
        elif expires and 0 <= config.retention_ms < now_ms - segment.largest_timestamp():
            total -= segment.size
            by = "largest record timestamp in" if segment.max_timestamp >= 0 else "last modified time of"
            reason = f"log retention time {config.retention_ms}ms breach based on the {by} the segment"
        else:
            break
        found.append(Breach(segment, reason))
    return found
