"""Produce: acks, batches good and bad, idempotent producers, sizes, codecs, timestamps.

tests/badinput has the cases in which pykbroker's answer is better than Apache Kafka's (bombs, null records, -1).
"""

from __future__ import annotations

import struct
from typing import Any

import crc32c

from compat_tests.differential.session import NOW_MS, Session
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import Headers, encode_record, varint

NO_SUCH_ID = bytes(range(16))
BEHIND_CRC = (
    "attributes",
    "last_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "sequence",
    "count",
)
Parts = list[tuple[int, bytes]]


def ask(
    topic: str, topic_id: bytes, parts: Parts, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=index, records=records) for index, records in parts],
            )
        ],
    )


def good(value: bytes = b"v", **fields: Any) -> bytes:
    return build_batch([(b"k", value, [("h", b"1")], NOW_MS)], **fields)


def crafted(payload: bytes, **changes: int) -> bytes:
    """Return a batch whose header has `changes`; the CRC is right unless it is among them."""
    fields = {
        "base_offset": 0,
        "length": 49 + len(payload),
        "leader_epoch": -1,
        "magic": 2,
        "attributes": 0,
        "last_delta": 0,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS,
        "producer_id": -1,
        "producer_epoch": -1,
        "sequence": -1,
        "count": 1,
    } | changes
    body = struct.pack(">hiqqqhii", *(fields[name] for name in BEHIND_CRC)) + payload
    crc = fields.get("crc", crc32c.crc32c(body))
    return (
        struct.pack(">qiibI", fields["base_offset"], fields["length"], fields["leader_epoch"], fields["magic"], crc)
        + body
    )


def produce(s: Session) -> None:
    """Produce in every version: acks, several partitions, unknown topics and partitions."""
    topic = s.make_topic(partitions=2)
    topic_id = s.topic_id(topic)
    s.each("acks -1", lambda v: ask(topic, topic_id, [(0, good())]))
    s.each("acks 1", lambda v: ask(topic, topic_id, [(0, good())], acks=1))
    s.each("two partitions", lambda v: ask(topic, topic_id, [(1, good()), (0, good(b"w"))]))
    for acks in (2, -2, 32767):
        s.each(f"acks {acks}", lambda v, n=acks: ask(topic, topic_id, [(0, good())], acks=n))  # type: ignore[misc]
    s.each("partitions that are not there", lambda v: ask(topic, topic_id, [(5, good()), (-1, good()), (0, good())]))
    s.each("unknown topic", lambda v: ask("no-such-topic", NO_SUCH_ID, [(0, good())]))
    s.each("bad name or zero id", lambda v: ask("a b", bytes(16), [(0, good())]))
    s.each("the same partition twice", lambda v: ask(topic, topic_id, [(0, good()), (0, good(b"w"))]))
    s.each("no partitions", lambda v: ask(topic, topic_id, []))
    s.each("no topics", lambda v: ProduceRequest(acks=-1, timeout_ms=1000))
    s.each("no topics, acks 2", lambda v: ProduceRequest(acks=2, timeout_ms=1000))
    s.each(
        "transactional id without a transaction",
        lambda v: ask(topic, topic_id, [(0, good())], transactional_id="t"),
        range(3, 14),
    )
    s.call("to an internal topic that is not there", ask("__transaction_state", bytes(16), [(0, good())]), 12)
    s.until_coordinator()
    for name in ("__consumer_offsets", "__cluster_metadata"):
        s.call(f"to {name}", ask(name, bytes(16), [(0, good())]), 12)


