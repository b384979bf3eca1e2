"""Reading the raw topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.config import Config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def raw(spark: SparkSession, config: Config, topics: Sequence[str]) -> DataFrame:
    """A stream of the records of these topics, from the earliest offset on where the checkpoint knows no other.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, headers (null where a record has none).
    """
    return (
        spark.readStream.format("kafka")
        .options(**config.kafka_options())
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(config.source.max_offsets_per_trigger))
        .option("failOnDataLoss", str(config.source.fail_on_data_loss).lower())
        .load()
    )
