"""Record batches of dead letters (KIP-1191). Pure: offsets, keys and values go in, the bytes of a batch come out.

A letter has six headers in this order: topic, partition, offset, group, delivery count and message. Each value is text
in UTF-8, byte for byte as in Apache Kafka 4.4. The key and the value are null, or copies of those of the record. As in
Apache Kafka, headers and timestamp of the record are not copied.

A letter whose copy is too large for the topic is written without the copy, so that the letter itself is not lost.
Apache Kafka sends it as it is, and gives up the whole range when the topic refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from pykbroker_wire.records.batch import seal
from pykbroker_wire.records.layout import HEADER_SIZE
from pykbroker_wire.records.record import varint

#: The key and the value of a record.
KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]
#: Keys and values by offset. An offset that is missing has no copy.
RecordCopies: TypeAlias = Mapping[int, KeyAndValue]

_NO_COPY: Final[KeyAndValue] = (None, None)
_NULL: Final = b"\x01"
#: Attributes and timestamp delta. All letters of a batch have one timestamp.
_BEGINNING: Final = b"\x00\x00"
_HEADERS: Final = 6


class LetterFrame:
    """The parts of a letter's headers that are the same for all letters of a range, already encoded."""

    __slots__ = ("_after", "_before")

    def __init__(self, topic: str, partition: int, group_id: str, delivery_count: int, message: str) -> None:
        self._before = b"".join(
            (
                varint(_HEADERS),
                _header("__dlq.errors.topic", topic.encode()),
                _header("__dlq.errors.partition", b"%d" % partition),
                _text(b"__dlq.errors.offset"),
            )
        )
        self._after = b"".join(
            (
                _header("__dlq.errors.group", group_id.encode()),
                _header("__dlq.errors.delivery.count", b"%d" % delivery_count),
                _header("__dlq.errors.message", message.encode()),
            )
        )

    def headers(self, offset: int) -> bytes:
        """Return the encoded headers of the letter of a record, with their number."""
        return b"".join((self._before, _text(b"%d" % offset), self._after))


def _text(content: bytes) -> bytes:
    return varint(len(content)) + content


def _header(name: str, content: bytes) -> bytes:
    return _text(name.encode()) + _text(content)


class LetterBatch:
    """Collects letters for one partition, up to a number of bytes."""

    __slots__ = ("_most_bytes", "_parts", "_topic_most_bytes", "is_full", "size")

    def __init__(self, topic_most_bytes: int, most_bytes: int) -> None:
        """`topic_most_bytes`: the largest batch that the topic accepts. `most_bytes`: a lower limit, beyond which the
        batch has only one letter."""
        self._topic_most_bytes = topic_most_bytes
        self._most_bytes = min(most_bytes, topic_most_bytes)
        self._parts: list[bytes] = []
        #: the size of the sealed batch
        self.size = HEADER_SIZE
        #: True once a letter did not fit
        self.is_full = False

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, frame: LetterFrame, first: int, last: int, copies: RecordCopies) -> int:
        """Add the letters of the offsets from `first` to `last`, as many as fit. Return the first offset that was not
        added. An empty batch takes one letter of any size. This loop runs once for each letter, in about 2 µs."""
        parts, size = self._parts, self.size
        for offset in range(first, last + 1):
            headers = frame.headers(offset)
            key, value = copies.get(offset, _NO_COPY)
            record = _record(len(parts), key, value, headers)
            if size + len(record) > self._most_bytes:
                if parts:
                    self.is_full = True
                    self.size = size
                    return offset
                if size + len(record) > self._topic_most_bytes:
                    record = _record(0, None, None, headers)
            parts.append(record)
            size += len(record)
        self.size = size
        return last + 1

    def seal(self, now_ms: int) -> bytes:
        """Return the batch. It needs at least one letter. `now_ms` is the timestamp of the letters."""
        count = len(self._parts)
        assert count, "a batch has at least one letter"
        return seal(
            b"".join(self._parts),
            record_count=count,
            last_offset_delta=count - 1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
        )


def _record(delta: int, key: bytes | None, value: bytes | None, headers: bytes) -> bytes:
    body = b"".join(
        (
            _BEGINNING,
            varint(delta),
            _NULL if key is None else _text(key),
            _NULL if value is None else _text(value),
            headers,
        )
    )
    return varint(len(body)) + body
