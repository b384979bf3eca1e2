"""A slow reader while retention deletes its files: the records that it gets are right, and deleted ones are skipped."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.node import make_node
from compat_tests.topics import Topics
from testkit.clients import PATIENCE_S, wait_until

CONFIG = {
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
}
TOPIC = {"segment.bytes": str(1 << 20), "retention.bytes": str(1 << 20), "file.delete.delay.ms": "0"}
ROUNDS = 24
PER_ROUND = 1500


def value(number: int) -> bytes:
    return b"%d:" % number + random.Random(number).randbytes(700)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_slow_reader_skips_what_is_gone_and_reads_nothing_wrong(against: str, codec: str) -> None:
    node = make_node(against, CONFIG).start()
    try:
        topic = Topics(node.bootstrap).create(config=TOPIC)
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 5}
        )
        reader = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                # It prefetches no more than it asks for, so that the log's start overtakes it.
                "fetch.message.max.bytes": 20_000,
                "queued.max.messages.kbytes": 100,
            }
        )
        reader.subscribe([topic])
        expected, skipped, read = 0, 0, 0

        def take(limit: int) -> bool:
            """Return True if the end is reached."""
            nonlocal expected, skipped, read
            for message in reader.consume(limit, timeout=0.2):
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                assert offset >= expected, "nothing comes twice or out of order"
                assert message.value() == value(offset)
                skipped += offset - expected
                expected = offset + 1
                read += 1
            return expected == ROUNDS * PER_ROUND

        producer.produce(topic, value(0), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        wait_until(lambda: take(1) or read > 0, "the reader is there")
        for start in range(1, ROUNDS * PER_ROUND, PER_ROUND):
            for number in range(start, min(start + PER_ROUND, ROUNDS * PER_ROUND)):
                producer.produce(topic, value(number), partition=0)
            assert producer.flush(PATIENCE_S) == 0
            take(20)
        wait_until(lambda: take(500), "the reader has come to the end")
        reader.close()
        assert skipped > 0, "retention was faster"
        folder = next(node.data_dir.rglob(f"{topic}-0"))
        wait_until(lambda: len(list(folder.glob("*.log"))) <= 3, "the files of old segments are gone")
        wait_until(lambda: not list(folder.glob("*.deleted")), "and have been deleted")
    finally:
        node.close()
