"""The example's types: a Kafka record to write, the application's times, the bytes of an event.

Pure. This module encodes Avro by hand: two flat records of strings and longs need twenty lines, and Spark's own reader
then checks them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Topic = Literal["clicks", "orders"]
Fields = Mapping[str, str | int | None]
Headers = tuple[tuple[str, bytes], ...]

#: Fields of an order in the order of their writer schema, by schema version.
ORDER_FIELDS: Mapping[int, Sequence[str]] = {
    1: ("event_id", "user", "product", "amount_cents", "time_ms"),
    2: ("event_id", "user", "product", "amount_cents", "time_ms", "country"),
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record for Kafka: `arrival_ms` becomes its timestamp (CreateTime), and it goes to `partition`."""

    arrival_ms: int
    topic: Topic
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Times:
    """The table [times] of the pipeline's configuration, in seconds."""

    allowed_lateness_s: int = 900
    max_skew_s: int = 60
    slack_s: int = 1800
    window_s: int = 600
    session_gap_s: int = 1800
    attribution_s: int = 3600


def encode_click(fields: Fields) -> bytes:
    return json.dumps(dict(fields), separators=(",", ":"), ensure_ascii=False).encode()


def encode_order(fields: Fields, version: int) -> bytes:
    """Return Avro binary without a container or a schema id; the record's header names the writer schema."""
    out = bytearray()
    for name in ORDER_FIELDS[version]:
        value = fields[name]
        if isinstance(value, str):
            encoded = value.encode()
            out += _zigzag(len(encoded)) + encoded
        elif isinstance(value, int):
            out += _zigzag(value)
        else:
            raise TypeError(f"{name}: neither a string nor a long")
    return bytes(out)


def _zigzag(number: int) -> bytes:
    """Return a long as Avro writes it: the sign in the lowest bit, seven bits a byte, the lowest first."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
