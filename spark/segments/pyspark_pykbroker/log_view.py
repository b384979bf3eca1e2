"""The segments of one partition's folder as they are at one moment, while a broker writes, compacts and deletes in it.

Responsible for the list of segments and for a consistent view of them. Not responsible for their content
(segment_file.py).

Invariants:
* A view is taken between two listings that agree, so the result of a compaction is seen whole, old or new.
* A `.swap` segment is complete and replaces the segments that begin within it, which the compaction removes before it
  gives the new one its name.
* A view that holds its files stays readable, whatever happens to the names; any other one raises Replaced, and is taken
  again (`settled`).
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TypeVar

from pykbroker_log import names
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_wire.records.batch import BatchHeader
from pyspark_pykbroker.directories import topic_id_of
from pyspark_pykbroker.faults import DamagedSegment, RecordsLost
from pyspark_pykbroker.segment_file import ADVICE, SegmentFile

#: A replacement renames files one after the other, with an fsync between: it ends within this time or it has stopped.
_PATIENCE_S = 10.0
_PAUSE_S = 0.01

Listing = tuple[tuple[int, str], ...]
T = TypeVar("T")


def list_segments(folder: str) -> Listing:
    """Return (base offset, state) of each segment that counts, in order. Raises RecordsLost if the folder is gone."""
    try:
        found = [parsed for name in os.listdir(folder) if (parsed := names.parse_segment_file(name)) is not None]
    except FileNotFoundError:
        raise RecordsLost(
            f"{folder} is gone: the topic was deleted, or the replica moved to another directory. Read again; if the "
            "replica moved, name its new directory."
        ) from None
    logs = {(each.base_offset, each.state) for each in found if each.kind == names.LOG}
    plain = {base for base, state in logs if state == ""}
    swaps = {base for base, state in logs if state == names.SWAP}
    return tuple(sorted([(base, names.SWAP) for base in swaps] + [(base, "") for base in plain - swaps]))


def settled(folder: str, look: Callable[[], T]) -> T:
    """Return the result of `look` once the files keep their names during the call. Raises RecordsLost,
    DamagedSegment."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return look()
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise DamagedSegment(
                    f"{folder} has changed for {_PATIENCE_S:g} s without a pause: read again"
                ) from None
        time.sleep(_PAUSE_S)


class LogView:
    """The segments that hold [start, end)."""

    def __init__(self, folder: str, start: int = 0, end: int | None = None, *, hold: bool = False) -> None:
        """`end` None means to the last segment. `hold`: keep all files readable. Raises RecordsLost if the folder is
        gone, and Replaced or another FileNotFoundError if files change during the call (see `settled`)."""
        self.folder = folder
        self._listing = list_segments(folder)
        bases = [base for base, _ in self._listing]
        # A `.swap` may reach beyond the beginning of the segment after it.
        has_swap = any(state for _, state in self._listing)
        first = 0 if has_swap else max(0, bisect_right(bases, start) - 1)
        found = [SegmentFile(folder, base, state) for base, state in self._listing[first:] if end is None or base < end]
        self._all = found
        if hold:
            for segment in found:
                _ = segment.view
        self.topic_id = topic_id_of(folder)
        self.segments = _without_replaced(found)
        self.check()
        #: of the whole folder
        self.first_offset = bases[0] if bases else None
        last = self.segments[-1].base_offset if self.segments else -1
        #: where the first segment after these begins
        self.next_base = next((base for base in bases if base > last), None)

    def check(self) -> None:
        """Raises FileNotFoundError if the names lead to other files than before."""
        if list_segments(self.folder) != self._listing or not all(segment.is_there() for segment in self._all):
            raise FileNotFoundError(f"{self.folder} has changed")

    def batches(self, start: int, end: int) -> Iterator[tuple[SegmentFile, int, BatchHeader]]:
        """Yield every batch that overlaps with [start, end), control batches too. Raises DamagedSegment if the log ends
        before `end`."""
        reached = start
        for segment in self.segments:
            if segment.base_offset >= end:
                return
            for position, header in segment.batches(segment.position_before(start)):
                if header.base_offset >= end:
                    return
                if header.next_offset <= reached:
                    continue
                yield segment, position, header
                reached = header.next_offset
                if reached >= end:
                    return
            segment.release()
        self.check_end(reached, end)

    def check_end(self, reached: int, end: int) -> None:
        """Raises DamagedSegment if the segments end at `reached` and no segment continues before `end`, which was
        safe."""
        if reached < end and (self.next_base is None or self.next_base < end):
            raise DamagedSegment(
                f"{self.folder} ends at offset {reached}, but offsets up to {end} were safe (high watermark): a crash "
                f"has cut off the log, or it was copied while it was written. {ADVICE}"
            )

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap with [start, end). The view must reach to the log's end, because
        a marker may be far after the records. Raises DamagedSegment."""
        found: list[AbortedTxn] = []
        for segment in self.segments:
            if segment.aborted(start, end, found):
                break
        self.check()
        return found


def _without_replaced(found: list[SegmentFile]) -> list[SegmentFile]:
    """Leave out the segments whose records are in a `.swap` before them."""
    if not any(segment.is_swap for segment in found):
        return found
    kept: list[SegmentFile] = []
    covered = -1
    for segment in found:
        if segment.base_offset < covered and not segment.is_swap:
            continue
        kept.append(segment)
        if segment.is_swap:
            covered = max([covered, *(header.next_offset for _, header in segment.batches(0))])
    return kept
