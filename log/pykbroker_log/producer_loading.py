"""The producers of a log when it is opened or was cut: from the newest usable snapshot and the batches after it.

Responsible for which snapshot is believed, for the snapshots that are dropped or written again, and for replaying
batches. Not responsible for the state itself (producers.py), nor for the check of the batches (log_loading.py).

Invariants:
* The state that is left is that of a log which was appended up to the same offset.
* A snapshot that a crash left is believed only if no record before it can be missing.
* Snapshots are written without fsync: `rewritten` has those that the next flush must fsync.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pykbroker_log import names
from pykbroker_log.disk import Disk, read_file, write_new
from pykbroker_log.producers import CorruptProducerSnapshot, ProducerStates
from pykbroker_wire.records.batch import CONTROL

if TYPE_CHECKING:
    from pykbroker_log.segment import Segment


class ProducerLoader:
    __slots__ = ("_disk", "_log_start_offset", "_now_ms", "_path", "rewritten", "snapshots", "states", "warnings")

    def __init__(
        self,
        disk: Disk,
        path: str,
        states: ProducerStates,
        *,
        now_ms: int,
        log_start_offset: int,
        snapshots: Iterable[int] = (),
    ) -> None:
        """`path` is the folder of the log, and `snapshots` are the offsets of the snapshots in it."""
        self._disk = disk
        self._path = path
        self.states = states
        self._now_ms = now_ms
        self._log_start_offset = log_start_offset
        self.snapshots = sorted(snapshots)
        #: the snapshots that were written here
        self.rewritten: set[int] = set()
        #: warnings for the operator
        self.warnings: list[str] = []

    def found(self, snapshots: Iterable[int]) -> None:
        """Note the snapshots of the folder."""
        self.snapshots = sorted(snapshots)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._path}/{names.segment_file(offset, names.SNAPSHOT)}"

    def load(self, segments: Sequence[Segment], upto: int, *, is_scan: bool = False) -> None:
        """Load the newest usable snapshot at or before `upto`. Without one, no producer is known up to the log's start.

        A scan may use any snapshot after which no segment is missing; without one the scan begins with no producers,
        and batches before the log's start count too, as in Apache Kafka. A clean start uses no snapshot at or before
        the log's start.
        """
        first = segments[0].base_offset
        lowest = first if is_scan else self._log_start_offset + 1
        for offset in reversed([offset for offset in self.snapshots if lowest <= offset <= upto]):
            try:
                self.states.load(read_file(self._disk, self._snapshot_path(offset)), offset, self._now_ms)
                return
            except CorruptProducerSnapshot as error:
                self.warnings.append(f"the producer snapshot at offset {offset} cannot be used and is removed: {error}")
                self._drop(offset)
        self.states.clear(min(upto, max(self._log_start_offset, first)))

    def catch_up(self, segments: Sequence[Segment], upto: int) -> None:
        """Replay batch headers from the offset at which the producer state ends.

        Each segment on the way gets the snapshot that it has lost, because the batches that could restore it may be
        deleted next. Apache Kafka does this for the last two segments."""
        producers = self.states
        if producers.map_end_offset == 0 and not producers.entries:
            self.load(segments, upto)
        if producers.map_end_offset >= upto:
            return
        ends = [segment.base_offset for segment in segments[1:]]
        lost = {offset for offset in ends if producers.map_end_offset < offset <= upto}.difference(self.snapshots)
        for segment in segments[bisect_right(ends, producers.map_end_offset) :]:
            if segment.base_offset >= upto:
                break
            if segment.base_offset in lost:
                self.rewrite(segment.base_offset)
            for position, header in segment.walk(segment.position_for(producers.map_end_offset)):
                if header.last_offset < producers.map_end_offset:
                    continue
                if header.base_offset >= upto:
                    break
                # Only a control batch needs more than its header.
                needs_body = header.attributes & CONTROL and header.producer_id >= 0
                producers.replay(header, segment.read_batch(position, header) if needs_body else None)
        producers.map_end_offset = upto
        if upto in lost:
            self.rewrite(upto)

    def drop_strays(self, segments: Sequence[Segment], log_end_offset: int) -> None:
        """Keep the snapshots at segment bases and the newest one. The first segment's snapshot is kept too, though no
        record before it is left, because the scan after a crash begins with it."""
        bases = {segment.base_offset for segment in segments}
        newest = max((offset for offset in self.snapshots if offset <= log_end_offset), default=-1)
        for offset in list(self.snapshots):
            stray = offset not in bases and offset != newest
            deleted = offset <= self._log_start_offset and offset != segments[0].base_offset
            if offset > log_end_offset or deleted or stray:
                self._drop(offset)

    def drop_after(self, offset: int) -> None:
        """Drop the snapshots after this offset that were not written here."""
        for found in [found for found in self.snapshots if found > offset and found not in self.rewritten]:
            self._drop(found)

    def _drop(self, offset: int) -> None:
        self.snapshots.remove(offset)
        self._disk.unlink(self._snapshot_path(offset))

    def rewrite(self, offset: int) -> None:
        """Write the state at `offset`, a segment's base. It is certain now, while a snapshot that a crash left may
        belong to records that are gone."""
        path, data = self._snapshot_path(offset), self.states.encode()
        if offset not in self.snapshots or read_file(self._disk, path) != data:
            write_new(self._disk, path, data, sync=False)
        self.rewritten.add(offset)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
            self.snapshots.sort()
