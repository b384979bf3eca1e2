"""Records as text: parts, separators, nulls and deserializers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from pykbroker.tools.cluster.failure import NotServed
from pykbroker.tools.kafka.java_text import java_double
from pykbroker.tools.kafka.record_text import RecordText


@dataclass
class Record:
    topic: str = "t"
    partition: int = 3
    offset: int = 7
    timestamp: int = 1_700_000_000_000
    timestamp_type: int | None = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] = field(default_factory=list)


def text(record: Record, **properties: str) -> bytes:
    return RecordText({name.replace("_", "."): value for name, value in properties.items()}).written(record)


def test_the_value_alone_and_every_part() -> None:
    assert text(Record()) == b"v\n"
    shown = {f"print_{part}": "true" for part in ("timestamp", "partition", "offset", "epoch", "headers", "key")}
    assert text(Record(headers=[("a", b"1"), ("b", None)]), **shown) == (
        b"CreateTime:1700000000000\tPartition:3\tOffset:7\tEpoch:NOT_PRESENT\ta:1,b:null\tk\tv\n"
    )
    assert text(Record(timestamp_type=1), print_timestamp="true") == b"LogAppendTime:1700000000000\tv\n"
    assert text(Record(timestamp=-1), print_timestamp="true") == b"NO_TIMESTAMP\tv\n"
    assert text(Record(), print_headers="true") == b"NO_HEADERS\tv\n"


def test_separators_and_nulls() -> None:
    separated = {"key_separator": "|", "line_separator": ";", "null_literal": "-", "print_key": "true"}
    assert text(Record(key=None), **separated) == b"-|v;"
    assert text(Record(value=None)) == b"null\n"
    assert text(Record(), print_value="false") == b""
    assert text(Record(), print_value="false", print_key="true") == b"k\n"
    assert text(Record(value=b"\xff\x00")) == b"\xff\x00\n"


def test_deserializers() -> None:
    package = "org.apache.kafka.common.serialization."
    assert text(Record(value=struct.pack(">q", -5)), value_deserializer=f"{package}LongDeserializer") == b"-5\n"
    assert text(Record(value=b"\x01"), value_deserializer=f"{package}BooleanDeserializer") == b"true\n"
    assert text(Record(value=b"\xff"), value_deserializer=f"{package}StringDeserializer") == "\ufffd\n".encode()
    with pytest.raises(ValueError, match=r"Size of data received by IntegerDeserializer is not 4"):
        text(Record(), value_deserializer=f"{package}IntegerDeserializer")
    with pytest.raises(NotServed, match=r"com.example.Mine is not supported by pykbroker"):
        text(Record(), value_deserializer="com.example.Mine")


def test_formatters() -> None:
    assert RecordText({}, "kafka.tools.NoOpMessageFormatter").written(Record()) == b""
    logging = RecordText({}, "org.apache.kafka.tools.consumer.LoggingMessageFormatter")
    assert (logging.logs, logging.written(Record())) == (True, b"v\n")
    with pytest.raises(NotServed):
        RecordText({}, "com.example.Formatter")


@pytest.mark.parametrize(
    ("value", "written"),
    [(1.0, "1.0"), (0.0, "0.0"), (1e7, "1.0E7"), (0.001, "0.001"), (1.5e-5, "1.5E-5"), (-123456.789, "-123456.789"),
     (float("nan"), "NaN"), (float("-inf"), "-Infinity"), (1.2345e20, "1.2345E20")],
)  # fmt: skip
def test_doubles_as_java_writes_them(value: float, written: str) -> None:
    assert java_double(value) == written