def produce_bad_batches(s: Session) -> None:
    """Produce batches with one thing wrong each."""
    topic = s.make_topic()
    compacted = s.make_topic("compacted", cleanup_policy="compact")
    record = encode_record(0, 0, b"k", b"v", [])
    ids = {topic: s.topic_id(topic), compacted: s.topic_id(compacted)}
    cases: list[tuple[str, bytes]] = [
        ("no bytes", b""),
        ("five bytes", b"12345"),
        ("two batches", good() + good()),
        ("crc", crafted(record, crc=1)),
        ("magic 0", crafted(record, magic=0)),
        ("magic 1", crafted(record, magic=1)),
        ("magic 3", crafted(record, magic=3)),
        ("magic -1", crafted(record, magic=-1)),
        ("length -1", crafted(record, length=-1)),
        ("length 13", crafted(record, length=13)),
        ("length 48", crafted(record, length=48)),
        ("torn", crafted(record, length=1000)),
        ("count 0", crafted(b"", count=0, last_delta=-1)),
        ("count -1", crafted(record, count=-1)),
        ("count 2^31-1", crafted(record, count=2**31 - 1)),
        ("count 2 of 1", crafted(record, count=2, last_delta=1)),
        ("last offset delta 5", crafted(record, last_delta=5)),
        ("last offset delta -1", crafted(record, last_delta=-1)),
        ("record too long", crafted(varint(5000) + record[1:])),
        ("record of size 0", crafted(varint(0))),
        ("key of 2^31-1", crafted(varint(12) + b"\0" + varint(0) + varint(0) + varint(2**31 - 1) + b"abc")),
        ("headers 2^31-1", crafted(varint(12) + b"\0\0\0\2k\2v" + varint(2**31 - 1))),
        ("headers -1", crafted(varint(8) + b"\0\0\0\2k\2v" + varint(-1))),
        ("header without a key", crafted(varint(10) + b"\0\0\0\2k\2v" + varint(1) + varint(-1) + varint(-1))),
        ("bytes behind the record", crafted(record + b"junk")),
        ("control batch", crafted(record, attributes=0x20)),
        ("transactional without producer", crafted(record, attributes=0x10)),
        ("transactional", crafted(record, attributes=0x10, producer_id=1, producer_epoch=0, sequence=0)),
        ("sequence -1", crafted(record, producer_id=5, producer_epoch=0)),
        ("producer epoch -1", crafted(record, producer_id=5, producer_epoch=-1, sequence=0)),
        ("attribute bit 7", crafted(record, attributes=0x80)),
        ("base offset 77", crafted(record, base_offset=77)),
        ("leader epoch 77", crafted(record, leader_epoch=77)),
        ("log append time", crafted(record, attributes=8)),
        ("timestamp -1", crafted(record, base_timestamp=-1, max_timestamp=-1)),
        ("timestamp -5", crafted(record, base_timestamp=-5, max_timestamp=-5)),
        (
            "two days ahead",
            crafted(record, base_timestamp=NOW_MS + 3 * 86_400_000, max_timestamp=NOW_MS + 3 * 86_400_000),
        ),
        ("max timestamp too high", crafted(record, max_timestamp=NOW_MS + 50)),
        ("max timestamp too low", crafted(record, max_timestamp=NOW_MS - 50)),
        ("1.1 MB", build_batch([(None, b"x" * 1_100_000, [], NOW_MS)])),
        # Offset deltas other than 0, 1, 2 without compression: Kafka stores them, pykbroker does not (tests/badinput).
    ]
    for label, data in cases:
        for version in (3, 7, 8, 13):
            s.call(label, ask(topic, ids[topic], [(0, data)], transactional_id=None), version)
    for label, data in (
        ("no key", build_batch([(None, b"v", [], NOW_MS)])),
        ("key and no key", build_batch([(b"k", b"v", [], NOW_MS), (None, b"v", [], NOW_MS)])),
    ):
        for version in (7, 8, 13):
            s.call(f"compacted topic, {label}", ask(compacted, ids[compacted], [(0, data)]), version)
    _stored(s, topic, ids[topic])


