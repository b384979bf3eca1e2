"""What a node has written into its coordinators' topics for one script: read back by Fetch, record by record.

Key and value are decoded, and encoded again: that the bytes are then the same is said of each record, so what a field's
encoding could hide (a default that is written out, a tag, bytes behind the body) differs too. How records are put into
batches is the node's own; which producer's they are, and what is a marker, is not.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from compat_tests.differential.masks import sort_inside
from compat_tests.differential.session import NodeError, Session
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.records.batch import BatchHeader, iter_batches
from pykbroker_wire.records.control import parse_control
from pykbroker_wire.records.record import Record, iter_records
from pykbroker_wire.stored.group.consumer_group_regular_expression import ConsumerGroupRegularExpressionValue
from pykbroker_wire.stored_framing import Home, decode_key, decode_value, encode_key, encode_value

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
HOMES: dict[str, Home] = {OFFSETS: "group", TRANSACTIONS: "transaction"}
PARTITIONS = 3
KEY_FIELDS = ("group", "group_id", "member_id", "topic", "partition", "transactional_id")
FETCH_VERSION = 12  # the last one by name


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
        """Compare the records of this script that were written since the last time. markers: control records too,
        of any producer that the script has named."""
        for index in range(PARTITIONS):
            end = self._end(index)
            said = _ordered(self._read(index, end, markers))
            if said:
                self._s.note(f"{label}: {self._topic}-{index}", said)

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
            data = bytes(found.records or b"")
            for position, header in iter_batches(data):
                for record in iter_records(data, position, header):
                    if record.offset >= self._next[index]:
                        self._next[index] = record.offset + 1
                        said += self._say(header, record, markers)
        return said

    def _say(self, header: BatchHeader, record: Record, markers: bool) -> list[Any]:
        written: dict[str, Any] = {}
        if header.producer_id >= 0:
            written["producer_id"] = header.producer_id
            written["producer_epoch"] = header.producer_epoch
            written["transactional"] = header.is_transactional
        if header.is_control:
            control = parse_control(record)
            known = self._s.knows("producer", header.producer_id)
            said = {**written, "marker": control.type.name, "coordinator_epoch": control.coordinator_epoch}
            return [said] if markers and known else []
        assert record.key is not None
        home = HOMES[self._topic]
        key_data = bytes(record.key)
        key = decode_key(home, key_data)
        whose = getattr(key, "group_id", None) or getattr(key, "group", None) or getattr(key, "transactional_id", "")
        if not self._s.is_mine(whose):
            return []
        said = {**written, "key": type(key).__name__, **self._s.fields(key)}
        same = encode_key(key) == key_data
        if record.value is None:
            said["tombstone"] = True
        else:
            data = bytes(record.value)
            value = decode_value(home, key.API_KEY, data)
            version = int.from_bytes(data[:2], "big")
            fields = self._s.fields(value)
            if isinstance(value, ConsumerGroupRegularExpressionValue):
                fields["version"] = "‹image›"  # an offset of the metadata log
            said |= {"value": type(value).__name__, "version": version, "fields": fields}
            same = same and encode_value(value, version) == data
        said["the same bytes again"] = same
        if record.headers:
            said["headers"] = len(record.headers)
        sort_inside(said)  # sets, written in the order in which they are walked
        return [said]


def _ordered(records: list[Any]) -> list[Any]:
    """Neighbours of one type by their keys: members are walked in no order. Those of one key stay as they are."""
    said: list[Any] = []
    for _, run in groupby(records, key=lambda record: record.get("key")):
        said += sorted(run, key=lambda record: [str(record.get(name)) for name in KEY_FIELDS])
    return said
