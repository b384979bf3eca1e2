"""Decoded messages as plain values that two nodes can be compared by.

A value that belongs to a node (an id, a port, the time) becomes a symbol that says which one of its kind it is, in the
order in which this node first showed it. So the same id must come back in the same places on both nodes; which id it is
does not matter. Zero, empty, null and -1 are no such values. Nothing is left out here; that is what masks.py is for.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import CorruptBatch, iter_batches, verify_crc

UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SHORT_UUID_TEXT = re.compile(r"[0-9A-Za-z_-]{22}")  # as members of the consumer protocol are called
ZERO_UUID = bytes(16)

# Fields whose numbers or texts are a node's own: the kind of thing they name, and the values that name nothing.
IDENTITIES: Mapping[str, tuple[str, tuple[int | str, ...]]] = {
    "cluster_id": ("cluster", ("",)),
    "producer_id": ("producer", (-1,)),
    "ongoing_txn_producer_id": ("producer", (-1,)),
    "producer_id_filters": ("producer", (-1,)),
    "v3_and_below_producer_id": ("producer", (-1,)),
    "previous_producer_id": ("producer", (-1,)),
    "next_producer_id": ("producer", (-1,)),
    "session_id": ("session", (0,)),
    "metadata_hash": ("hash", (0,)),  # over topic ids
    "port": ("port", (0, -1)),
}
TIMES = frozenset(
    {
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "log_append_time_ms",
        "transaction_start_time_ms",
        "last_timestamp",
        # of stored records
        "transaction_start_timestamp_ms",
        "transaction_last_update_timestamp_ms",
        "commit_timestamp",
        "expire_timestamp",
        "current_state_timestamp",
        "assignment_timestamp",
        "timestamp_ms",
    }
)
MEMBERS = frozenset({"member_id", "leader"})
WORDING = frozenset({"error_message", "batch_index_error_message", "documentation"})
RECORDS = frozenset({"records"})


class Symbols:
    """What one node calls its things. `texts` are replaced wherever they occur: addresses, directories, a suffix."""

    def __init__(self, texts: Mapping[str, str], *, wording: bool = False, now_ms: int = 1 << 62) -> None:
        self._texts = dict(texts)
        self._today_ms = now_ms + 43_200_000
        self._wording = frozenset() if wording else WORDING
        self._known: dict[tuple[str, Any], str] = {}
        self._count: dict[str, int] = {}

    def symbol(self, kind: str, value: Any) -> str:
        key = (kind, value)
        if key not in self._known:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._known[key] = f"‹{kind} {self._count[kind]}›"
        return self._known[key]

    def knows(self, kind: str, value: Any) -> bool:
        return (kind, value) in self._known

    def text(self, value: str) -> str:
        for text, name in self._texts.items():
            value = value.replace(text, name)
        return UUID_TEXT.sub(lambda found: self.symbol("uuid", found[0]), value)

    def plain(self, value: Any, field: str = "") -> Any:
        """`value` of the field `field`."""
        if value is None or (isinstance(value, str) and value.startswith("‹")):
            return value  # of a note, a symbol already
        if isinstance(value, bool | float):
            return value
        if isinstance(value, list):
            return [self.plain(item, field) for item in value]
        if field in IDENTITIES and value not in IDENTITIES[field][1]:
            return self.symbol(IDENTITIES[field][0], value)
        if field in TIMES and value not in (-1, 0):
            return "‹time›"
        if field == "timestamp" and isinstance(value, int) and self._today_ms < value < 1 << 60:
            return "‹time›"  # not one of a script's own, which are of yesterday: a marker's
        if field in RECORDS:
            return self._records(value)
        if isinstance(value, int):
            return value
        if isinstance(value, str):
            if field in MEMBERS and SHORT_UUID_TEXT.fullmatch(value):
                return self.symbol("uuid", value)
            return ("‹words›" if value else "") if field in self._wording else self.text(value)
        if isinstance(value, bytes):
            if len(value) == 16 and field.endswith("id"):
                return "‹zero uuid›" if value == ZERO_UUID else self.symbol("uuid", value)
            return value.hex()
        if isinstance(value, dict):
            return {name: self.plain(item, name) for name, item in value.items()}
        return {name: self.plain(getattr(value, name), name) for name in value.__slots__}

    def message(self, message: TopLevel) -> dict[str, Any]:
        plain = self.plain(message)
        assert isinstance(plain, dict)
        return plain

    def _records(self, value: Any) -> Any:
        """Batches as their headers and the bytes behind them; what is no batch as it is."""
        data = b"".join(bytes(part) for part in value) if isinstance(value, list) else bytes(value)
        batches: list[Any] = []
        end = 0
        try:
            for pos, header in iter_batches(data):
                end = pos + header.size_in_bytes
                fields = {name: self.plain(item, name) for name, item in header._asdict().items()}
                if header.producer_id >= 0:  # which is under the CRC
                    fields["crc"] = "right" if verify_crc(data, pos, header) else "wrong"
                if header.is_control:  # a marker, as old as the node's end of a transaction
                    fields["base_timestamp"] = fields["max_timestamp"] = "‹time›"
                batches.append({**fields, "payload": _short(data[pos + 61 : end])})
        except (CorruptBatch, ValueError):
            pass
        if end < len(data):
            batches.append({"base_offset": "torn", "bytes": _short(data[end:])})
        return batches


def _short(data: bytes) -> str:
    return data.hex() if len(data) <= 200 else f"{len(data)} bytes, crc {zlib.crc32(data):08x}"


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Field path -> leaf. Empty arrays and structures are leaves."""
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
