"""Helpers for the tests of log/: small batches, and readers of everything in a log."""

from __future__ import annotations

from pykbroker_log.disk import Disk
from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS, ProducerStates
from pykbroker_log.segment import Segment
from pykbroker_wire.records.batch import BatchHeader, build_batch, iter_batches, seal, verify_crc
from pykbroker_wire.records.compression import Codec, compress
from pykbroker_wire.records.record import iter_records
from testkit.logs.transactions import check_transactions

TOPIC_ID = bytes(range(16))
NOW = 1_700_000_000_000


def batch(
    *values: bytes, timestamp: int = NOW, pid: int = -1, epoch: int = -1, seq: int = -1, txn: bool = False
) -> bytearray:
    records = [(None, value, (), timestamp) for value in values]
    return bytearray(build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=txn))


def sealed(content: bytes, count: int, codec: Codec) -> bytes:
    """A batch of `count` encoded records, which may be as wrong as a test needs."""
    return bytes(
        seal(
            compress(codec, content) if codec else content,
            record_count=count,
            last_offset_delta=count - 1,
            base_timestamp=NOW,
            max_timestamp=NOW,
            attributes=codec,
            base_offset=0,
            leader_epoch=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
    )


def open_log(
    disk: Disk | None = None,
    *,
    config: LogConfig | None = None,
    path: str = "data/t-0",
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    now_ms: int = NOW,
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
) -> PartitionLog:
    return PartitionLog.open(
        disk or MemoryDisk(),
        path,
        topic="t",
        partition=0,
        topic_id=TOPIC_ID,
        config=config or LogConfig(),
        now_ms=now_ms,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        producer_id_expiration_ms=producer_id_expiration_ms,
    )


def append(log: PartitionLog, *values: bytes, epoch: int = 0, timestamp: int = NOW) -> int:
    info = log.append_as_leader(batch(*values, timestamp=timestamp), leader_epoch=epoch, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    return info.first_offset


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from the log's start to its end, as a sequential consumer reads them."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes, log.log_end_offset)
        data = result.joined()
        assert len(data) == result.size > 0
        assert result.next_offset > offset
        end = offset
        for position, header in iter_batches(data):
            assert verify_crc(data, position, header)
            found.append((header, data[position : position + header.size_in_bytes]))
            end = header.next_offset
        assert end <= result.next_offset
        assert result.last_epoch == found[-1][0].partition_leader_epoch
        offset = result.next_offset
    return found


def values(log: PartitionLog) -> dict[int, bytes]:
    """Offset -> value of every record from the log's start."""
    return {
        record.offset: bytes(record.value or b"")
        for header, data in read_all(log)
        for record in iter_records(data, 0, header)
        if record.offset >= log.log_start_offset
    }


def check_compacted(log: PartitionLog) -> None:
    """Check that the batches and segments of a compacted log follow each other, and that the indexes lead to them."""
    expected = log.files.segments[0].base_offset
    for segment in log.files.segments:
        assert segment.base_offset >= expected, f"{segment} begins before {expected}, where the one before it ends"
        expected = check_indexes(segment)
    assert expected <= log.log_end_offset


def check_indexes(segment: Segment) -> int:
    """Check that every entry leads to a batch and that the largest timestamp is known; return the end of the
    segment."""
    expected = segment.base_offset
    ends = {}
    reached = {}
    largest, largest_offset = -1, segment.base_offset
    for position, header in segment.walk(0):
        assert verify_crc(segment.read_batch(position, header), 0, header)
        assert header.base_offset >= expected, (segment, header, expected)
        expected = header.next_offset
        ends[position] = header.last_offset
        if header.max_timestamp > largest:
            largest, largest_offset = header.max_timestamp, header.last_offset
            reached[largest] = largest_offset
    assert sum(header.size_in_bytes for _, header in segment.walk(0)) == segment.size == segment.file.size()
    entries = segment.offset_index.entries()
    assert entries == sorted(set(entries))
    for relative, position in entries:
        assert ends[position] == segment.base_offset + relative
    times = segment.time_index.entries()
    assert times == sorted(set(times))
    for timestamp, relative in times:
        assert reached[timestamp] == segment.base_offset + relative
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (largest, largest_offset), segment
    return expected


def check_consistent(log: PartitionLog, *, dense_from: int = 0) -> None:
    """Check that indexes, epochs, producers and offsets agree with the batches in the files.

    Below `dense_from` offsets may be missing: a power loss may bring back a part of what retention has deleted.
    """
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    assert log.recovery_point <= log.log_end_offset
    states = ProducerStates()
    expected = log.files.segments[0].base_offset
    for segment in log.files.segments:
        assert segment.base_offset == expected or expected < segment.base_offset <= dense_from
        expected = segment.base_offset
        for position, header in segment.walk(0):
            assert header.base_offset == expected, (header, expected)
            expected = header.next_offset
            states.replay(header, segment.read_batch(position, header))
            if header.last_offset >= log.log_start_offset:
                first = max(header.base_offset, log.log_start_offset)
                assert log.epochs.of_offset(first) == header.partition_leader_epoch
        check_indexes(segment)
    assert expected == log.log_end_offset
    for pid, entry in states.entries.items():
        if entry.last_offset >= max(log.log_start_offset, dense_from):
            known = log.producers.entries[pid]
            assert (known.epoch, known.last_sequence, known.last_offset) == (
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
            )
            bound = max(log.log_start_offset, dense_from)
            if entry.txn_first_offset < 0 or entry.txn_first_offset >= bound:
                # A snapshot may contain the beginning of a transaction whose records are gone.
                assert known.txn_first_offset == entry.txn_first_offset or 0 <= known.txn_first_offset < bound
    check_transactions(log, dense_from=dense_from)
    for offset in range(max(dense_from, log.log_start_offset), log.log_end_offset):
        result = log.read(offset, 1, log.log_end_offset)
        header = BatchHeader.parse(result.joined())
        assert header.base_offset <= offset <= header.last_offset
