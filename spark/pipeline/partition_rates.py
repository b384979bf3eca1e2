"""The load model: the reports of brokers in `__pykbroker_metrics` -> rates of partitions and brokers, as DataFrames.

docs/metrics-topic.md of pykbroker has the schema of a report. Responsible for the content of a window and its coverage;
not responsible for reading the topic nor for the file (loads_job.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SCHEMA = 1
_COUNTS = (
    *("bytes_in", "messages_in", "produce_requests", "bytes_out", "fetch_requests"),
    *("replication_bytes_in", "replication_fetches_in", "replication_bytes_out", "replication_fetches_out"),
)
REPORT = (
    "schema INT, cluster_id STRING, broker INT, broker_epoch BIGINT, sequence BIGINT, part INT, parts INT,"
    " end_ms BIGINT, duration_ms BIGINT, interval_ms BIGINT, cpu_ms DOUBLE,"
    " partitions ARRAY<STRUCT<topic: STRING, partition: INT, leader: BOOLEAN, replicas: ARRAY<INT>, size: BIGINT,"
    f" follower_lag: BIGINT, {', '.join(f'{name}: BIGINT' for name in _COUNTS)}, cpu_share: DOUBLE>>"
)


@dataclass(frozen=True, slots=True)
class Window:
    """Milliseconds since the epoch; an interval that ends at `begin_ms` is before the window."""

    begin_ms: int
    end_ms: int


def reports(raw: DataFrame) -> DataFrame:
    """Return rows of the kafka source as reports, each once; `begin_ms` is where the interval began."""
    from pyspark.sql import functions as F

    found = raw.select(F.from_json(F.col("value").cast("string"), REPORT).alias("report")).select("report.*")
    found = found.where("broker IS NOT NULL AND duration_ms > 0 AND parts > 0")
    once = found.dropDuplicates(["broker", "broker_epoch", "sequence", "part"])
    return once.withColumn("begin_ms", F.col("end_ms") - F.col("duration_ms"))


def newest_window(found: DataFrame, seconds: float, *, read_ms: int) -> Window:
    """Return the last window in which every broker that reports has had the time to report. `read_ms`: when the reading
    began. The kafka source reads each partition up to its end at the time of its task, so some partitions have newer
    reports than others.

    Raises:
        PipelineError: there is no report, or one that this version does not understand.
    """
    from pyspark.sql import functions as F

    row = found.agg(F.max("schema"), F.max("end_ms"), F.max("interval_ms")).first()
    if row is None or row[0] is None:
        raise PipelineError("there are no reports", "do the brokers have pykbroker.load.reporter.enable=true?")
    if row[0] > SCHEMA:
        raise PipelineError(f"reports have the schema {row[0]}, and this job knows {SCHEMA}", "take a newer job")
    end = min(row[1], read_ms) - row[2]
    return Window(end - round(seconds * 1000), end)


def of_window(found: DataFrame, window: Window) -> DataFrame:
    """Return the reports that overlap with a window, with `covered_ms`: the part of it that their interval covers."""
    from pyspark.sql import functions as F

    begin, end = F.lit(window.begin_ms), F.lit(window.end_ms)
    overlap = F.least("end_ms", end) - F.greatest("begin_ms", begin)
    return found.withColumn("covered_ms", overlap).where("covered_ms > 0")


def partition_rates(chosen: DataFrame, window: Window) -> DataFrame:
    """Return one row for each partition that a leader has reported. Rates are per second, over whole intervals: the
    counts of the leaders, and for replication those of one follower. `coverage`: the share of the window that the
    leaders' reports cover."""
    from pyspark.sql import functions as F

    rows = chosen.select("duration_ms", "covered_ms", F.explode("partitions").alias("row")).select(
        "duration_ms", "covered_ms", "row.*"
    )
    leads = F.col("leader")

    def total(what: Column, where: Column) -> Column:
        return F.sum(F.when(where, what).otherwise(0))

    leading_s = total(F.col("duration_ms"), leads) / 1000
    following_s = total(F.col("duration_ms"), ~leads) / 1000

    def rate(what: Column, seconds: Column) -> Column:
        return F.coalesce(what / F.nullif(seconds, F.lit(0.0)), F.lit(0.0))

    every = F.lit(True)
    cpu = F.col("cpu_share") * F.col("duration_ms") / 1000
    return (
        rows.groupBy("topic", "partition")
        .agg(
            leading_s.alias("leading_s"),
            *(
                rate(total(F.col(name), every), leading_s).alias(name)
                for name in ("bytes_in", "bytes_out", "messages_in", "produce_requests", "fetch_requests")
            ),
            rate(total(F.col("replication_bytes_in"), ~leads), following_s).alias("replication_bytes_in"),
            rate(total(F.col("replication_bytes_out"), every), leading_s).alias("replication_bytes_out"),
            F.max("size").alias("size"),
            F.max("follower_lag").alias("follower_lag"),
            rate(total(cpu, leads), leading_s).alias("leader_cpu"),
            rate(total(cpu, ~leads), following_s).alias("follower_cpu"),
            F.least(F.lit(1.0), total(F.col("covered_ms"), leads) / _length(window)).alias("coverage"),
        )
        .where("leading_s > 0")
        .drop("leading_s")
    )


def broker_rates(chosen: DataFrame, window: Window) -> DataFrame:
    """Return one row for each broker that reports, and for each that another broker names among the replicas of a
    partition. The columns are the broker's rates per second; `coverage`: the share of the window that its reports
    cover, 0 for a broker without reports."""
    from pyspark.sql import functions as F

    sums = {name: F.aggregate(f"partitions.{name}", F.lit(0).cast("bigint"), lambda a, b: a + b) for name in _COUNTS}
    told = (
        chosen.select(
            "broker",
            "cpu_ms",
            "duration_ms",
            "parts",
            (F.col("covered_ms") / F.col("parts")).alias("covered"),
            *(column.alias(name) for name, column in sums.items()),
        )
        .groupBy("broker")
        .agg(
            (F.sum(F.col("duration_ms") / F.col("parts")) / 1000).alias("seconds"),
            F.least(F.lit(1.0), F.sum("covered") / _length(window)).alias("coverage"),
            (F.sum(F.col("cpu_ms") / F.col("parts")) / F.sum(F.col("duration_ms") / F.col("parts"))).alias("cpu"),
            *(F.sum(name).alias(name) for name in _COUNTS),
        )
        .select("broker", "coverage", "cpu", *((F.col(name) / F.col("seconds")).alias(name) for name in _COUNTS))
    )
    named = chosen.select(F.explode(F.flatten("partitions.replicas")).alias("broker")).distinct()
    every = named.union(chosen.select("broker").distinct()).distinct()
    return every.join(told, "broker", "left").fillna(0.0)


def _length(window: Window) -> int:
    return window.end_ms - window.begin_ms
