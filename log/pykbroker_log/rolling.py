"""When a log begins a new segment: the same rules as Apache Kafka's.

Not responsible for doing it (log_files.py). Checked before every append, and after a jump of the time that clients
feel.
"""

from __future__ import annotations

import zlib

from pykbroker_log import names
from pykbroker_log.jumps import Jumps
from pykbroker_log.log_config import LogConfig
from pykbroker_log.segment import MAX_RELATIVE_OFFSET, Segment


def is_due(segment: Segment, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
    """Return True if a batch of `size` bytes with this last offset needs a new segment."""
    return (
        segment.size > config.segment_bytes - size
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        or segment.indexes_full(config.segment_index_bytes)
        or (segment.size > 0 and _is_ripe(segment, config, max_timestamp, now_ms))
    )


def _is_ripe(segment: Segment, config: LogConfig, max_timestamp: int, now_ms: int) -> bool:
    """Return True if `segment.ms` is over, in the records' time, or in wall-clock time if they have no timestamps."""
    first = segment.first_timestamp
    return _is_over(segment, config, max_timestamp - first if first >= 0 else now_ms - segment.created_ms)


def is_ripe_by_jumps(segment: Segment, config: LogConfig, now_ms: int, jumps: Jumps) -> bool:
    """Return True if `segment.ms` is over because a jump was made after the segment's first record."""
    if segment.size == 0:
        return False
    first = segment.first_timestamp
    begun_ms = first if first >= 0 else segment.created_ms
    return jumps.after(begun_ms) > 0 and _is_over(segment, config, jumps.age_ms(now_ms, begun_ms))


def _is_over(segment: Segment, config: LogConfig, waited: int) -> bool:
    limit = config.segment_ms
    if config.max_compaction_lag_ms < limit:
        limit = config.max_segment_ms
    if waited <= limit - config.segment_jitter_ms:
        return False
    jitter = 0
    if config.segment_jitter_ms:
        # Any number that differs between partitions and stays the same for a segment is enough.
        jitter = zlib.crc32(segment.path(names.LOG).encode()) % min(config.segment_jitter_ms, limit)
    return waited > limit - jitter
