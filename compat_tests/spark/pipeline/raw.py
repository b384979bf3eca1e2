"""Raw records for tests, as the DataFrame of Spark's source. The records are good, and a test spoils one thing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pipeline import config
from pipeline.config import Config
from pipeline.schemas import AVRO, CLICKS, JSON, ORDERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
GOOD = {
    "event_id": "e-1",
    "type": "view",
    "user": "ümit",
    "product": "p 7",
    "time_ms": NOW_MS,
    "country": "DE",
    "amount_cents": 1234,
}
Headers = tuple[tuple[str, bytes | None], ...]
COLUMNS = """key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
             timestampType int, headers array<struct<key: string, value: binary>>"""


@dataclass(frozen=True)
class Raw:
    value: bytes | None
    headers: Headers | None
    topic: str = "clicks"
    key: bytes | None = b"\xc3\xbcmit"
    timestamp_ms: int = NOW_MS


def configured(**tables: object) -> Config:
    given = {"checkpoints": "c", "lake": {"path": "l"}, "kafka": {"bootstrap.servers": "localhost:1"}}
    return config.parse({**given, **tables})


def headers(topic: str, version: str) -> Headers:
    content_type = JSON if topic == "clicks" else AVRO
    return (("schema-version", version.encode()), ("content-type", content_type.encode()))


def click(version: str = "1", **changed: object) -> Raw:
    fields = {name: value for name, value in {**GOOD, **changed}.items() if name in CLICKS[version] or name in changed}
    return Raw(json.dumps(fields).encode(), headers("clicks", version))


def clicked(value: bytes | None, version: str = "1") -> Raw:
    return Raw(value, headers("clicks", version))


def order(version: str = "1", **changed: object) -> Raw:
    fields = {**GOOD, **changed}
    return ordered(avro(*[fields[name] for name in ORDERS[version]]), version)


def ordered(value: bytes | None, version: str = "1") -> Raw:
    return Raw(value, headers("orders", version), "orders")


def avro(*values: object) -> bytes:
    """Return strings, bytes and longs as Avro writes the fields of a record."""
    written = b""
    for value in values:
        if isinstance(value, int):
            written += varint(value)
        else:
            text = value if isinstance(value, bytes) else str(value).encode()
            written += varint(len(text)) + text
    return written


def varint(value: int) -> bytes:
    """Return the number as zigzag, with seven bits in a byte."""
    rest = (value << 1 ^ value >> 63) & (1 << 64) - 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def frame(spark: SparkSession, records: Sequence[Raw]) -> DataFrame:
    """Return the records as a DataFrame; the offset of a record is its place in the list."""
    rows = []
    for offset, record in enumerate(records):
        moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
        rows.append((record.key, record.value, record.topic, 3, offset, moment, 0, record.headers))
    return spark.createDataFrame(rows, COLUMNS)
