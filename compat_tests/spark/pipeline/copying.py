"""Topics on a real node, and the smallest job, which copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from pipeline import sinks, sources
from pipeline.config import Config, LakeConfig, Source
from pipeline.config import Topics as Names
from pipeline.job import Job
from pipeline.sinks import Trigger
from testkit.clients import NOW_MS, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ONCE = Trigger(once=True)
#: Configuration of a topic that the jobs read; this is the default of max_skew_s.
RAW = {"message.timestamp.after.max.ms": "60000"}


class World:
    """Topics with one partition each. `copy` reads the clicks and writes the windows."""

    def __init__(self, broker: Node, topics: Topics, folder: Path) -> None:
        self.topics = topics
        # The records of the tests are years old.
        keep = {"retention.ms": "-1"}
        self.clicks = topics.create(config={**keep, **RAW})
        self.orders = topics.create(config={**keep, **RAW})
        self.bootstrap = broker.bootstrap
        self.config = Config(
            checkpoints=str(folder / "checkpoints"),
            lake=LakeConfig(path=str(folder / "lake")),
            kafka={"bootstrap.servers": broker.bootstrap},
            topics=Names(self.clicks, self.orders, *(topics.create(config=keep) for _ in range(5))),
        )
        self.copy = Job("copy", lambda config: [config.topics.clicks], self._copy)

    def _copy(self, spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
        rows = sources.raw(spark, config, [config.topics.clicks]).select("key", "value")
        return sinks.to_kafka(rows, config, config.topics.windows, config.checkpoint("copy"), trigger, "copy")

    def lossy(self) -> Config:
        return replace(self.config, source=Source(fail_on_data_loss=False))

    def write(self, count: int) -> None:
        self.send([Record(b"k", b"%d" % number, (), NOW_MS) for number in range(count)])

    def send(self, records: list[Record], topic: str | None = None) -> None:
        """Write the records to the clicks, or to `topic` if it is given."""
        ConfluentClient().produce(self.bootstrap, topic or self.clicks, records)

    def read(self, topic: str) -> list[Record]:
        return ConfluentClient().consume(self.bootstrap, topic)

    def delete_before(self, offset: int) -> None:
        for future in self.topics.admin.delete_records([TopicPartition(self.clicks, 0, offset)]).values():
            future.result(30)
