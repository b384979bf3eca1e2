"""Records as JSON, one per line, as `kcat -J` writes and `produce -J` reads them. Pure.

{"topic": ..., "partition": ..., "offset": ..., "tstype": "create" | "logappend" | "unknown", "ts": milliseconds,
 "headers": [name, value, name, value ...], "key": ..., "payload": ...,
 "delivery_count": ... for a record of a share group}

A person may write more. A key, a payload and the values of headers may be any JSON, which is sent without blanks.
Headers may be an object, {"source": "shell"}, or pairs. `value` stands for `payload`, and `timestamp` for `ts`. A
timestamp may be a time of time_words.py.

Bytes that are not UTF-8 are in base64, and `key_encoding`, `payload_encoding` or `headers_encoding` is then "base64".
kcat writes such bytes as they are, which is not valid JSON.

Invariant: a record that `from_json` reads from the output of `as_json` has the key, the value, the headers, the
timestamp and the partition of the original, byte by byte.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from pykbroker.tools.cluster.encodings import ENCODINGS, Encoding, decoded, encoded
from pykbroker.tools.cluster.record_format import ReadRecord, Shown, delivery_count
from pykbroker.tools.cluster.time_words import parsed_time_ms

_MAX_PARTITION: Final = 2**31 - 1
_MAX_TIME_MS: Final = 2**63 - 1


class BadInput(Exception):
    """The input is no record. The message is one line, without the place in the input."""


@dataclass(slots=True, frozen=True)
class NewRecord:
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    #: None if the producer chooses
    partition: int | None = None
    #: milliseconds since the epoch, or None for the current time
    timestamp_ms: int | None = None


class JsonFormat:
    """`JsonFormat(Shown()).written(record)` returns the envelope and a line feed."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def written(self, record: ReadRecord) -> bytes:
        return as_json(record, self._shown).encode() + b"\n"


def as_json(record: ReadRecord, shown: Shown) -> str:
    """Return the envelope of a record, without a line feed."""
    told: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": _time_type(record),
        "ts": record.timestamp,
    }
    if record.headers:
        told |= _headers(record)
    for name, data, wanted in (("key", record.key, shown.key), ("payload", record.value, shown.value)):
        encoding = _encoding_of([data], wanted)
        told[name] = _text(data, encoding)
        if encoding != "text":
            told[f"{name}_encoding"] = encoding
    if (count := delivery_count(record)) is not None:
        told["delivery_count"] = count
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _time_type(record: ReadRecord) -> str:
    if record.timestamp < 0 or record.timestamp_type is None:
        return "unknown"
    return "logappend" if record.timestamp_type else "create"


def _headers(record: ReadRecord) -> dict[str, Any]:
    encoding = _encoding_of([value for _, value in record.headers], "text")
    flat = [text for name, value in record.headers for text in (name, _text(value, encoding))]
    return {"headers": flat} if encoding == "text" else {"headers": flat, "headers_encoding": encoding}


def _encoding_of(values: list[bytes | None], wanted: Encoding) -> Encoding:
    """Return the wanted encoding, or base64 if that is `text` and a value is not UTF-8. For null values alone, return
    `text`."""
    present = [value for value in values if value is not None]
    if wanted != "text":
        return wanted if present else "text"
    try:
        for value in present:
            value.decode()
    except UnicodeDecodeError:
        return "base64"
    return "text"


def _text(data: bytes | None, encoding: Encoding) -> str | None:
    return None if data is None else encoded(data, encoding).decode()


def from_json(line: bytes, now_ms: int = 0) -> NewRecord:
    """Return the record of an envelope; its topic and its offset are ignored. `now_ms`: the current time, for a
    timestamp that counts from it. Raises BadInput."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}") from None
    if not isinstance(told, dict):
        raise BadInput("not a JSON object")
    payload = _one_of(told, "payload", "value")
    if payload is None:
        raise BadInput('no "payload" in the JSON object: without -J a whole line is the value')
    return NewRecord(
        key=_data(told, "key", "key"),
        value=_data(told, payload, "payload"),
        headers=_headers_of(told),
        partition=_number(told, "partition", 0, _MAX_PARTITION),
        timestamp_ms=_timestamp(told, now_ms),
    )


def _one_of(told: dict[str, Any], *names: str) -> str | None:
    """Return the name that the object has, of several for one field, or None. Raises BadInput if it has two."""
    found = [name for name in names if name in told]
    if len(found) > 1:
        raise BadInput(f'"{found[0]}" and "{found[1]}" are the same field')
    return found[0] if found else None


def _timestamp(told: dict[str, Any], now_ms: int) -> int | None:
    name = _one_of(told, "ts", "timestamp")
    if name is None or told.get("tstype") == "unknown":
        return None
    if not isinstance(told[name], str):
        return _number(told, name, 0, _MAX_TIME_MS)
    try:
        return parsed_time_ms(told[name], now_ms)
    except ValueError as error:
        raise BadInput(f'"{name}": {error}') from None


def _number(told: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f'"{name}" is not a whole number from {least} to {most}')
    return value


def _data(told: dict[str, Any], name: str, field_name: str) -> bytes | None:
    return _bytes(told.get(name), _encoding(told, field_name), name)


def _encoding(told: dict[str, Any], name: str) -> Encoding:
    named = told.get(f"{name}_encoding", "text")
    if named not in ENCODINGS:
        raise BadInput(f'"{name}_encoding" is none of {", ".join(ENCODINGS)}')
    found: Encoding = named
    return found


def _bytes(value: object, encoding: Encoding, name: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str) and encoding != "text":
        raise BadInput(f'"{name}" is no string in {encoding}')
    try:
        text = value if isinstance(value, str) else _compact(value)
        return decoded(text.encode(), encoding)
    except ValueError as error:
        raise BadInput(f'"{name}": {error}') from None


def _compact(value: object) -> str:
    """Return a value as JSON without blanks. Raises ValueError for NaN and the infinities, which JSON does not have."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _headers_of(told: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    encoding = _encoding(told, "headers")
    pairs = []
    for name, value in _pairs(told.get("headers")):
        if not isinstance(name, str):
            raise BadInput('"headers": a name is no string')
        # A name is sent as UTF-8, which cannot hold a lone surrogate.
        _bytes(name, "text", "headers")
        pairs.append((name, _bytes(value, encoding, "headers")))
    return pairs


def _pairs(headers: object) -> list[tuple[object, object]]:
    """Return the names and the values of headers: of an object, where a list of values repeats a name, of a list of
    pairs, or of a list of names and values in turn."""
    if headers is None:
        return []
    if isinstance(headers, dict):
        lists = {name: value if isinstance(value, list) else [value] for name, value in headers.items()}
        return [(name, value) for name, values in lists.items() for value in values]
    if isinstance(headers, list):
        if headers and all(isinstance(pair, list) and len(pair) == 2 for pair in headers):
            return [(name, value) for name, value in headers]
        if len(headers) % 2 == 0:
            return list(zip(headers[::2], headers[1::2], strict=True))
    raise BadInput('"headers" is neither an object, nor a list of pairs, nor a list of names and values in turn')
