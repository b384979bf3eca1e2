"""Which of the oldest segments may go: by age, by size, and below the log's start. Pure.

Invariant: a segment is deleted only when all of it lies below the high watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker_log.log_config import LogConfig
from pykbroker_log.segment import Segment


def expired(
    segments: Sequence[Segment],
    *,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> int:
    """How many segments from the front are to be deleted; all of them when even the active one has expired."""
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = 0
    for index, segment in enumerate(segments):
        is_active = index == len(segments) - 1
        end = log_end_offset if is_active else segments[index + 1].base_offset
        if end > high_watermark or (is_active and segment.size == 0):
            break
        below_start = not is_active and end <= log_start_offset
        too_old = config.delete and 0 <= config.retention_ms < now_ms - _newest(segment)
        too_much = config.delete and config.retention_bytes >= 0 and excess - segment.size >= 0
        if not (below_start or too_old or too_much):
            break
        excess -= segment.size
        count += 1
    return count


def _newest(segment: Segment) -> int:
    # Records without timestamps are as old as their file has been known to us.
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.created_ms