def _stored(s: Session, topic: str, topic_id: bytes) -> None:
    """Compare the current content of the log."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=10_000_000,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)],
            )
        ],
    )
    s.call("what is stored", request, 13)


def produce_idempotent(s: Session) -> None:
    """Idempotent producers: duplicates, gaps, epochs, unknown producers."""
    topic = s.make_topic()
    topic_id = s.topic_id(topic)
    cases = [
        ("first", 7001, 0, 0),
        ("second", 7001, 0, 1),
        ("duplicate", 7001, 0, 1),
        ("older duplicate", 7001, 0, 0),
        ("gap", 7001, 0, 5),
        ("third", 7001, 0, 2),
        ("next epoch, sequence 3", 7001, 1, 3),
        ("next epoch", 7001, 1, 0),
        ("old epoch", 7001, 0, 3),
        ("unknown producer, sequence 5", 7002, 3, 5),
        ("and its next", 7002, 3, 6),
    ]
    for label, producer, epoch, sequence in cases:
        s.call(
            label,
            ask(topic, topic_id, [(0, good(producer_id=producer, producer_epoch=epoch, base_sequence=sequence))]),
            13,
        )
    for sequence in range(6):
        s.call(
            f"sequence {sequence}",
            ask(topic, topic_id, [(0, good(producer_id=7003, producer_epoch=0, base_sequence=sequence))]),
            7,
        )
    s.call(
        "a duplicate of six ago",
        ask(topic, topic_id, [(0, good(producer_id=7003, producer_epoch=0, base_sequence=0))]),
        7,
    )
    s.call(
        "a duplicate of five ago",
        ask(topic, topic_id, [(0, good(producer_id=7003, producer_epoch=0, base_sequence=1))]),
        13,
    )
    s.call("wraps", ask(topic, topic_id, [(0, good(producer_id=7004, producer_epoch=0, base_sequence=2**31 - 1))]), 13)
    s.call("wrapped", ask(topic, topic_id, [(0, good(producer_id=7004, producer_epoch=0, base_sequence=0))]), 13)
    two = good(producer_id=7005, producer_epoch=0, base_sequence=0) + good(
        producer_id=7005, producer_epoch=0, base_sequence=1
    )
    s.call("two batches of a producer", ask(topic, topic_id, [(0, two)]), 13)
    _stored(s, topic, topic_id)


def produce_codecs(s: Session) -> None:
    """Every codec into topics of every compression.type; what is stored."""
    records = [(b"k%d" % i, b"value" * 20, [("h", None)], NOW_MS + i) for i in range(3)]
    for kind in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
        topic = s.make_topic(kind, compression_type=kind)
        topic_id = s.topic_id(topic)
        for codec in range(5):
            s.call(f"codec {codec} to {kind}", ask(topic, topic_id, [(0, build_batch(records, codec=codec))]), 13)
        s.call("zstd in version 6", ask(topic, topic_id, [(0, build_batch(records, codec=4))]), 6)
        answer = s.ask(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1_000_000,
                topics=[
                    FetchTopic(
                        topic=topic, topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=1_000_000)]
                    )
                ],
            ),
            13,
        )
        data = bytes(answer.responses[0].partitions[0].records)
        s.note(
            f"codecs stored in {kind}",
            [[h.base_offset, int(h.compression), h.record_count, h.max_timestamp] for _, h in iter_batches(data)],
        )


def produce_large_records(s: Session) -> None:
    """max.decompressed.message.bytes: records at and beyond the limit, compressed or not, alone or with others."""
    topic = s.make_topic(max_decompressed_message_bytes="100")
    topic_id = s.topic_id(topic)
    for codec in range(5):
        for size in (90, 92, 93, 94, 95, 96, 5_000):
            records: list[tuple[bytes | None, bytes | None, Headers, int]] = [(None, b"x" * size, (), NOW_MS)]
            s.call(f"codec {codec}, {size}", ask(topic, topic_id, [(0, build_batch(records, codec=codec))]), 13)
            many = build_batch([(b"k", b"v", (), NOW_MS), *records, (b"k", b"v", (), NOW_MS)], codec=codec)
            s.call(f"codec {codec}, {size} between others", ask(topic, topic_id, [(0, many)]), 13)


def produce_timestamps(s: Session) -> None:
    """LogAppendTime, and how far from now a timestamp may be."""
    stamped = s.make_topic("stamped", message_timestamp_type="LogAppendTime")
    strict = s.make_topic("strict", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    for name in (stamped, strict):
        topic_id = s.topic_id(name)
        for label, at in (
            ("long ago", 1_000_000),
            ("last week", NOW_MS - 7 * 86_400_000),
            ("next week", NOW_MS + 7 * 86_400_000),
            ("no time", -1),
        ):
            for version in (3, 8, 13):
                s.call(f"{name} {label}", ask(name, topic_id, [(0, build_batch([(b"k", b"v", [], at)]))]), version)
    small = s.make_topic("small", max_message_bytes="200")
    s.call("too large for its topic", ask(small, s.topic_id(small), [(0, good(b"x" * 300))]), 13)
    s.call("small enough", ask(small, s.topic_id(small), [(0, good(b"x"))]), 13)


SCRIPTS = (
    produce,
    produce_bad_batches,
    produce_idempotent,
    produce_codecs,
    produce_large_records,
    produce_timestamps,
)
