"""The jobs: the topics that each one reads, and its transforms.

Each job reads the raw topics by itself, with the same source and the same `parse`, and has its own checkpoint. So one
job can be stopped, deleted and run again without another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pipeline import sinks, sources, transforms
from pipeline.config import Config
from pipeline.job import Job
from pipeline.schemas import CLICKS, ORDERS
from pipeline.sinks import Trigger

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def raw_topics(config: Config) -> list[str]:
    return [config.topics.clicks, config.topics.orders]


def _events(spark: SparkSession, config: Config, topics: Sequence[str], time: Column | None = None) -> DataFrame:
    """Return the events of these topics, each once. `time`: the watermark's column, if not the time of the event."""
    parsed = transforms.parse(sources.raw(spark, config, topics), config)
    return transforms.deduplicated(transforms.valid(parsed), config, time)


def _to_topic(frame: DataFrame, config: Config, topic: str, trigger: Trigger, name: str) -> StreamingQuery:
    return sinks.upserts_to_kafka(frame, config, topic, config.checkpoint(name), trigger, name)


def dead_letters(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
    parsed = transforms.parse(sources.raw(spark, config, raw_topics(config)), config)
    letters = transforms.dead_letters(parsed)
    name = DEAD_LETTERS.name
    return sinks.to_kafka(letters, config, config.topics.dead_letters, config.checkpoint(name), trigger, name)


def lake(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
    events = _events(spark, config, raw_topics(config), transforms.arrival())
    return sinks.to_lake(events, config, config.checkpoint(LAKE.name), trigger, LAKE.name)


def windows(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
    counted = transforms.windows(_events(spark, config, raw_topics(config)), config)
    rows = transforms.upserts(counted, key=["start", "event_type", "country"])
    return _to_topic(rows, config, config.topics.windows, trigger, WINDOWS.name)


def sessions(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
    found = transforms.sessions(_events(spark, config, raw_topics(config)), config)
    rows = transforms.upserts(found, key=["user_id", "start"])
    return _to_topic(rows, config, config.topics.sessions, trigger, SESSIONS.name)


def conversions(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
    orders = _events(spark, config, [config.topics.orders])
    clicks = _events(spark, config, [config.topics.clicks])
    rows = transforms.upserts(transforms.conversions(orders, clicks, config), key=["order_id", "click_id"])
    return _to_topic(rows, config, config.topics.conversions, trigger, CONVERSIONS.name)


def redrive() -> Job:
    """Return the job that sends those dead letters again which this code can read.

    Its checkpoint is named for the versions that this code knows. With one more version it reads the dead letters from
    the beginning again, because an earlier run has skipped those of the version that it did not know.
    """
    name = f"redrive-{'.'.join(CLICKS)}-{'.'.join(ORDERS)}"

    def start(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
        letters = sources.raw(spark, config, [config.topics.dead_letters])
        found = transforms.redriven(letters, config)
        return sinks.to_raw_topics(found, config, config.checkpoint(name), trigger, name)

    return Job(name, lambda config: [config.topics.dead_letters], start, raw_topics, makes_watermarks=False)


def _writes(*names: str) -> Callable[[Config], list[str]]:
    """Return the topics of these names, and that of the dead letters, which every job writes."""
    return lambda config: [*(getattr(config.topics, name) for name in names), config.topics.dead_letters]


DEAD_LETTERS = Job("dead-letters", raw_topics, dead_letters, _writes())
LAKE = Job("lake", raw_topics, lake, _writes())
WINDOWS = Job("windows", raw_topics, windows, _writes("windows"))
SESSIONS = Job("sessions", raw_topics, sessions, _writes("sessions"))
CONVERSIONS = Job("conversions", raw_topics, conversions, _writes("conversions"))

ALL = (DEAD_LETTERS, LAKE, WINDOWS, SESSIONS, CONVERSIONS)
