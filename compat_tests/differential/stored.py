"""The records that a node has written into its coordinators' topics for one script, read back by Fetch.

Key and value are decoded, and encoded again. Each record has a note if the bytes are then the same, so that the
comparison finds differences that decoding hides (an explicit default, a tag, bytes after the body). The header of the
batch of a record is kept with it. masks.py lists what is not compared (STORED_MASKS, LeftOut).
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.masks import STORED, LeftOut
from compat_tests.differential.session import NodeError, Session
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import HEADER_SIZE, MIN_BATCH_LENGTH, BatchHeader, iter_batches, verify_crc
from pykbroker_wire.records.control import parse_control
from pykbroker_wire.records.record import Record, encode_record, iter_records
from pykbroker_wire.stored_framing import Home, decode_key, decode_value, encode_key, encode_value

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
HOMES: dict[str, Home] = {OFFSETS: "group", TRANSACTIONS: "transaction"}
PARTITIONS = 3
OWNERS = ("group_id", "group", "transactional_id")
KEY_FIELDS = ("group", "group_id", "member_id", "topic", "partition", "transactional_id")
FETCH_VERSION = 12  # the last version with topic names


class Stored:
    """The records of one topic from here on."""

    def __init__(self, s: Session, topic: str) -> None:
        self._s = s
        self._topic = topic
        self._next = {index: self._end(index) for index in range(PARTITIONS)}

    def _end(self, index: int) -> int:
        wanted = ListOffsetsPartition(partition_index=index, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[wanted])])
        found = self._s.ask(request).topics[0].partitions[0]
        if found.error_code:
            raise NodeError(f"{self._topic}-{index}: error {found.error_code}")
        return int(found.offset)

    def note(self, label: str, *, markers: bool = False) -> None:
        """Compare the records of this script that were written since the last call. `markers`: also control records of
        any producer that the script has named."""
        for index in range(PARTITIONS):
            end = self._end(index)
            said = self._read(index, end, markers)
            if said:
                self._s.note(f"{label}: {self._topic}-{index}", {"entries": said}, api=STORED)

    def _read(self, index: int, end: int, markers: bool) -> list[Any]:
        said: list[Any] = []
        while self._next[index] < end:
            wanted = FetchPartition(partition=index, fetch_offset=self._next[index], partition_max_bytes=1 << 24)
            request = FetchRequest(
                max_wait_ms=0, max_bytes=1 << 24, topics=[FetchTopic(topic=self._topic, partitions=[wanted])]
            )
            found = self._s.ask(request, FETCH_VERSION).responses[0].partitions[0]
            if found.error_code:
                raise NodeError(f"{self._topic}-{index}: error {found.error_code}")
            before = self._next[index]
            more, self._next[index] = entries(
                self._s, HOMES[self._topic], bytes(found.records or b""), self._next[index], markers=markers
            )
            if self._next[index] == before:
                raise NodeError(f"{self._topic}-{index}: nothing can be read at {before} of {end}")
            said += more
        return said


def entries(s: Session, home: Home, data: bytes, first: int, *, markers: bool) -> tuple[list[Any], int]:
    """Return the records from `first` on as they are compared, and the offset after the last one."""
    said: list[Any] = []
    for position, header in iter_batches(data):
        records = list(iter_records(data, position, header))
        batch = {
            **header._asdict(),
            # The CRC covers the time and, in transactions, the producer id (masks.CRC).
            "crc": "right" if verify_crc(data, position, header) else "wrong",
            "the same bytes again": _encoded(records, header)
            == data[position + HEADER_SIZE :][: header.batch_length - MIN_BATCH_LENGTH],
        }
        for record in records:
            if record.offset >= first:
                first = record.offset + 1
                view = _view(s, home, header, record, markers)
                if not isinstance(view, LeftOut):
                    said.append({"batch": batch, **view})
    return said, first


def _encoded(records: list[Record], header: BatchHeader) -> bytes:
    """Return the bytes as in a batch without compression, because neither node is configured to compress these."""
    return b"".join(
        encode_record(
            record.offset - header.base_offset,
            record.timestamp - header.base_timestamp,
            record.key,
            record.value,
            record.headers,
        )
        for record in records
    )


def _view(s: Session, home: Home, header: BatchHeader, record: Record, markers: bool) -> dict[str, Any] | LeftOut:
    """Return all fields of one record, or the reason why it is not compared."""
    headers = [[name, None if value is None else value.hex()] for name, value in record.headers]
    place: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp, "headers": headers}
    assert record.key is not None
    key_data, data = bytes(record.key), None if record.value is None else bytes(record.value)
    if header.is_control:
        if not (markers and s.knows("producer", header.producer_id)):
            return LeftOut.MARKERS
        marker = parse_control(record).type.name
        return {
            **place,
            "type": marker,
            "name": "",
            "key": key_data.hex(),
            "value": None if data is None else data.hex(),
        }
    key = decode_key(home, key_data)
    if not s.is_mine(_owner(key)):
        return LeftOut.OTHER_SCRIPTS
    named = s.fields(key)
    same = encode_key(key) == key_data
    said: dict[str, Any] = {
        **place,
        "type": type(key).__name__,
        "name": "|".join(str(named.get(field)) for field in KEY_FIELDS),
        "key": named,
        "value": None,
    }
    if data is not None:
        value = decode_value(home, key.API_KEY, data)
        version = int.from_bytes(data[:2], "big")
        said |= {"value": {type(value).__name__: s.fields(value)}, "version": version}
        same = same and encode_value(value, version) == data
    said["the same bytes again"] = same
    return said


def _owner(key: TopLevel) -> str:
    for field in OWNERS:
        if isinstance(name := getattr(key, field, None), str):
            return name
    raise NodeError(f"{type(key).__name__} names neither a group nor a transaction")
