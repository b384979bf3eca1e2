"""One compaction of a log while it is under way: the worker's input, and how its results become part of the log.

Responsible for the order in which segments are replaced, so that a crash at any moment leaves either the old or the new
segments. Also responsible for dropping results if a truncation or a deletion has changed the log in the meantime. Not
responsible for the choice of segments (dirty_segments.py) and the cleaning (compaction.py).

A replacement has three steps. After each step a thread fsyncs the folder, and only then the next step begins:
1. `.cleaned` -> `.swap`: from now on a start finishes the replacement;
2. readers use the new segment, and the old segments' files are renamed to `.deleted`;
3. `.swap` -> the final names.
A power loss keeps any of the changes of a folder since its last fsync. Without the first fsync the old segments could
be gone and the new ones still be `.cleaned`. Without the second, old segments could come back although a new one covers
them.

Invariants:
* The records that are cleaned are durable before the worker reads them, and so are the markers that decide them. So no
  record is removed because of another record or marker that a power loss may remove.
* A replacement replaces exactly the segments it was made from, none of which has changed.
* A truncation calls `abandon` before it cuts the log: no `.swap` brings back records that were cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pykbroker_log import names
from pykbroker_log.compaction import CleanedSegment, CleanerMemory, CleaningJob, LastRecord, SegmentSource
from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.segment import Segment

if TYPE_CHECKING:
    from pykbroker_log.log_config import LogConfig
    from pykbroker_log.log_files import LogFiles
    from pykbroker_log.producers import ProducerEntry


class CleanablePart(Protocol):
    """The part of a log that is cleaned (dirty_segments.py describes it)."""

    @property
    def first_dirty_offset(self) -> int: ...

    @property
    def first_uncleanable_offset(self) -> int:
        """Exclusive end, the base offset of a segment."""


class Replacement:
    __slots__ = ("_announced", "_config", "_files", "_segments", "_unsettled", "cleaning", "is_void")

    def __init__(
        self,
        files: LogFiles,
        config: Callable[[], LogConfig],
        producers: Mapping[int, ProducerEntry],
        cleanable: CleanablePart,
        *,
        memory: CleanerMemory,
        seed: bytes,
        now_ms: int,
        jumps: Jumps = NO_JUMPS,
    ) -> None:
        """`config` returns the configuration of the log now."""
        end = cleanable.first_uncleanable_offset
        assert end <= files.recovery_point, (files.path, end, files.recovery_point)
        self._files = files
        self._config = config
        segments = files.segments
        self._segments = {segment.base_offset: segment for segment in segments if segment.base_offset < end}
        # `_announced` is set between steps 1 and 2, `_unsettled` between steps 2 and 3.
        self._announced: Segment | None = None
        self._unsettled: Segment | None = None
        #: the log was truncated: no result of the worker can be used
        self.is_void = False
        self.cleaning = CleaningJob(
            folder=files.path,
            sources=tuple(SegmentSource(base, segment.size) for base, segment in self._segments.items()),
            later=tuple(segment.base_offset for segment in segments if segment.base_offset >= end),
            first_dirty_offset=cleanable.first_dirty_offset,
            first_uncleanable_offset=end,
            producers={
                producer_id: LastRecord(entry.last_offset, entry.epoch) for producer_id, entry in producers.items()
            },
            config=config(),
            memory=memory,
            seed=seed,
            now_ms=now_ms,
            jumps=jumps,
        )

    def steps(self, cleaned: CleanedSegment, now_ms: int) -> Iterator[Callable[[], None]]:
        """Put a cleaned segment in its place. Each item is a sync, which the caller does on a thread before it takes
        the next item. A result that can no longer be used is dropped. Raises OSError, StorageError."""
        files, config = self._files, self._config()
        segment = Segment(
            files.disk,
            files.path,
            cleaned.base_offset,
            index_interval_bytes=config.index_interval_bytes,
            now_ms=now_ms,
            size=cleaned.size,
            state=names.CLEANED,
        )
        if self._usable(cleaned.sources) is None:
            self._drop(segment)
            return
        self._announced = segment
        try:
            segment.rename(names.SWAP)
        except OSError:
            # A start must not find the files that were already renamed.
            self._drop(segment)
            raise
        yield self._sync
        sources = self._usable(cleaned.sources)
        if sources is None:
            # Retention has removed some of them, or a truncation has abandoned the replacement on its own thread.
            if not self.is_void:
                self.abandon()
            return
        self._announced, self._unsettled = None, segment
        for source in cleaned.sources:
            del self._segments[source.base_offset]
        self._exchange(sources, segment, now_ms)
        yield self._sync
        if not self.is_void:
            self._settle()

    def _exchange(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Make `new` replace `old` for readers. Bytes of `old` that they already have stay valid."""
        files = self._files
        files.segments.exchange(old, new)
        due_ms = now_ms + self._config().file_delete_delay_ms
        try:
            for segment in old:
                segment.gone = True
                segment.close()
                files.deletion.doom(segment.paths(), due_ms)
                if segment.base_offset != new.base_offset:
                    files.deletion.doom(files.side.release_snapshot(segment.base_offset), due_ms)
        except OSError as error:
            raise files.failed(error) from error

    def _usable(self, sources: Iterable[SegmentSource]) -> list[Segment] | None:
        """Return the segments if the log still has all of them, else None."""
        if self.is_void or self._files.is_closed:
            return None
        segments = [self._segments[source.base_offset] for source in sources]
        present = set(map(id, self._files.segments))
        return segments if all(id(segment) in present for segment in segments) else None

    @property
    def is_overtaken(self) -> bool:
        """True if the log has lost segments that the worker cleans, other than by `steps`."""
        return self._usable(SegmentSource(base, 0) for base in self._segments) is None

    def _sync(self) -> None:
        if not self._files.is_closed:
            self._files.disk.fsync_dir(self._files.path)

    def _settle(self) -> None:
        segment, self._unsettled = self._unsettled, None
        if segment is not None and not self._files.is_closed:
            try:
                segment.rename("")
            except OSError as error:
                raise self._files.failed(error) from error

    def abandon(self) -> None:
        """Give up the replacement, because the log is about to lose records that the worker may have read. On return no
        file of the replacement can bring them back. Raises OSError, StorageError."""
        self.is_void = True
        if self._announced is not None:
            self._drop(self._announced)
            self._sync()
            self._announced = None
        if self._unsettled is not None:
            self._sync()
            self._settle()

    def _drop(self, segment: Segment) -> None:
        if not self._files.is_closed:
            segment.remove()
