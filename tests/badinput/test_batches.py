"""Produced batches that are invalid or too large: the error of Apache Kafka 4.3.1, or a better one that is listed
here."""

from __future__ import annotations

import gzip
import struct
import time
from typing import Any

import pytest

from testkit.nodes.wire import CLOSED
from tests.badinput.asking import Asker
from tests.badinput.watched import WatchedNode
from tests.log.produce_cases import XERIAL, batch, record, zigzag, zstd_frame

CORRUPT, TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP = 2, 10, 87, 32
NOW = int(time.time() * 1000)


def good(**fields: Any) -> bytes:
    return batch([record()], ts=NOW, **fields)


def one(raw: bytes, **fields: Any) -> bytes:
    return batch([], count=1, ts=NOW, raw=raw, **fields)


LIKE_KAFKA = {
    "wrong CRC": (good(crc=1), CORRUPT),
    "magic 3": (good(magic=3), CORRUPT),
    "magic -1": (good(magic=-1), CORRUPT),
    "length -1": (good(length=-1), CORRUPT),
    "length 13": (good(length=13), CORRUPT),
    "length 48": (good(length=48), CORRUPT),
    "magic 1": (good(magic=1), INVALID_RECORD),
    "magic 0": (good(magic=0), INVALID_RECORD),
    "no bytes": (b"", INVALID_RECORD),
    "five bytes": (b"12345", INVALID_RECORD),
    "torn": (good(length=1000), INVALID_RECORD),
    "two batches": (good() * 2, INVALID_RECORD),
    "count 0": (batch([], count=0, last=-1, ts=NOW), INVALID_RECORD),
    "count -1": (batch([record()], count=-1, last=0, ts=NOW), INVALID_RECORD),
    "count 2^31-1": (batch([record()], count=2**31 - 1, last=0, ts=NOW), INVALID_RECORD),
    "count 2 of 1": (batch([record()], count=2, ts=NOW), INVALID_RECORD),
    "last offset delta 5": (good(last=5), INVALID_RECORD),
    "record of size 0": (one(zigzag(0)), INVALID_RECORD),
    "record too long": (one(record(size=5000)), INVALID_RECORD),
    "key of 2^31-1": (one(zigzag(12) + b"\0" + zigzag(0) + zigzag(0) + zigzag(2**31 - 1) + b"abc"), INVALID_RECORD),
    "headers -1": (one(record(header_count=-1)), INVALID_RECORD),
    "headers 2^31-1": (one(record(header_count=2**31 - 1)), INVALID_RECORD),
    "header without a key": (one(record(header_count=1, extra=b"\x01\x01")), INVALID_RECORD),
    "bytes behind the records": (one(record() + b"junk"), INVALID_RECORD),
    "control batch": (good(attributes=0x20), INVALID_RECORD),
    "producer without a sequence": (good(pid=5, epoch=0, sequence=-1), INVALID_RECORD),
    "1.1 MB": (batch([record(value=bytes(1_100_000))], ts=NOW), TOO_LARGE),
    "two days ahead": (batch([record()], ts=NOW + 2 * 86_400_000), INVALID_TIMESTAMP),
    "log append time on a topic of create time": (good(attributes=8), 0),
    "timestamp -5": (batch([record()], ts=-5), 0),
}

