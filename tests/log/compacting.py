"""Helpers for the tests of compaction: a whole cleaning in one call, and a log as (offset, key, value)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pykbroker_log.compaction import CleanedSegment, CleanerMemory, CleaningResult, Part, Uncleanable, clean
from pykbroker_log.dirty_segments import cleanable
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import BatchHeader, build_batch, iter_batches, verify_crc
from pykbroker_wire.records.dedupe import SLOT_SIZE
from pykbroker_wire.records.record import Headers, Record, iter_records
from testkit.logs.helpers import NOW

SEED = bytes(16)
#: 1000 keys fit, and buffers are smaller than most batches
ROOMY = CleanerMemory(map_bytes=1000 * SLOT_SIZE, load_factor=1.0, io_buffer_bytes=100)

KeyValue = tuple[bytes | None, bytes | None]


def keyed(
    *pairs: KeyValue,
    timestamp: int = NOW,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    txn: bool = False,
    codec: int = 0,
    headers: Headers = (),
) -> bytearray:
    records = [(key, value, headers, timestamp + index) for index, (key, value) in enumerate(pairs)]
    return bytearray(
        build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=txn, codec=codec)
    )


def put(log: PartitionLog, *pairs: KeyValue, **fields: object) -> int:
    """Append as leader; the records count as replicated at once. Return the first offset."""
    info = log.append_as_leader(keyed(*pairs, **fields), leader_epoch=0, now_ms=NOW)  # type: ignore[arg-type]
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset


def compact(
    log: PartitionLog,
    checkpoint: int | None = None,
    *,
    now_ms: int = NOW,
    memory: CleanerMemory = ROOMY,
    between: Callable[[], object] = lambda: None,
) -> CleaningResult | None:
    """Run one cleaning as the manager does it. `between` is called wherever the loop would run. Return None if there is
    nothing to clean."""
    found = cleanable(log, checkpoint, now_ms)
    if not found.cleanable_bytes:
        return None
    log.flush()
    replacement = log.begin_replacement(found, memory=memory, seed=SEED, now_ms=now_ms)
    try:
        job = clean(log.files.disk, replacement.cleaning)
        while True:
            part: Part
            try:
                part = next(job)
            except StopIteration as end:
                result: CleaningResult = end.value
                return result
            between()
            if isinstance(part, CleanedSegment):
                for sync in replacement.steps(part, now_ms):
                    sync()
                    between()
    except (OSError, Uncleanable):
        # A truncation may have cut the file that the worker reads.
        if not replacement.is_void:
            raise
        return None
    finally:
        log.end_replacement()


def records(log: PartitionLog) -> Iterator[tuple[BatchHeader, Record]]:
    """Yield the records of every batch, as a sequential consumer reads them. After a power loss the log may be empty at
    its end."""
    offset = log.log_start_offset
    while (result := log.read(offset, 1 << 20, log.log_end_offset)).size:
        data = result.joined()
        for position, header in iter_batches(data):
            assert verify_crc(data, position, header)
            for record in iter_records(data, position, header):
                yield header, record
        offset = result.next_offset


def contents(log: PartitionLog) -> dict[int, KeyValue]:
    """Offset -> (key, value) of all records that are not control records."""
    return {
        record.offset: (
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
        )
        for header, record in records(log)
        if not header.is_control
    }


def newest(pairs: Sequence[tuple[int, KeyValue]]) -> dict[bytes, tuple[int, bytes | None]]:
    """Key -> last offset and value: the records that compaction keeps."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for offset, (key, value) in pairs:
        assert key is not None
        found[key] = (offset, value)
    return found
