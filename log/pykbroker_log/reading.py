"""A read: whole batches of one segment, from an offset up to a bound.

Not responsible for how far a reader may read (the caller passes the bounds), nor for what happens to the slices. A read
changes only the positions that segments remember, so a read that raises ColdRead can be started again.
"""

from __future__ import annotations

import contextlib
import errno
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.epochs import LeaderEpochs
from pykbroker_log.results import ReadResult
from pykbroker_log.segment import Segment
from pykbroker_log.segments import Segments
from pykbroker_log.slices import cut
from pykbroker_wire.records.batch import CorruptBatch


class Bounds(NamedTuple):
    """Offsets, exclusive."""

    upper: int
    """The bound of this reader."""
    stable: int
    """The high watermark; records below it are never cut off."""
    log_end: int


def _boundary(segment: Segment, start: int, limit: int) -> tuple[int, int] | None:
    """Return `Segment.boundary`; if the segment is damaged, the boundary of the whole batches before the damage."""
    try:
        return segment.boundary(start, limit)
    except CorruptBatch:
        last = None
        with contextlib.suppress(CorruptBatch):
            for position, header in segment.walk(start):
                if position + header.size_in_bytes > limit:
                    break
                last = position + header.size_in_bytes, header.next_offset
        if last is None:
            raise
        return last


def read_batches(
    segments: Segments,
    epochs: LeaderEpochs,
    bounds: Bounds,
    offset: int,
    max_bytes: int,
    *,
    min_one: bool,
    regions: bool,
    with_aborted: bool,
) -> ReadResult:
    """See PartitionLog.read. Raises OSError, CorruptBatch, ColdRead."""
    found = segments.locate(offset)
    if found is None:
        return ReadResult([], 0, offset, offset, -1)
    segment, start, first_offset = found
    limit, next_offset = segments.limit(segment, bounds.upper, bounds.log_end)
    end = limit
    if start >= limit:
        # The batch that contains `offset` extends beyond the bound.
        end = start
    elif limit - start > max_bytes:
        boundary = _boundary(segment, start, start + max_bytes)
        if boundary is not None:
            end, next_offset = boundary
        elif min_one:
            header = segment.header_at(start)
            end, next_offset = start + header.size_in_bytes, header.next_offset
            if not start < end <= limit:
                # A bit has flipped in the header. The disk has not failed: the directory must not go offline.
                raise CorruptBatch(f"no batch at position {start} of {segment.path(names.LOG)}")
        else:
            end = start
    if end == start:
        result = ReadResult([], 0, offset, offset, -1)
    else:
        stable_end = limit if bounds.upper <= bounds.stable else 0
        data = cut(segment.file, start, end, stable_end, regions)
        if len(data) != end - start:
            raise OSError(errno.EIO, "segment is shorter than it was", segment.path(names.LOG))
        segments.remember(next_offset, segment, end)
        result = ReadResult([data], end - start, first_offset, next_offset, epochs.of_offset(next_offset - 1))
    if with_aborted:
        result.aborted = segments.aborted(offset, segment, end, next_offset, bounds.log_end)
    return result
