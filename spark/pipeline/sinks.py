"""Where results go.

Kafka topics are written at least once: a batch that is repeated after a crash is written again. What is keyed by its
identity (windows, sessions, conversions) is then the same value under the same key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.config import Config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# A dead letter is larger than the record was, by its headers: only the topic's max.message.bytes is to decide.
MAX_REQUEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Trigger:
    """When the next batch starts: until everything there is has been read (`once`), or every `seconds`."""

    once: bool = False
    seconds: float = 0

    def on(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self.seconds * 1000)} milliseconds")


def to_kafka(
    frame: DataFrame, config: Config, topic: str, checkpoint: str, trigger: Trigger, name: str
) -> StreamingQuery:
    """Starts a query that writes key, value and (if there) headers to a topic, at least once."""
    options = {"kafka.max.request.size": str(MAX_REQUEST_BYTES), **config.kafka_options()}
    writer = (
        frame.writeStream.format("kafka")
        .queryName(name)
        .outputMode("append")
        .options(**options)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
    )
    return trigger.on(writer).start()