# Apache Kafka answers -1 to these, which clients take for a reason to try again (KAFKA-14034), or stores records that
# cannot be read, or never answers; the right column is its behaviour.
BETTER = {
    "codec 5": (good(attributes=5), INVALID_RECORD, "-1"),
    "codec 7": (good(attributes=7), INVALID_RECORD, "-1"),
    "gzip garbage": (one(b"\x1f\x8bgarbage", attributes=1), INVALID_RECORD, "-1"),
    "snappy garbage": (one(b"\xff" * 40, attributes=2), INVALID_RECORD, "-1"),
    "lz4 garbage": (one(b"\xff" * 40, attributes=3), INVALID_RECORD, "-1"),
    "zstd garbage": (one(b"\xff" * 40, attributes=4), INVALID_RECORD, "-1"),
    "snappy of 4 GB": (one(b"\xff\xff\xff\xff\x0fabc", attributes=2), INVALID_RECORD, "-1"),
    "xerial chunk of 2^31-1": (one(XERIAL + struct.pack(">i", 2**31 - 1) + b"abc", attributes=2), INVALID_RECORD, "-1"),
    "xerial chunk of -1": (one(XERIAL + struct.pack(">i", -1) + b"abc", attributes=2), INVALID_RECORD, "-1"),
    "zstd with a huge window": (one(bytes.fromhex("28b52ffd0458") + b"\xff" * 20, attributes=4), INVALID_RECORD, "-1"),
    "offset delta 7": (batch([record(7)], ts=NOW), INVALID_RECORD, "stored wrong"),
    "null": (None, INVALID_RECORD, "no answer, ever"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIKE_KAFKA)
def test_verdict_of_apache_kafka(name: str, node: WatchedNode) -> None:
    data, verdict = LIKE_KAFKA[name]
    _judge(node, data, verdict)


@pytest.mark.parametrize("name", BETTER)
def test_better_than_apache_kafka(name: str, node: WatchedNode) -> None:
    data, verdict, _ = BETTER[name]
    _judge(node, data, verdict)


def _judge(node: WatchedNode, data: bytes | None, verdict: int) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("batches")
        for version in (7, 9, 12):
            assert asker.try_produce(topic, data, version=version).error_code == verdict
        assert asker.try_produce(topic, good()).error_code == 0
        assert not asker.said_in(node.log_file)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_is_refused_and_not_unpacked(codec: str, node: WatchedNode) -> None:
    """Apache Kafka accepts these 200 MiB; here a batch may unpack to 128 MiB, in pieces."""
    content = record(value=bytes(200 * 1024 * 1024))
    packed = gzip.compress(content, 6) if codec == "gzip" else zstd_frame(content)
    data = one(packed, attributes=1 if codec == "gzip" else 4)
    with Asker(node.port) as asker:
        topic = asker.make_topic("batches")
        before = node.holds()["anonymous_kib"]
        assert asker.try_produce(topic, data).error_code == TOO_LARGE
        assert node.holds()["anonymous_kib"] - before < 32 * 1024
        assert asker.try_produce(topic, good()).error_code == 0


def test_idempotence(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("idempotence")
        first = asker.try_produce(topic, good(pid=999_998, epoch=1, sequence=0))
        again = asker.try_produce(topic, good(pid=999_998, epoch=1, sequence=0))
        assert (first.error_code, again.error_code, again.base_offset) == (0, 0, first.base_offset)
        assert asker.try_produce(topic, good(pid=999_998, epoch=1, sequence=5)).error_code == 45
        assert asker.try_produce(topic, good(pid=999_998, epoch=0, sequence=1)).error_code == 47
        assert asker.try_produce(topic, good(pid=999_999, epoch=0, sequence=5)).error_code == 0


def test_what_the_request_says_wrong(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("batches")
        assert asker.try_produce(topic, good(attributes=0x10, pid=1, epoch=0, sequence=0)).error_code == 53
        assert asker.try_produce(topic, good(), acks=2).error_code == 21
        assert asker.try_produce(topic, good(), acks=-2).error_code == 21
        assert asker.try_produce(topic, good(), partition=99).error_code == 3
        assert asker.try_produce(topic, good(), partition=-1).error_code == 3
        assert asker.try_produce("no-such-topic", good()).error_code == 3
        assert asker.try_produce("../x", good()).error_code == 3
        compacted = asker.make_topic("compacted", cleanup_policy="compact")
        assert asker.try_produce(compacted, good()).error_code == INVALID_RECORD
        assert not asker.said_in(node.log_file)


def test_an_error_nobody_waits_for_ends_the_connection(node: WatchedNode) -> None:
    with Asker(node.port) as asker:
        topic = asker.make_topic("batches")
        assert asker.try_produce(topic, good(crc=1), acks=0) is CLOSED
        assert len(asker.said_in(node.log_file)) == 1
