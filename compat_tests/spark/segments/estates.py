"""A node with topics of every kind that a segment can hold, and what Spark reads from them in both ways."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from pykbroker_log.checkpoints import decode_offsets
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, PATIENCE_S, Record, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = {
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
}
SMALL = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2048"}
ROW = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")

#: For tests in which the kind of the node changes nothing that the other tests do not see.
OURS = pytest.mark.parametrize(
    "estate",
    ["pykbroker", pytest.param("apache-kafka", marks=pytest.mark.long(amount="on Apache Kafka's directories"))],
    indirect=True,
    scope="session",
)

Offsets = dict[tuple[str, int], int]


def ends_of(bootstrap: str, topics: list[str]) -> Offsets:
    # A reader of committed records would get the beginning of the open transaction.
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_uncommitted"})
    try:
        return {
            (topic, number): consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE_S)[1]
            for topic in topics
            for number in consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        }
    finally:
        consumer.close()


def checkpointed(directory: Path) -> Offsets:
    try:
        return decode_offsets((directory / "replication-offset-checkpoint").read_bytes())
    except FileNotFoundError:
        return {}


def wait_for_checkpoint(node: Node, *topics: str) -> None:
    """Wait until the node has written down how far its records are safe."""
    wait_until(
        lambda: ends_of(node.bootstrap, list(topics)).items() <= checkpointed(node.data_dir).items(),
        f"the checkpoint has the ends of {', '.join(topics)}",
    )


@dataclass
class Estate:
    node: Node
    spark: SparkSession
    topics: Topics = field(init=False)
    _open: Producer | None = None

    def __post_init__(self) -> None:
        self.topics = Topics(self.node.bootstrap)
        self._mixed("mixed")
        self._transactions("transactions")
        self._compacted("compacted")
        self._appended("appended")
        wait_for_checkpoint(self.node, "mixed", "transactions", "compacted", "appended")

    def _mixed(self, topic: str) -> None:
        """Write with every compression, with empty and null keys, values and headers, into several segments."""
        self.topics.create(partitions=2, name=topic, config=SMALL)
        choice = random.Random(1)
        for block, compression in enumerate(ALL_COMPRESSIONS):
            records = []
            for number in range(600 * block, 600 * block + 600):
                key = (None, b"", b"key %d" % (number % 17))[number % 3]
                value = (None, b"", choice.randbytes(900), b"%d" % number)[number % 4]
                headers = ((), (("h", b"%d" % number), ("h", None)), (("", b""),))[number % 3]
                records.append(Record(key, value, headers, NOW_MS + 10 * number, number % 2))
            ConfluentClient(batch_bytes=20_000).produce(self.node.bootstrap, topic, records, compression=compression)

    def _transactions(self, topic: str) -> None:
        """Write committed and aborted transactions, plain records between them, and at the end a transaction that stays
        open."""
        self.topics.create(partitions=2, name=topic, config=SMALL)

        def records(first: int, count: int = 50) -> list[Record]:
            return [Record(b"k", b"%d" % i + bytes(500), (), NOW_MS + i, i % 2) for i in range(first, first + count)]

        client = ConfluentClient()
        story = [(number % 3 != 1, records(1000 * number, 150)) for number in range(12)]
        client.transact(self.node.bootstrap, topic, "first", story)
        client.produce(self.node.bootstrap, topic, records(50_000))
        client.transact(self.node.bootstrap, topic, "second", [(False, records(60_000)), (True, records(61_000))])
        stays_open = {"transactional.id": "open", "transaction.timeout.ms": 900_000}
        self._open = Producer({"bootstrap.servers": self.node.bootstrap, "log_level": 3, **stays_open})
        self._open.init_transactions(PATIENCE_S)
        self._open.begin_transaction()
        for record in records(70_000):
            self._open.produce(topic, value=record.value, partition=0, timestamp=record.timestamp_ms)
        assert not self._open.flush(PATIENCE_S)
        client.produce(self.node.bootstrap, topic, records(80_000))

    def _compacted(self, topic: str) -> None:
        config = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
        self.topics.create(name=topic, config=config)
        client = ConfluentClient(batch_bytes=5_000)

        def send(first: int) -> None:
            numbers = range(first, first + 500)
            records = [Record(b"%d" % (i % 40), b"%d" % i + bytes(100), (), NOW_MS + i, 0) for i in numbers]
            client.produce(self.node.bootstrap, topic, records)

        for first in range(0, 3000, 500):
            send(first)

        def has_holes() -> bool:
            client.produce(self.node.bootstrap, topic, [Record(b"roll", b"", (), NOW_MS, 0)])
            return len(client.consume(self.node.bootstrap, topic)) < 1500

        wait_until(has_holes, "the cleaner has been here")

    def _appended(self, topic: str) -> None:
        self.topics.create(name=topic, config={"message.timestamp.type": "LogAppendTime"})
        records = [Record(b"k", b"%d" % i, (), NOW_MS, 0) for i in range(50)]
        ConfluentClient().produce(self.node.bootstrap, topic, records, compression="zstd")

    # -- reading

    def kafka(self, **options: Any) -> DataFrame:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.node.bootstrap)
        return reader.options(**_dotted(options)).load()

    def segments(self, **options: Any) -> DataFrame:
        """Read the segments with the given options, and with the options for a broker."""
        reader = self.spark.read.format("pyspark_pykbroker").option("kafka.bootstrap.servers", self.node.bootstrap)
        return reader.options(**_dotted(options)).load(str(self.node.data_dir))

    def close(self) -> None:
        self._open = None


def _dotted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `_` with `.`, because a keyword such as `kafka_isolation_level` can have no dots."""
    return {name.replace("_", "."): value for name, value in options.items()}


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return every column of every row, in order of partitions and offsets."""
    columns = [column for column in ROW if column in frame.columns]
    found = [tuple(row) for row in frame.select(*columns).collect()]
    return sorted(found, key=lambda row: row[:3])


def message_of(error: BaseException) -> str:
    """Return in one line what Spark shows of an error."""
    return re.sub(r"\s+", " ", str(error))
