"""Reading the raw topics."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.broker import Partition
from pipeline.config import Config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def raw(spark: SparkSession, config: Config, topics: Sequence[str]) -> DataFrame:
    """Return a stream of the records of these topics, from the earliest offset unless the checkpoint has another.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, headers (null if a record has none).
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


def between(
    spark: SparkSession, config: Config, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> DataFrame:
    """Return the records of some partitions up to `ends`, as a table. A partition that `starts` lacks is read from its
    beginning.

    The columns are those of `raw`.
    """
    earliest = -2  # Spark's number for the earliest offset
    return (
        spark.read.format("kafka")
        .options(**config.kafka_options())
        .option("assign", _by_topic({each: each.number for each in ends}, keys=False))
        .option("startingOffsets", _by_topic({each: starts.get(each, earliest) for each in ends}, keys=True))
        .option("endingOffsets", _by_topic(ends, keys=True))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", str(config.source.fail_on_data_loss).lower())
        .load()
    )


def _by_topic(numbers: Mapping[Partition, int], *, keys: bool) -> str:
    """Return {"topic": {"0": number}} or {"topic": [number]}, as Spark reads them."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for partition, number in numbers.items():
        found[partition.topic][str(partition.number)] = number
    return json.dumps({topic: each if keys else list(each.values()) for topic, each in found.items()})
