"""Records of a share group in the answer to a fetch, which has whole batches."""

from __future__ import annotations

import json

import pytest

from pykbroker.tools.cluster.delivered_records import Allowance, DeliveredRecord
from pykbroker.tools.cluster.delivered_records import delivered_records as read_records
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.json_records import JsonFormat
from pykbroker.tools.cluster.record_format import FormatString, Shown
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_fetch import AcquiredRecords, PartitionData
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import end_txn_marker

TIME_MS = 1_700_000_000_000


def batch(first: int, count: int, codec: Codec = Codec.NONE, append_time_ms: int | None = None) -> bytes:
    records = [(b"k", b"%d" % offset, [("h", b"1")], TIME_MS + offset) for offset in range(first, first + count)]
    return build_batch(records, base_offset=first, codec=codec, log_append_time_ms=append_time_ms)


def answer(data: bytes, *acquired: tuple[int, int, int]) -> PartitionData:
    ranges = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in acquired
    ]
    return PartitionData(partition_index=3, records=memoryview(data), acquired_records=ranges)


def delivered_records(topic: str, answer: PartitionData) -> list[DeliveredRecord]:
    return read_records(topic, answer, Allowance())


def test_only_acquired_records_are_returned_with_their_counts() -> None:
    data = batch(0, 5) + batch(5, 5, Codec.LZ4) + batch(10, 5)
    found = delivered_records("t", answer(data, (2, 3, 1), (8, 10, 4)))
    assert [(one.offset, one.delivery_count) for one in found] == [(2, 1), (3, 1), (8, 4), (9, 4), (10, 4)]
    first = found[0]
    assert (first.topic, first.partition, first.key, first.value) == ("t", 3, b"k", b"2")
    assert (first.timestamp, first.timestamp_type, list(first.headers)) == (TIME_MS + 2, 0, [("h", b"1")])


def test_markers_are_left_out_and_the_times_of_brokers_are_named() -> None:
    marker = end_txn_marker(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=TIME_MS, base_offset=0
    )
    found = delivered_records("t", answer(marker + batch(1, 1, append_time_ms=TIME_MS + 9), (0, 1, 1)))
    assert [(one.offset, one.timestamp, one.timestamp_type) for one in found] == [(1, TIME_MS + 9, 1)]


def test_an_answer_without_records() -> None:
    assert delivered_records("t", PartitionData(partition_index=3)) == []


def test_bytes_that_are_no_records_are_a_failure() -> None:
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    with pytest.raises(AskFailed, match="t-3 has records that cannot be read: the batch at offset 0 has a wrong CRC"):
        delivered_records("t", answer(bytes(damaged), (0, 1, 1)))
    with pytest.raises(AskFailed) as caught:
        delivered_records("t", answer(b"x" * 100, (0, 1, 1)))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    # A batch of which nothing was acquired is not read.
    assert delivered_records("t", answer(bytes(damaged), (2, 3, 1))) == []


def test_all_partitions_of_an_answer_share_one_allowance() -> None:
    data = batch(0, 3)
    allowance = Allowance(items=7)
    assert len(read_records("t", answer(data, (0, 2, 1)), allowance)) == 3
    assert allowance.items == 1, "each record has one header"
    with pytest.raises(AskFailed, match="the answer has more than") as caught:
        read_records("t", answer(data, (0, 2, 1)), allowance)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_few_compressed_bytes_do_not_become_any_number_of_bytes() -> None:
    packed = build_batch([(None, bytes(1 << 20), (), TIME_MS)], base_offset=0, codec=Codec.ZSTD)
    assert len(packed) < 2000
    allowance = Allowance(size_bytes=5 << 19)
    for _ in range(2):
        assert len(read_records("t", answer(packed, (0, 0, 1)), allowance)) == 1
    with pytest.raises(AskFailed, match="t-3 has records that cannot be read"):
        read_records("t", answer(packed, (0, 0, 1)), allowance)
    # A batch of which nothing was acquired is not decompressed.
    assert read_records("t", answer(packed, (1, 1, 1)), allowance) == []


def test_a_delivery_count_is_printed() -> None:
    (record,) = delivered_records("t", answer(batch(0, 1), (0, 0, 7)))
    assert FormatString(r"%s %d\n", Shown()).written(record) == b"0 7\n"
    assert json.loads(JsonFormat(Shown()).written(record))["delivery_count"] == 7
