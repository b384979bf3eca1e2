"""Finds gaps in a log: records that are lost because a file is missing. The other files of the folder show the gap.

Pure. Responsible for records before the log's end. Not responsible for records after it, which the checkpoints of the
directory show (log_dirs.py), nor for the ends of sealed segments, which are checked when they are first read
(segments.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pykbroker_log import names


@dataclass(slots=True, frozen=True)
class Left:
    """The files and offsets that a start has found."""

    #: base offset and size of each segment, in order
    segments: Sequence[tuple[int, int]]
    #: base offsets of segments that have an index but no log file
    orphans: Sequence[int]
    #: the start offset of the first leader epoch
    first_epoch_start: int | None
    log_start_offset: int
    log_end_offset: int
    clean: bool
    #: True if the log was never compacted
    dense: bool


def missing_records(left: Left) -> list[str]:
    """Return one text for each gap."""
    bases = [base for base, _ in left.segments]
    gaps: list[tuple[int, int, str]] = []
    if left.clean or left.dense:
        # Not every index without a log is a loss. A crash during compaction leaves one too, and segments before the log
        # start were about to be removed by retention.
        for base in left.orphans:
            after = bisect_right(bases, base)
            if left.log_start_offset <= base < left.log_end_offset and after < len(bases):
                gaps.append((base, bases[after], f"of {_log(base)} only the index is left"))
    if left.dense:
        gaps += [
            (base, after, f"{_log(base)} is empty") for (base, size), (after, _) in pairwise(left.segments) if not size
        ]
    if left.clean and left.first_epoch_start is not None:
        # After a clean stop the epochs begin at the log start.
        begin = max(left.first_epoch_start, left.log_start_offset)
        end = min([bases[0], *(base for base, _, _ in gaps)])
        if begin < end:
            gaps.append((begin, end, f"nothing is left of what was before {_log(end)}"))
    return [f"{why}: the records from offset {begin} to {end - 1} are missing" for begin, end, why in sorted(gaps)]


def _log(base: int) -> str:
    return names.segment_file(base, names.LOG)
