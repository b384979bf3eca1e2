"""Checks of produced batches: Apache Kafka's results (golden), the documented differences, memory, aliasing, fuzz."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker_log import validate as validate_module
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.validate import MAX_RECORD_ERRORS, RecordErrors, Validated, validate_and_assign
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records import compression, walk
from pykbroker_wire.records.batch import CONTROL, TRANSACTIONAL, BatchHeader, build_batch, verify_crc
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.records.record import iter_records
from tests.log.produce_cases import CODECS, FOREVER, NOW, Case, batch, bomb, cases, record, zigzag


@pytest.fixture(scope="module", autouse=True, params=["python", "compiled"])
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with each twin of the record walk."""
    if request.param == "compiled" and not walk.COMPILED:
        pytest.skip("the record walk is not compiled here")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            for name in ("walk", "walk_across", "examine", "find_timestamp"):
                patch.setattr(walk, name, getattr(walk, f"{name}_python"))
            patch.setattr(validate_module, "walk", walk.walk_python)
            patch.setattr(validate_module, "COMPILED", False)
        yield


GOLDEN = Path(__file__).parents[1] / "golden" / "records" / "verdicts.txt"

# Cases with another result on purpose; validate.py explains why. Name -> our error code.
STRICTER = {
    "offset-delta-7": 87,
    "offset-deltas-swapped": 87,
    **{f"{codec}-record-too-long": 87 for codec in ("gzip", "snappy", "lz4", "zstd")},
    **{f"to-uncompressed-too-large-{codec}": 10 for codec in ("gzip", "snappy", "lz4", "zstd")},  # UnifiedLog's check
}
REPAIRED = {
    f"{codec}-not-dense{suffix}" for codec in ("gzip", "snappy", "lz4", "zstd") for suffix in ("", "-append-time")
}


@dataclass(frozen=True, slots=True)
class Golden:
    case: Case
    verdict: tuple[str, ...]


def read_golden() -> list[Golden]:
    found = []
    for line in GOLDEN.read_text().splitlines():
        question, _, answer = line.partition(" => ")
        name, kind, before, after, codec, compacted, max_bytes, offset, epoch, _, *data = question.split()
        case = Case(
            name, bytes.fromhex(data[0] if data else ""), kind, int(before), int(after), codec, compacted == "true",
            int(max_bytes), int(offset), int(epoch),
        )  # fmt: skip
        found.append(Golden(case, tuple(answer.split())))
    return found


def attempt(case: Case, data: bytearray) -> Validated | KafkaError:
    try:
        config = LogConfig(
            message_timestamp_type=case.timestamp_type,
            timestamp_before_max_ms=case.before,
            timestamp_after_max_ms=case.after,
            compression_type=case.compression,
            cleanup_policy=frozenset(("compact",)) if case.compacted else frozenset(("delete",)),
            max_message_bytes=case.max_bytes,
        )
        return validate_and_assign(data, config, offset=case.offset, leader_epoch=case.epoch, now_ms=NOW)
    except KafkaError as error:
        return error


DEFAULTS = LogConfig()


def plain(
    data: bytes,
    config: LogConfig = DEFAULTS,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    limit: int = compression.DEFAULT_LIMIT,
) -> Validated:
    return validate_and_assign(
        bytearray(data), config, offset=42, leader_epoch=7, now_ms=NOW, origin=origin, decompression_limit_bytes=limit
    )


