"""Encodes and decodes the small text files of a log directory. The bytes are the same as Apache Kafka's.

Pure: `encode_*` returns the bytes to write, and `decode_*` raises `MalformedFile` for anything that no version of Kafka
wrote. The caller decides what a malformed file means. Most files can be rebuilt, and a malformed file never stops the
node.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping

from pykbroker_wire.primitives import uuid_from_str, uuid_to_str

TopicPartition = tuple[str, int]


class MalformedFile(ValueError):
    pass


def _lines(data: bytes) -> list[str]:
    try:
        return data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedFile(str(error)) from None


def _table(data: bytes, columns: int) -> list[list[str]]:
    """Parse version 0 in line 1, the number of entries in line 2, then the entries. An empty file is an empty table."""
    lines = _lines(data)
    if not lines:
        return []
    if not data.endswith(b"\n"):
        # A torn write could end in the middle of the last number, which would then be read as a smaller number.
        raise MalformedFile(f"the last line {lines[-1]!r} is cut off")
    try:
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise MalformedFile(f"no version and count: {lines[:2]!r}") from None
    if version != 0:
        raise MalformedFile(f"unknown version {version}")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != count:
        raise MalformedFile(f"{count} entries announced, {len(rows)} found")
    for row in rows:
        if len(row) != columns:
            raise MalformedFile(f"malformed line {' '.join(row)!r}")
    return rows


def _render(rows: Iterable[str]) -> bytes:
    lines = list(rows)
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _render(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in _table(data, 3)}
    except ValueError as error:
        raise MalformedFile(str(error)) from None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _render(f"{epoch} {start}" for epoch, start in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(start)) for epoch, start in _table(data, 2)]
    except ValueError as error:
        raise MalformedFile(str(error)) from None


def decode_uuid(text: str) -> bytes:
    """Raises MalformedFile."""
    try:
        return uuid_from_str(text)
    except ValueError as error:
        raise MalformedFile(str(error)) from None


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_str(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """Return the topic id. Raises MalformedFile."""
    fields = {}
    for line in _lines(data):
        key, separator, value = line.partition(":")
        if not separator:
            raise MalformedFile(f"malformed line {line!r}")
        fields[key.strip()] = value.strip()
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise MalformedFile("no version 0 with a topic_id")
    return decode_uuid(fields["topic_id"])


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch, or -1 if the file does not contain one (as before Kafka 3.8)."""
    try:
        fields = json.loads(data)
        return int(fields["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def encode_properties(values: Mapping[str, str], now_ms: int) -> bytes:
    """Return a Java properties file of plain values, the form of `meta.properties`."""
    when = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    lines = ["#", when.strftime("#%a %b %d %H:%M:%S UTC %Y")]
    lines += [f"{key}={value}" for key, value in sorted(values.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    values = {}
    for line in _lines(data):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise MalformedFile(f"malformed line {line!r}")
        values[key.strip()] = value.strip()
    return values
