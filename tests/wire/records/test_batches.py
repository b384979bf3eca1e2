"""Batches: round trips, Apache Kafka's own bytes, comparisons with kafka-python and aiokafka, aliasing, stamping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from pykbroker_wire.records.batch import (
    HEADER_SIZE,
    MAX_INT32,
    BatchBuilder,
    BatchHeader,
    CorruptBatch,
    build_batch,
    decrement_sequence,
    increment_sequence,
    iter_batches,
    restamp_timestamp,
    stamp,
    verify_crc,
)
from pykbroker_wire.records.compression import Codec, CompressionError, TooLarge
from pykbroker_wire.records.record import InvalidRecord, Record, iter_records, read_varint, read_varlong, varint
from pykbroker_wire.records.walk import walk

GOLDEN = Path(__file__).parents[2] / "golden" / "records" / "batches.txt"
NOW = 1_700_000_000_000


def golden() -> dict[str, bytes]:
    lines = GOLDEN.read_text().splitlines()
    return {name: bytes.fromhex(data) for name, _, data in (line.partition(" => ") for line in lines)}


Plain = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def plain(record: Record) -> Plain:
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    return record.offset, record.timestamp, key, value, record.headers


def golden_records(count: int) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]:
    """The records that KafkaBatches.java writes."""
    return [
        (
            None if i % 4 == 0 else b"key%d" % i,
            None if i % 5 == 4 else b"value " * (i % 20),
            [(f"h\u00e9{h}", None if h == 1 else bytes(i)) for h in range(i % 3)],
            NOW + (i * 100 if i % 2 == 0 else -i),
        )
        for i in range(count)
    ]


# --- Apache Kafka's bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_reads_what_kafka_wrote(codec: Codec) -> None:
    for name, count, base in (("records", 10, 1000), ("many", 300, 0)):
        data = golden()[f"{name}-{codec.name.lower()}"]
        ((position, header),) = iter_batches(data)
        assert verify_crc(data, position, header)
        assert (header.compression, header.record_count, header.base_offset) == (codec, count, base)
        found = [plain(record) for record in iter_records(data, position, header)]
        assert found == [(base + i, ts, key, value, h) for i, (key, value, h, ts) in enumerate(golden_records(count))]


def test_writes_what_kafka_wrote() -> None:
    identity: dict[str, Any] = {"producer_id": 77, "producer_epoch": 3, "base_sequence": 12}
    expected = golden()
    assert build_batch(golden_records(10), base_offset=1000, leader_epoch=5, **identity) == expected["records-none"]
    assert build_batch(golden_records(300)) == expected["many-none"]
    assert (
        build_batch(golden_records(3), base_offset=5, leader_epoch=6, transactional=True, **identity)
        == expected["transactional"]
    )
    assert build_batch(golden_records(3), base_offset=9, log_append_time_ms=NOW + 99) == expected["append-time"]
    builder = BatchBuilder(base_offset=1000, leader_epoch=5, **identity)
    for key, value, headers, timestamp in golden_records(10):
        builder.append(key, value, headers, timestamp)
    assert builder.size_in_bytes == len(expected["records-none"])
    assert builder.build() == expected["records-none"]


@pytest.mark.parametrize("codec", list(Codec))
def test_same_header_as_kafka_when_compressed(codec: Codec) -> None:
    theirs = BatchHeader.parse(golden()[f"many-{codec.name.lower()}"])
    ours = BatchHeader.parse(build_batch(golden_records(300), codec=codec))
    assert ours._replace(batch_length=0, crc=0) == theirs._replace(batch_length=0, crc=0)


# --- round trips -----------------------------------------------------------------------------------------------------

maybe_bytes = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=20), maybe_bytes), max_size=4)
timestamps = st.integers(-1, 2**45) | st.sampled_from((0, -1, 2**62))
record_lists = st.lists(st.tuples(maybe_bytes, maybe_bytes, header_lists, timestamps), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(record_lists, st.sampled_from(list(Codec)), st.integers(0, 2**60), st.data())
def test_round_trip(records: list[Any], codec: Codec, base: int, data: st.DataObject) -> None:
    builder = BatchBuilder(codec=codec, base_offset=base, leader_epoch=4, producer_id=8, producer_epoch=1)
    expected = []
    offset = base
    for key, value, headers, timestamp in records:
        assert builder.append(key, value, headers, timestamp, offset=offset) == offset
        expected.append((offset, timestamp, key, value, headers))
        offset += data.draw(st.integers(1, 3))
    last = expected[-1][0]
    batch = builder.build(last_offset=last + 2)
    padded = b"xyz" + batch + batch[:50]  # at a position, and followed by the beginning of another
    ((position, header),) = iter_batches(padded, 3)
    assert position == 3
    assert verify_crc(padded, position, header)
    assert [plain(record) for record in iter_records(padded, position, header)] == expected
    assert header.last_offset == last + 2
    assert header.max_timestamp == max(timestamp for *_, timestamp in records)
    if codec == Codec.NONE and all(one[0] == base + i for i, one in enumerate(expected)):
        assert walk(batch[HEADER_SIZE:], 0, 0, len(records))[:2] == (len(batch) - HEADER_SIZE, len(records))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(record_lists, st.sampled_from((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)))
def test_others_read_what_we_write(records: list[Any], codec: Codec) -> None:
    batch = build_batch(records, codec=codec, producer_id=8, producer_epoch=1, base_sequence=4)
    expected = [(key, value, [(n, v) for n, v in headers], ts) for key, value, headers, ts in records]
    for reader in (KafkaPythonBatch, AiokafkaBatch):
        theirs = reader(batch)
        assert theirs.validate_crc()
        assert [(r.key, r.value, list(r.headers), r.timestamp) for r in theirs] == expected


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(record_lists, st.sampled_from((0, 1, 2, 3)))
def test_we_read_what_others_write(records: list[Any], codec: int) -> None:
    for maker in (KafkaPythonBuilder, AiokafkaBuilder):
        builder: Any = maker(
            magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1 << 20,
        )  # fmt: skip
        for index, (key, value, headers, timestamp) in enumerate(records):
            assert builder.append(index, max(0, timestamp), key, value, headers)
        data = bytes(builder.build())
        ((position, header),) = iter_batches(data)
        assert verify_crc(data, position, header)
        assert [plain(record) for record in iter_records(data, position, header)] == [
            (index, max(0, timestamp), key, value, headers)
            for index, (key, value, headers, timestamp) in enumerate(records)
        ]


# --- the header ------------------------------------------------------------------------------------------------------


def test_stamping_stays_outside_the_crc() -> None:
    data = bytearray(b"ab" + build_batch([(b"k", b"v", (), NOW)]))
    before = bytes(data)
    stamp(data, 2, 123, 45)
    header = BatchHeader.parse(data, 2)
    assert (header.base_offset, header.partition_leader_epoch, header.next_offset) == (123, 45, 124)
    assert verify_crc(data, 2, header)
    assert data[:2] == before[:2]
    assert data[2 + 16 :] == before[2 + 16 :]


def test_restamping_makes_a_new_crc() -> None:
    data = bytearray(build_batch([(b"k", b"v", (), NOW)], codec=Codec.LZ4))
    restamp_timestamp(data, 0, BatchHeader.parse(data), NOW + 5, log_append_time=True)
    header = BatchHeader.parse(data)
    assert verify_crc(data, 0, header)
    assert (header.max_timestamp, header.timestamp_type, header.compression) == (NOW + 5, "LogAppendTime", Codec.LZ4)
    assert [record.timestamp for record in iter_records(data, 0, header)] == [NOW + 5]
    data[30] ^= 1
    assert not verify_crc(data, 0, header)


def test_sequences_wrap() -> None:
    assert increment_sequence(MAX_INT32, 1) == 0
    assert increment_sequence(MAX_INT32 - 1, 5) == 3
    assert decrement_sequence(0, 1) == MAX_INT32
    header = BatchHeader.parse(build_batch([(None, None, (), 1)] * 3, producer_id=1, base_sequence=MAX_INT32))
    assert header.last_sequence == 1


def test_delete_horizon_and_emptied_batches() -> None:
    builder = BatchBuilder(base_offset=10, delete_horizon_ms=NOW, codec=Codec.ZSTD)
    builder.append(b"k", None, (), NOW - 50, offset=13)
    header = BatchHeader.parse(batch := builder.build(last_offset=19))
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW
    assert [plain(record) for record in iter_records(batch, 0, header)] == [(13, NOW - 50, b"k", None, [])]
    header = BatchHeader.parse(
        batch := BatchBuilder(base_offset=10, producer_id=4, base_sequence=2).build(last_offset=19)
    )
    assert (header.record_count, header.last_offset, len(batch)) == (0, 19, HEADER_SIZE)
    assert verify_crc(batch, 0, header)
    assert list(iter_records(batch, 0, header)) == []
    with pytest.raises(ValueError, match="last offset"):
        BatchBuilder().build()
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
    with pytest.raises(ValueError, match="follow"):
        builder.append(b"k", None, offset=13)


def test_what_is_no_batch() -> None:
    data = build_batch([(b"k", b"v", (), NOW)])
    with pytest.raises(CorruptBatch):
        BatchHeader.parse(data[:60])
    assert list(iter_batches(data[:-1])) == []
    for position, byte in ((16, 1), (16, 3), (8, 0x80), (11, 48)):
        broken = bytearray(data)
        broken[position] = byte
        with pytest.raises(CorruptBatch):
            list(iter_batches(broken))
    unknown = bytearray(data)
    unknown[22] = 5
    with pytest.raises(CorruptBatch):
        BatchHeader.parse(unknown).compression  # noqa: B018


# --- records ---------------------------------------------------------------------------------------------------------


def test_records_are_views() -> None:
    data = bytearray(build_batch([(b"key", b"value", [("h", b"x")], NOW)]))
    (record,) = iter_records(data, 0, BatchHeader.parse(data))
    assert record.key is not None
    assert record.value is not None
    assert record.key.obj is data
    data[HEADER_SIZE:] = b"\xa5" * (len(data) - HEADER_SIZE)
    assert bytes(record.value) == b"\xa5" * 5
    assert record.headers == [("h", b"x")], "headers are copies"


def test_iteration_is_lazy() -> None:
    data = bytearray(build_batch([(b"k", b"v", (), NOW)] * 3))
    data[-3:] = b"\xff\xff\xff"
    records = iter_records(data, 0, BatchHeader.parse(data))
    next(records)
    next(records)
    with pytest.raises(InvalidRecord):
        next(records)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100), st.integers(-3, 8), st.sampled_from(list(Codec)))
def test_arbitrary_payloads_end_in_typed_errors(payload: bytes, count: int, codec: Codec) -> None:
    header = BatchHeader(0, 49 + len(payload), 0, 2, 0, codec, 0, 0, 0, -1, -1, -1, count)
    try:
        found = list(iter_records(bytes(61) + payload, 0, header, limit=1 << 20))
    except (InvalidRecord, CompressionError, TooLarge):
        return
    assert len(found) == count


@pytest.mark.parametrize("value", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varints(value: int) -> None:
    encoded = varint(value)
    assert read_varlong(b"\xff" + encoded, 1) == (value, 1 + len(encoded))
    if -(2**31) <= value < 2**31:
        assert read_varint(encoded, 0) == (value, len(encoded))