def check_written(result: Validated, case: Case) -> None:
    """Check the properties of a batch that is about to be written."""
    (header,) = [BatchHeader.parse(result.records)]
    assert header.size_in_bytes == len(result.records)
    assert verify_crc(result.records, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (case.offset, case.epoch)
    assert header.last_offset == result.last_offset == case.offset + result.record_count - 1
    assert header.max_timestamp == result.max_timestamp
    records = list(iter_records(result.records, 0, header))
    assert [found.offset for found in records] == list(range(case.offset, result.last_offset + 1))


@pytest.mark.parametrize("golden", read_golden(), ids=lambda golden: golden.case.name)
def test_verdict_is_that_of_apache_kafka(golden: Golden) -> None:
    case, (code, *facts) = golden.case, golden.verdict
    original = bytearray(case.data)
    result = attempt(case, original)
    if isinstance(result, KafkaError):
        error = result
        expected = STRICTER.get(case.name, 87 if code == "-1" else int(code))
        assert error.code == expected
        assert original == case.data, "an error leaves the bytes alone"
        if facts[:1] == ["records"]:
            assert isinstance(error, RecordErrors)
            assert [index for index, _ in error.record_errors] == [int(index) for index in facts[1].split(",")]
        return
    check_written(result, case)
    if case.name in REPAIRED:
        assert code == "-1"
        assert result.rewritten
        return
    assert code == "0"
    max_timestamp, last_offset, rewritten, written = facts
    assert result.max_timestamp == int(max_timestamp)
    assert result.last_offset == int(last_offset)
    assert result.rewritten == (rewritten == "true")
    assert result.log_append_time_ms == (-1 if case.timestamp_type == "CreateTime" else NOW)
    if result.rewritten and case.compression != "uncompressed":  # the same records, but not the same compressor
        theirs = bytes.fromhex(written)
        header, their_header = BatchHeader.parse(result.records), BatchHeader.parse(theirs)
        assert header._replace(batch_length=0, crc=0) == their_header._replace(batch_length=0, crc=0)
        assert list(iter_records(result.records, 0, header)) == list(iter_records(theirs, 0, their_header))
    elif written.startswith("sha256:"):
        assert hashlib.sha256(result.records).hexdigest() == written[7:]
    else:
        assert result.records.hex() == written


def test_golden_file_has_all_cases() -> None:
    assert [golden.case.name for golden in read_golden()] == [case.name for case in cases()]


def test_null_records_are_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        validate_and_assign(None, LogConfig(), offset=0, leader_epoch=0, now_ms=NOW)
    assert caught.value.code == ErrorCode.INVALID_RECORD


# --- compressed ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "size", "limit"),
    [
        (Codec.GZIP, 24 << 20, 16 << 20),
        (Codec.LZ4, 24 << 20, 16 << 20),
        (Codec.ZSTD, 24 << 20, 16 << 20),
        (Codec.SNAPPY, 24 << 20, 16 << 20),
        (Codec.ZSTD, 140 << 20, compression.DEFAULT_LIMIT),
    ],
)
def test_a_bomb_is_too_large_and_never_in_memory(codec: Codec, size: int, limit: int) -> None:
    data = bomb(codec, size)
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError) as caught:
            plain(data, LogConfig(max_message_bytes=FOREVER), limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 8 << 20


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_record_of_a_compressed_batch_has_a_limit_of_its_own(codec: Codec) -> None:
    """max.decompressed.message.bytes. The bytes are those after the record's length, as in Apache Kafka 4.4."""
    large = record(delta=1, value=bytes(100_000))
    size = len(large) - 3
    content = record() + large
    data = batch([], count=2, attributes=codec, raw=CODECS[codec][1](content))
    plain(data, LogConfig(max_decompressed_message_bytes=size))
    with pytest.raises(KafkaError) as caught:
        plain(data, LogConfig(max_decompressed_message_bytes=size - 1))
    assert caught.value.code == ErrorCode.INVALID_RECORD
    plain(batch([record(), large]), LogConfig(max_decompressed_message_bytes=1))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_the_limit_is_exact(codec: Codec) -> None:
    content = record(value=bytes(100_000))
    data = batch([], count=1, attributes=codec, raw=CODECS[codec][1](content))
    plain(data, limit=len(content))
    with pytest.raises(KafkaError) as caught:
        plain(data, limit=len(content) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1000])
