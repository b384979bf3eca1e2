"""Reads the records of a source partition from this broker's log, for letters that copy them (KIP-1191).

Responsible for not blocking the loop: bytes that are not in memory are loaded on a thread, and batches that take long
are copied off the loop. Not responsible for the records (source_records.py).

It reads up to the high watermark, also after this broker has stopped being the leader, because these records are the
same on every replica. The high watermark of a new leader may be too low for a while. Records that were delivered lay
below the one of the earlier leader, so such a read ends with `NotReadable.NOT_YET`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from pykbroker.dead_letters.source_records import NotReadable, SourceOutcome, copy_records, takes_long
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_log.disk import ColdRead
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.records.batch import CorruptBatch

if TYPE_CHECKING:
    from pykbroker.replica.batch_checks import BatchChecks
    from pykbroker.replica.partition import Partition
    from pykbroker.runtime.cold_reads import ColdReads

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: One read gets this many bytes, or one batch. Apache Kafka's number (DLQ_MAX_FETCH_BYTES).
READ_BYTES: Final = 1 << 20


class SourceReader:
    """The reads of one broker. `find` returns a partition by topic id and index, None if it is not here."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        find: Callable[[bytes, int], Partition | None],
        cold_reads: ColdReads,
        batch_checks: BatchChecks,
    ) -> None:
        self._loop = loop
        self._find = find
        self._cold_reads = cold_reads
        self._batch_checks = batch_checks
        self._lines = LineLimit(loop.time)

    def read(
        self, topic_id: bytes, index: int, first: int, last: int, most_bytes: int
    ) -> asyncio.Future[SourceOutcome]:
        """Copy the keys and values of the offsets from `first` to `last`, as far as one read gets. Return a future of
        them, or of the reason for which the log cannot be read. `most_bytes`: see `copy_records`. The future never
        fails; it is cancelled if the node stops."""
        ended: asyncio.Future[SourceOutcome] = self._loop.create_future()
        operation = partial(self._read, topic_id, index, first, last)
        then = partial(self._copy, ended, first, last, most_bytes)
        try:
            data = operation(False)
        except ColdRead as cold:
            self._cold_reads.retry(cold, operation).add_done_callback(lambda read: _after(ended, read, then))
        except Exception:
            # The writer has few reads under way. One without an end would hold all that come after it.
            logger.exception("Offset %d cannot be read for a dead letter", first)
            _finish(ended, NotReadable.LOST)
        else:
            then(data)
        return ended

    def _read(self, topic_id: bytes, index: int, first: int, last: int, wait: bool) -> bytes | NotReadable:
        partition = self._find(topic_id, index)
        if partition is None:
            return NotReadable.LOST
        if partition.recovering:
            return NotReadable.NOT_YET
        try:
            log = partition.log
            if log.high_watermark <= first < log.log_end_offset:
                return NotReadable.NOT_YET
            # One record needs one batch only.
            most_bytes = 1 if first == last else READ_BYTES
            found = partition.read(first, most_bytes, read_committed=False, min_one=True, wait=wait)
        except KafkaError as error:
            # The log may begin after thousands of records, each of which is read by itself.
            left_out = self._lines.take(str(partition))
            if left_out is not None:
                logger.info("%s: offset %d cannot be read for a dead letter: %s%s", partition, first, error, left_out)
            return NotReadable.LOST
        return b"".join(bytes(each) for each in found.slices if isinstance(each, bytes))

    def _copy(
        self,
        ended: asyncio.Future[SourceOutcome],
        first: int,
        last: int,
        most_bytes: int,
        data: bytes | NotReadable,
    ) -> None:
        if isinstance(data, NotReadable):
            _finish(ended, data)
            return
        try:
            if not takes_long(data, first, last):
                _finish(ended, copy_records(data, first, last, most_bytes))
                return
        except CorruptBatch as error:
            logger.warning("Offset %d cannot be copied to a dead letter: %s", first, error)
            _finish(ended, NotReadable.LOST)
            return
        except Exception:
            logger.exception("Offset %d cannot be copied to a dead letter", first)
            _finish(ended, NotReadable.LOST)
            return
        copying = self._batch_checks.run(copy_records, data, first, last, most_bytes)
        copying.add_done_callback(lambda copied: _after(ended, copied, partial(_finish, ended)))


def _finish(ended: asyncio.Future[SourceOutcome], found: SourceOutcome) -> None:
    if not ended.done():
        ended.set_result(found)


def _after(
    ended: asyncio.Future[SourceOutcome], future: asyncio.Future[T], then: Callable[[T | NotReadable], None]
) -> None:
    """Go on with the result of a step off the loop, or with LOST if it has failed."""
    if future.cancelled():
        ended.cancel()
        return
    error = future.exception()
    if error is not None:
        logger.warning("Records could not be copied to dead letters", exc_info=error)
    then(NotReadable.LOST if error is not None else future.result())
