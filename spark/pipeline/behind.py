"""Events before the watermark of a batch -> dead letters, before Spark commits the batch.

The first operator that keeps state drops them, and Spark reports only their number. The checkpoint shows which events
they are: a batch drops the events of its offsets that are no later than the watermark of the batch before. If Spark has
dropped any event, these offsets are read a second time. For a batch without such events this module only reads the
plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline import checkpoint, sources, transforms
from pipeline.broker import Partition
from pipeline.checkpoint import Files
from pipeline.config import Config

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DROPPED = "numRowsDroppedByWatermark"


def letters(
    spark: SparkSession, config: Config, job: str, files: Files, batch_id: int, time: Column | None = None
) -> DataFrame | None:
    """Return the dead letters of the batch that `job` has just computed, None if it has dropped nothing.

    `time`: the column that the job's watermark is made from, if it is not the time of the event.
    """
    if not dropped(spark, job):
        return None
    found = dropped_range(files, batch_id)
    if found is None:
        return None
    starts, ends, watermark_ms = found
    parsed = transforms.parse(sources.between(spark, config, starts, ends), config)
    return transforms.dead_letters(transforms.behind(parsed, watermark_ms, job, time))


def dropped_range(files: Files, batch_id: int) -> tuple[dict[Partition, int], dict[Partition, int], int] | None:
    """Return the begin and the end of a planned batch and the watermark by which it drops events, or None without
    one."""
    if batch_id == 0:
        return None
    watermark_ms = checkpoint.watermark_ms(files, batch_id - 1)
    if watermark_ms <= 0:
        return None
    starts, ends = checkpoint.planned(files, batch_id - 1), checkpoint.planned(files, batch_id)
    return starts, {each: end for each, end in ends.items() if end > starts.get(each, 0)}, watermark_ms


def dropped(spark: SparkSession, name: str) -> int:
    """Return how many rows the batch that the query runs has dropped so far."""
    running: Any = [query for query in spark.streams.active if query.name == name]
    if not running:
        return 0
    [query] = running
    return _in_plan(query._jsq.streamingQuery().lastExecution().executedPlan())


def _in_plan(plan: Any) -> int:
    metric = plan.metrics().get(DROPPED)
    children = plan.children()
    own = int(metric.get().value()) if metric.isDefined() else 0
    return own + sum(_in_plan(children.apply(number)) for number in range(children.length()))
