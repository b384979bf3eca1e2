"""Pieces for tasks: ranges cut into parts of about the same number of bytes, at the ends of batches if an index has
them.

Responsible for where to cut. Not responsible for reading a piece (piece_reader.py), which finds its files again.

Invariants: the pieces of a range are disjoint and cover it; each has at least one offset. There are at least
`minPartitions` of them, unless a range has fewer offsets than its share of pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pyspark_pykbroker.log_view import LogView, settled
from pyspark_pykbroker.pieces import Piece
from pyspark_pykbroker.ranges import Range
from pyspark_pykbroker.segment_file import SegmentFile
from pyspark_pykbroker.source_options import SourceOptions

#: A task keeps every file of its piece open.
_MOST_FILES = 200

#: A segment, and the positions where the range begins and ends in it.
Part = tuple[SegmentFile, int, int]


def split(ranges: Sequence[Range], options: SourceOptions) -> list[Piece]:
    """Return the pieces of all ranges. Raises the errors of LogView, except for changing files."""
    parts = [settled(each.replica.folder, lambda each=each: _parts(each)) for each in ranges]  # type: ignore[misc]
    sizes = [sum(end - start for _, start, end in part) for part in parts]
    wanted = options.split_bytes
    if options.min_partitions:
        wanted = max(1, min(wanted, sum(sizes) // options.min_partitions))
    pieces = []
    for each, part, size in zip(ranges, parts, sizes, strict=True):
        count = max(1, -(-size // wanted), -(-len(part) // _MOST_FILES))
        if options.max_records_per_partition:
            count = max(count, -(-(each.end - each.start) // options.max_records_per_partition))
        cuts = _cuts(each, part, size, count)
        if options.max_records_per_partition:
            cuts = _not_longer(cuts, options.max_records_per_partition)
        pieces += [Piece.of(each.replica, start, end) for start, end in pairwise(cuts)]
    return pieces


def _parts(wanted: Range) -> list[Part]:
    found = []
    view = LogView(wanted.replica.folder, wanted.start, wanted.end)
    for segment, following in zip(view.segments, [*view.segments[1:], None], strict=True):
        start = segment.position_before(wanted.start) if segment.base_offset < wanted.start else 0
        end = segment.size
        if following is None:
            # The index of an active segment may not reach that far.
            before = segment.position_before(wanted.end)
            end = before if before > start else segment.size
        found.append((segment, start, max(end, start + 1)))
        segment.release()
    return found


def _cuts(wanted: Range, parts: list[Part], size: int, count: int) -> list[int]:
    """Return offsets from the start to the end of the range, strictly increasing."""
    ends = list(accumulate(end - start for _, start, end in parts))
    cuts = [wanted.start]
    for number in range(1, count):
        target = size * number // count
        cut = _cut_at(wanted, parts, ends, target)
        if not cuts[-1] < cut < wanted.end:
            # The index is too coarse here, so cut by offsets.
            cut = wanted.start + (wanted.end - wanted.start) * number // count
        if cuts[-1] < cut < wanted.end:
            cuts.append(cut)
    if len(cuts) < count:
        offsets = wanted.end - wanted.start
        cuts = sorted({wanted.start + offsets * number // count for number in range(count)})
    return [*cuts, wanted.end]


def _cut_at(wanted: Range, parts: list[Part], ends: list[int], target: int) -> int:
    """Return an offset near the byte `target` of the range; the range's start if none is known."""
    index = min(bisect_right(ends, target), len(parts) - 1)
    segment, start, end = parts[index]
    before = ends[index - 1] if index else 0
    if target <= before:
        return max(segment.base_offset, wanted.start)
    try:
        found = segment.boundary_near(min(start + target - before, end))
    except FileNotFoundError:
        found = None
    segment.release()
    return found[0] if found is not None and found[1] >= start else wanted.start


def _not_longer(cuts: list[int], most: int) -> list[int]:
    found = [cuts[0]]
    for cut in cuts[1:]:
        while cut - found[-1] > most:
            found.append(found[-1] + most)
        found.append(cut)
    return found
