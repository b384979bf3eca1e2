"""Batches of some kilobytes with millions of records or headers: the node answers them, and no turn of its loop takes
long, so that its other clients and its heartbeats are served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pykbroker
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import encode_record, varint
from pykbroker_wire.records.walk import COMPILED
from testkit.logs.helpers import NOW, sealed
from testkit.nodes.wire import Wire

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMPILED, reason="the compiled twin of the record walk is not built here"),
]

#: CPU milliseconds. A turn of 100 ms is slow; the bound leaves room for a slow machine.
_MOST_CPU_MS = 200
_LONGEST = "pykbroker:type=EventLoop,name=LongestTurnCpuMs"


def _headers(count: int) -> bytes:
    body = b"\0\0\0\x01\x01" + varint(count) + b"\0\x01" * count
    return varint(len(body)) + body


def _equal_offsets(count: int) -> bytes:
    return encode_record(0, 0, None, None) * count


def _wrong_time_at_the_end(count: int) -> bytes:
    return encode_record(0, 0, b"k", None) * (count - 1) + encode_record(0, -(10**12), b"k", None)


def _keyless_at_the_end(count: int) -> bytes:
    return encode_record(0, 0, b"k", None) * (count - 1) + encode_record(0, 0, None, None)


@pytest.fixture(scope="module")
def broker() -> Iterator[pykbroker.Broker]:
    with pykbroker.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        settings = {"max.message.bytes": "10000000"}
        for name, own in (
            ("plain", {}),
            ("gzip", {"compression.type": "gzip"}),
            ("compact", {"cleanup.policy": "compact"}),
            ("timed", {"message.timestamp.before.max.ms": "1000000"}),
        ):
            assert wire.try_create(name, 1, 1, {**settings, **own}).error_code == ErrorCode.NONE
        yield broker


NONE, INVALID_RECORD, INVALID_TIMESTAMP = ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("topic", "content", "count", "code"),
    [
        ("plain", _headers(9_000_000), 1, NONE),
        ("plain", _equal_offsets(9_000_000), 9_000_000, NONE),
        ("gzip", _equal_offsets(3_000_000), 3_000_000, NONE),
        ("timed", _wrong_time_at_the_end(3_000_000), 3_000_000, INVALID_TIMESTAMP),
        ("compact", _keyless_at_the_end(3_000_000), 3_000_000, INVALID_RECORD),
    ],
    ids=["headers", "equal offsets", "another codec", "a wrong time at the end", "a record without a key at the end"],
)
def test_a_batch_of_millions_holds_no_turn(
    broker: pykbroker.Broker, topic: str, content: bytes, count: int, code: ErrorCode
) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        batch = sealed(content, count, Codec.ZSTD)
        assert len(batch) < 10_000
        assert wire.produce(topic, batch).error_code == code
    assert broker.metrics()[_LONGEST] < _MOST_CPU_MS


def test_the_offset_of_a_time_in_such_a_batch_holds_no_turn(broker: pykbroker.Broker) -> None:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in (NOW, NOW + 1, -3)]
    with Wire(broker.bootstrap_servers) as wire:
        for partition in asked:
            topics = [ListOffsetsTopic(name="plain", partitions=[partition])]
            answer = wire.call(ListOffsetsRequest(replica_id=-1, topics=topics))
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert broker.metrics()[_LONGEST] < _MOST_CPU_MS
