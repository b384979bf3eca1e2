"""The jobs: which topics each reads, and what it makes of them.

Each reads the raw topics by itself, with the same source and the same `parse`, and has a checkpoint of its own: one can
be stopped, thrown away and run again without another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline import sinks, sources, transforms
from pipeline.config import Config
from pipeline.job import Job
from pipeline.sinks import Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def raw_topics(config: Config) -> list[str]:
    return [config.topics.clicks, config.topics.orders]


def dead_letters(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
    parsed = transforms.parse(sources.raw(spark, config, raw_topics(config)), config)
    name = DEAD_LETTERS.name
    letters = transforms.dead_letters(parsed)
    return sinks.to_kafka(letters, config, config.topics.dead_letters, config.checkpoint(name), trigger, name)


DEAD_LETTERS = Job("dead-letters", raw_topics, dead_letters)
