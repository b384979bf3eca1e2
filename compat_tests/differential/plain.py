"""Converts decoded messages to plain values by which two nodes can be compared.

A value that belongs to a node (an id, a port, the time) becomes a symbol with a number of its kind, in the order in
which this node first showed it. So the same id must occur in the same places on both nodes, but its value does not
matter. masks.OWN_VALUES lists the fields with such values; nothing is left out here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from compat_tests.differential.masks import CRC, MARKER_TIMES, OWN_VALUES, Becomes
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import (
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    UP_TO_MAGIC,
    BatchHeader,
    CorruptBatch,
    iter_batches,
    verify_crc,
)

UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SHORT_UUID_TEXT = re.compile(r"[0-9A-Za-z_-]{22}")  # the form of ids of members in the consumer protocol
ZERO_UUID = bytes(16)
TIME = "‹time›"
#: `batch` handles those two itself.
OWN = {field: own for own in OWN_VALUES if own not in (CRC, MARKER_TIMES) for field in own.fields}

ONE_DAY_MS = 86_400_000
#: The longest distance of a time from now: offsets of groups expire after a week.
NEAR_MS = 9 * ONE_DAY_MS


def _occurrences(text: str) -> re.Pattern[str]:
    """A port is matched only as a whole number: 23372 also stands in 9223372036854775807."""
    return re.compile(rf"(?<!\d){text}(?!\d)" if text.isdigit() else re.escape(text))


class Symbols:
    """The symbols of one node's values. `texts` are replaced wherever they occur: addresses, ports, folders, a suffix.
    `scripts_ms`: the midnight at the beginning of the day of the scripts' own timestamps, a day before today's.
    """

    def __init__(self, texts: Mapping[str, str], scripts_ms: int, *, wording: bool = False) -> None:
        self._texts = [(_occurrences(text), name) for text, name in texts.items()]
        self._scripts_end_ms = scripts_ms + ONE_DAY_MS // 2
        self._near_ms = range(scripts_ms - NEAR_MS, scripts_ms + NEAR_MS)
        self._wording = wording
        self._known: dict[tuple[str, Any], str] = {}
        self._count: dict[str, int] = {}

    def symbol(self, kind: str, value: Any) -> str:
        key = (kind, value)
        if key not in self._known:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._known[key] = f"‹{kind} {self._count[kind]}›"
        return self._known[key]

    def call(self, kind: str, value: Any, name: str) -> None:
        """Give this value's symbol a name, whatever is shown before it."""
        self._known[kind, value] = f"‹{kind} of {name}›"

    def knows(self, kind: str, value: Any) -> bool:
        return (kind, value) in self._known

    def text(self, value: str) -> str:
        for text, name in self._texts:
            value = text.sub(name, value)
        return UUID_TEXT.sub(lambda found: self.symbol("uuid", found[0]), value)

    def plain(self, value: Any, field: str = "") -> Any:
        """Return `value` of the field `field` in plain form."""
        if value is None or (isinstance(value, str) and value.startswith("‹")):
            return value  # from a note, already a symbol
        if isinstance(value, bool | float):
            return value
        if isinstance(value, list):
            return [self.plain(item, field) for item in value]
        own = OWN.get(field)
        if own is not None and value not in own.nothing and isinstance(value, own.type):
            return self._own(own.becomes, value)
        if field == "records":
            return self._records(value)
        if isinstance(value, int):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            if len(value) == 16 and field.endswith("id"):  # Becomes.UUID
                return "‹zero uuid›" if value == ZERO_UUID else self.symbol("uuid", value)
            return value.hex()
        if isinstance(value, dict):
            return {name: self.plain(item, name) for name, item in value.items()}
        return {name: self.plain(getattr(value, name), name) for name in value.__slots__}

    def _own(self, becomes: Becomes, value: Any) -> Any:
        match becomes:
            case Becomes.TIME:
                return TIME if value in self._near_ms else value
            case Becomes.LATE_TIME:
                return TIME if value in self._near_ms and value > self._scripts_end_ms else value
            case Becomes.WORDS:
                return self.text(value) if self._wording else "‹words›"
            case Becomes.UUID:
                return self.symbol("uuid", value) if SHORT_UUID_TEXT.fullmatch(value) else self.text(value)
            case _:
                return self.symbol(becomes.value, value)

    def message(self, message: TopLevel) -> dict[str, Any]:
        plain = self.plain(message)
        assert isinstance(plain, dict)
        return plain

    def batch(self, data: bytes, pos: int, header: BatchHeader) -> dict[str, Any]:
        """Return the header of the batch at `pos`."""
        fields = {name: self.plain(item, name) for name, item in header._asdict().items()}
        if header.producer_id >= 0 or header.is_control:
            fields["crc"] = "right" if verify_crc(data, pos, header) else "wrong"
        if header.is_control:
            for name in MARKER_TIMES.fields:
                fields[name] = self._own(MARKER_TIMES.becomes, fields[name])
        return fields

    def _records(self, value: Any) -> Any:
        """Return batches as their headers and the bytes after them; other bytes stay as they are."""
        data = b"".join(bytes(part) for part in value) if isinstance(value, list) else bytes(value)
        batches: list[Any] = []
        end = 0
        with suppress(CorruptBatch):  # the bytes that are not a batch come after `end`
            for pos, header in iter_batches(data):
                end = pos + header.size_in_bytes
                batches.append({**self.batch(data, pos, header), "payload": _short(data[pos + HEADER_SIZE : end])})
        if end < len(data):
            kind = "torn" if _is_beginning(data[end:]) else "no batch"
            batches.append({"base_offset": kind, "bytes": _short(data[end:])})
        return batches


def _is_beginning(data: bytes) -> bool:
    """Return True if this is a batch whose end is missing."""
    if len(data) < UP_TO_MAGIC:
        return True
    length = int.from_bytes(data[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
    return data[MAGIC_AT] == MAGIC and len(data) < LOG_OVERHEAD + length


def _short(data: bytes) -> str:
    return data.hex() if len(data) <= 200 else f"{len(data)} bytes, crc {zlib.crc32(data):08x}"


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return field path -> leaf. Empty arrays and structures are leaves."""
    if isinstance(value, dict) and value:
        items = [(f"{path}.{name}" if path else name, item) for name, item in value.items()]
    elif isinstance(value, list) and value:
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {path: value}
    leaves: dict[str, Any] = {}
    for name, item in items:
        leaves.update(flatten(item, name))
    return leaves
