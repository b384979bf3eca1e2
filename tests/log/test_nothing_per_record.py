"""No Python code runs per record or per header for a produce request or an offset lookup: the number of Python lines
that a batch runs does not grow with its records. (The compiled twins of the loops do that work.)"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pykbroker_log.log_config import LogConfig
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.validate import RecordErrors, validate_and_assign
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import encode_record, varint
from pykbroker_wire.records.walk import COMPILED
from testkit.logs.helpers import NOW, open_log, sealed

pytestmark = pytest.mark.skipif(not COMPILED, reason="the compiled twin of the record walk is not built here")

_FEW = 2_000
#: The lines for the chunks of a decompressor: 4 N records have a few more chunks than N.
_LINES_OF_CHUNKS = _FEW // 2


def _lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of Python ran."""
    lines = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def _assert_no_line_per_record(make: Callable[[int], Callable[[], object]]) -> None:
    few, many = (_lines_of(make(count)) for count in (_FEW, 4 * _FEW))
    assert many - few < _LINES_OF_CHUNKS, (few, many)


def _validate(data: bytes, config: LogConfig) -> Callable[[], object]:
    return lambda: validate_and_assign(data, config, offset=7, leader_epoch=1, now_ms=NOW)


def _refused(data: bytes, config: LogConfig) -> Callable[[], object]:
    def call() -> None:
        with pytest.raises(RecordErrors):
            validate_and_assign(data, config, offset=7, leader_epoch=1, now_ms=NOW)

    return call


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_headers_of_a_record(codec: Codec) -> None:
    def make(count: int) -> Callable[[], object]:
        headers = 20 * count  # so that they lie in several chunks
        body = b"\0\0\0\x01\x01" + varint(headers) + b"\0\x01" * headers
        return _validate(sealed(varint(len(body)) + body, 1, codec), LogConfig())

    _assert_no_line_per_record(make)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name.lower())
def test_records_whose_offsets_are_not_consecutive(codec: Codec) -> None:
    def make(count: int) -> Callable[[], object]:
        return _validate(sealed(encode_record(0, 0, None, None) * count, count, codec), LogConfig())

    _assert_no_line_per_record(make)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_record_of_a_refused_time_behind_many(codec: Codec) -> None:
    config = LogConfig(timestamp_before_max_ms=1000)

    def make(count: int) -> Callable[[], object]:
        records = [encode_record(index, -5000 if index == count - 1 else 0, None, None) for index in range(count)]
        return _refused(sealed(b"".join(records), count, codec), config)

    _assert_no_line_per_record(make)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_record_without_a_key_behind_many(codec: Codec) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))

    def make(count: int) -> Callable[[], object]:
        records = [encode_record(index, 0, None if index == count - 1 else b"k", None) for index in range(count)]
        return _refused(sealed(b"".join(records), count, codec), config)

    _assert_no_line_per_record(make)


def _log_of_one_batch(count: int, codec: Codec) -> PartitionLog:
    log = open_log()
    content = b"".join(encode_record(index, index, None, None) for index in range(count))
    log.append_as_leader(bytearray(sealed(content, count, codec)), leader_epoch=0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_the_offset_of_a_time_in_asealed(codec: Codec) -> None:
    def make(count: int) -> Callable[[], object]:
        log = _log_of_one_batch(count, codec)
        return lambda: log.offset_for_timestamp(NOW + count - 1)

    _assert_no_line_per_record(make)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_the_offset_of_the_newest_time(codec: Codec) -> None:
    def make(count: int) -> Callable[[], object]:
        log = _log_of_one_batch(count, codec)
        return lambda: log.offset_of_max_timestamp()

    _assert_no_line_per_record(make)
