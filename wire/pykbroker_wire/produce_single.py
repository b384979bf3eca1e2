"""A fast path for the Produce requests that pipelining producers send again and again: one topic, one partition, with
or without a transactional id.

A twin of the generated `messages/produce.py` for that shape in flexible versions (9-13). One `unpack` replaces a tree
of readers and one `pack` a tree of writers, at a third of the cost. Not responsible for any other shape: `parse`
returns None, and the generated reader takes over. Both accept the same requests and write the same bytes
(tests/wire/test_produce_single.py).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

FIRST_VERSION: Final = 9
LAST_VERSION: Final = 13
_TOPIC_IDS_FROM: Final = 13

# after the transactional id: acks, timeout, number of topics + 1
_FRONT: Final = Struct(">hib")
# ... and for version 13 topic id, number of partitions + 1, partition index
_WITH_ID: Final = Struct(">hib16sbi")
_PARTITION: Final = Struct(">bi")
_ENDS: Final = b"\x00\x00\x00"

# size, correlation id, no tags; then one topic: id, one partition: index, no error, base offset, append time, log start
_ANSWER_WITH_ID: Final = Struct(">iixb16sbihqqqbbbbib")
_ANSWER_FRONT: Final = Struct(">iixbB")
_ANSWER_REST: Final = Struct(">bihqqqbbbbib")


def parse(
    frame: memoryview, position: int, version: int
) -> tuple[int, int, bytes | str, int, memoryview, str | None] | None:
    """Return (acks, timeout in ms, topic id or name, partition index, records, transactional id) of the request body at
    `position`, or None for any other shape."""
    try:
        id_length = frame[position]
        position += 1
        transactional_id: str | None = None
        if id_length:
            if id_length >= 0x80:
                return None
            transactional_id = str(frame[position : position + id_length - 1], "utf-8")
            position += id_length - 1
        if version == _TOPIC_IDS_FROM:
            acks, timeout_ms, topics, topic, partitions, index = _WITH_ID.unpack_from(frame, position)
            position += 28
        elif FIRST_VERSION <= version < _TOPIC_IDS_FROM:
            acks, timeout_ms, topics = _FRONT.unpack_from(frame, position)
            length = frame[position + 7]
            if not 1 < length < 0x80:
                return None
            position += 7 + length
            topic = str(frame[position + 1 - length : position], "utf-8")
            partitions, index = _PARTITION.unpack_from(frame, position)
            position += 5
        else:
            return None
        if topics != 2 or partitions != 2:
            return None
        size = frame[position]
        position += 1
        if size & 0x80:
            size &= 0x7F
            shift = 7
            while True:
                byte = frame[position]
                position += 1
                size |= (byte & 0x7F) << shift
                if not byte & 0x80:
                    break
                shift += 7
                if shift > 28:
                    return None
        end = position + size - 1
        if size < 1 or len(frame) != end + 3 or bytes(frame[end:]) != _ENDS:
            return None
        return acks, timeout_ms, topic, index, frame[position:end], transactional_id
    except Exception:  # noqa: BLE001  # whatever is wrong with these bytes, the generated reader raises the right error
        return None


def encode_answer(
    correlation_id: int,
    topic: bytes | str,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """Return the whole frame of a response without an error, size included."""
    # fmt: off
    if type(topic) is bytes:
        return _ANSWER_WITH_ID.pack(
            62,
            correlation_id,
            2,
            topic,
            2,
            index,
            0,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            1,
            0,
            0,
            0,
            0,
            0,
        )
    name = topic.encode()  # type: ignore[union-attr]
    return b"".join((
        _ANSWER_FRONT.pack(47 + len(name), correlation_id, 2, len(name) + 1),
        name,
        _ANSWER_REST.pack(2, index, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0),
    ))
    # fmt: on