def test_records_across_chunks(codec: Codec, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compression.stream

    def choppy(codec: int, data: bytes, limit: int) -> object:
        for piece in whole(codec, data, limit):
            yield from (piece[start : start + chunk] for start in range(0, len(piece), chunk))

    monkeypatch.setattr("pykbroker_log.validate.stream", choppy)
    headers = [("name", b"x" * 100), ("", None)]
    data = build_batch([(b"k" * n, b"v" * n * 10, headers[: n % 3], NOW + n) for n in range(40)], codec=codec)
    result = plain(data)
    assert (result.record_count, result.max_timestamp, result.rewritten) == (40, NOW + 39, False)
    with pytest.raises(RecordErrors) as caught:
        plain(data, LogConfig(timestamp_after_max_ms=30))
    assert [index for index, _ in caught.value.record_errors] == list(range(31, 40))


def test_every_codec_to_every_codec() -> None:
    records = [(b"k%d" % n, b"v" * n, [("h", b"%d" % n)], NOW + n) for n in range(20)]
    for source in Codec:
        data = build_batch(records, codec=source, producer_id=5, producer_epoch=1, base_sequence=8, transactional=True)
        for target in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
            result = plain(data, LogConfig(compression_type=target))
            header = BatchHeader.parse(result.records)
            assert header.compression == compression.CODEC_BY_NAME[target]
            assert header.is_transactional
            assert (result.producer_id, result.producer_epoch, result.base_sequence) == (5, 1, 8)
            assert result.last_sequence == 27
            found = [
                (bytes(one.key or b""), bytes(one.value or b""), one.headers, one.timestamp)
                for one in iter_records(result.records, 0, header)
            ]
            assert found == records


# --- memory ----------------------------------------------------------------------------------------------------------


def test_writable_memory_is_patched_in_place() -> None:
    receive_buffer = bytearray(b"before" + batch([record()]) + b"after")
    view = memoryview(receive_buffer)[6:-5]
    result = validate_and_assign(view, LogConfig(), offset=1 << 40, leader_epoch=9, now_ms=NOW)
    assert result.records.obj is receive_buffer
    assert receive_buffer[6:14] == (1 << 40).to_bytes(8, "big")
    assert receive_buffer[:6] == b"before"
    assert receive_buffer[-5:] == b"after"


def test_read_only_memory_is_copied() -> None:
    original = batch([record()])
    copy = bytes(bytearray(original))
    result = validate_and_assign(original, LogConfig(), offset=1 << 40, leader_epoch=9, now_ms=NOW)
    assert original == copy
    assert BatchHeader.parse(result.records).base_offset == 1 << 40


# --- other origins ---------------------------------------------------------------------------------------------------


def test_a_coordinator_writes_control_batches() -> None:
    marker = end_txn_marker(commit=True, producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp=NOW)
    with pytest.raises(KafkaError):
        plain(marker)
    for codec in ("producer", "uncompressed", "zstd"):  # control records are not compressed
        result = plain(marker, LogConfig(compression_type=codec), origin=AppendOrigin.COORDINATOR)
        assert result.attributes & CONTROL
        assert result.attributes & TRANSACTIONAL
        assert result.last_sequence == result.base_sequence == -1
        assert not result.rewritten


def test_a_raft_leader_has_set_its_epoch() -> None:
    records = [(None, bytes(2000), (), NOW)]
    good = build_batch(records, base_offset=42, leader_epoch=7)
    result = plain(good, LogConfig(max_message_bytes=100), origin=AppendOrigin.RAFT_LEADER)
    assert bytes(result.records) == good
    with pytest.raises(KafkaError) as caught:
        plain(build_batch(records, base_offset=42, leader_epoch=6), origin=AppendOrigin.RAFT_LEADER)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_record_errors_are_bounded() -> None:
    data = batch([record(index) for index in range(3 * MAX_RECORD_ERRORS)])
    with pytest.raises(RecordErrors) as caught:
        plain(data, LogConfig(cleanup_policy=frozenset(("compact",))))
    assert len(caught.value.record_errors) == MAX_RECORD_ERRORS


# --- fuzz ------------------------------------------------------------------------------------------------------------

SEEDS = [case for case in cases() if len(case.data) < 3000]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SEEDS), st.data(), st.booleans())
def test_mutated_batches_give_a_result_or_a_kafka_error(case: Case, data: st.DataObject, mend: bool) -> None:
    mutated = bytearray(case.data)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, len(mutated) - 1)))
        kind = data.draw(st.sampled_from(("set", "cut", "insert", "extreme")))
        if kind == "set" and mutated:
            mutated[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del mutated[place : place + data.draw(st.integers(1, 20))]
        elif kind == "insert":
            mutated[place:place] = data.draw(st.binary(max_size=12))
        else:
            mutated[place : place + 4] = data.draw(st.sampled_from((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4))))
    if mend and len(mutated) >= 61:  # a right length and CRC, or nearly nothing gets past the first checks
        mutated[8:12] = (len(mutated) - 12).to_bytes(4, "big")
        mutated[16] = 2
        mutated[17:21] = crc32c(bytes(mutated[21:])).to_bytes(4, "big")
    result = attempt(case, mutated)
    if isinstance(result, KafkaError):
        assert result.code in (2, 10, 32, 87)
    else:
        check_written(result, case)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_kafka_error(data: bytes) -> None:
    with pytest.raises(KafkaError):
        plain(data)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120), st.integers(0, 4), st.integers(1, 5))
def test_arbitrary_records_under_a_right_crc(payload: bytes, codec: int, count: int) -> None:
    case = Case("fuzz", batch([], count=count, attributes=codec, raw=payload))
    result = attempt(case, bytearray(case.data))
    if isinstance(result, KafkaError):
        assert result.code in (10, 32, 87)
    else:
        check_written(result, case)


def test_counts_that_lie_cost_nothing() -> None:
    data = batch([], count=2**31 - 1, raw=zigzag(6) + b"\0\0\0\x01\x01\0")
    with pytest.raises(KafkaError) as caught:
        plain(data)
    assert caught.value.code == ErrorCode.INVALID_RECORD
