"""DataFrame -> DataFrame, pure: the same functions for a stream and for a table.

`parse` makes the normal form (`schemas.EVENT`) of raw records; all other functions work on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.config import Config
from pipeline.parsing import first_written_ms, header, parse
from pipeline.schemas import EVENT_COLUMNS, REDRIVE_COUNT, REDRIVE_TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "arrival",
    "behind",
    "conversions",
    "dead_letters",
    "deduplicated",
    "parse",
    "redriven",
    "sessions",
    "upserts",
    "valid",
    "windows",
]

#: The reason of an event that a job has dropped by its watermark.
BEHIND_WATERMARK = "behind-watermark"
#: A dead letter is sent again at most this often. Otherwise two jobs with different code could send it in a circle.
MOST_REDRIVES = 3
# The format of times in JSON, as in 2026-01-31T12:00:00.000Z; the session's time zone is UTC.
TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def valid(parsed: DataFrame) -> DataFrame:
    """Return the events: rows without a problem, in the normal form."""
    from pyspark.sql import functions as F

    return parsed.where(F.col("problem").isNull()).select(*EVENT_COLUMNS)


def arrival() -> Column:
    """Return the time by which the lake's watermark judges an event: when it happened, or when it was sent again.

    A dead letter may be sent again days later, and its event is then far before the watermark. Brokers bound the
    record's own timestamp.
    """
    from pyspark.sql import functions as F

    again = header(REDRIVE_TIMESTAMP, "source.headers").isNotNull()
    return F.when(again, F.greatest("event_time", "source.timestamp")).otherwise(F.col("event_time"))


def behind(parsed: DataFrame, watermark_ms: int, job: str, time: Column | None = None) -> DataFrame:
    """Return the events that a job drops by its watermark, with that as their problem.

    `time`: the column that the watermark judges them by, if it is not the time of the event.
    """
    from pyspark.sql import functions as F

    late_ms = F.lit(watermark_ms) - F.unix_millis(F.col("event_time") if time is None else time)
    message = F.format_string(
        f"it happened %.3f s before the watermark of {job}, which newer events have moved", late_ms / 1000.0
    )
    problem = F.struct(F.lit(BEHIND_WATERMARK).alias("code"), message.alias("message"))
    dropped = parsed.where(F.col("problem").isNull() & (late_ms >= 0))
    return dropped.withColumns({"problem": problem, "job": F.lit(job)})


def dead_letters(parsed: DataFrame) -> DataFrame:
    """Return rows with a problem as records: key and value unchanged, and after their own headers the reason, as text.

    dlq.reason (the code), dlq.message, dlq.topic, dlq.partition, dlq.offset, dlq.timestamp (milliseconds), dlq.event-id
    if it could be read, and dlq.job if only one job leaves the record out.
    """
    from pyspark.sql import functions as F

    def header(name: str, value: Column) -> Column:
        return F.struct(F.lit(f"dlq.{name}").alias("key"), value.cast("string").cast("binary").alias("value"))

    said = [
        header("reason", F.col("problem.code")),
        header("message", F.col("problem.message")),
        header("topic", F.col("topic")),
        header("partition", F.col("partition")),
        header("offset", F.col("offset")),
        header("timestamp", F.unix_millis("timestamp")),
        F.when(F.col("event_id").isNotNull(), header("event-id", F.col("event_id"))),
        *([header("job", F.col("job"))] if "job" in parsed.columns else []),
    ]
    none = F.array().cast("array<struct<key: string, value: binary>>")
    headers = F.concat(F.coalesce("headers", none), F.array_compact(F.array(*said)))
    return parsed.where(F.col("problem").isNotNull()).select("key", "value", headers.alias("headers"))


def redriven(letters: DataFrame, config: Config) -> DataFrame:
    """Return the dead letters that are valid now as the original records: topic, key, value, headers; and event_id and
    date, by which the lake finds their event.

    This code judges each record again, by its first timestamp. Events that came after a watermark are left out, because
    new code does not accept them either. After their own headers the records get redrive.count and redrive.timestamp.
    """
    from pyspark.sql import functions as F

    own = F.filter("headers", lambda each: ~each["key"].startswith("dlq."))
    restored = letters.where(header("dlq.reason") != BEHIND_WATERMARK).select(
        "key",
        "value",
        header("dlq.topic").alias("topic"),
        header("dlq.partition").try_cast("int").alias("partition"),
        header("dlq.offset").try_cast("bigint").alias("offset"),
        F.timestamp_millis(header("dlq.timestamp").try_cast("bigint")).alias("timestamp"),
        own.alias("headers"),
        F.coalesce(header(REDRIVE_COUNT).try_cast("int"), F.lit(0)).alias("count"),
    )
    ours = F.col("topic").isin(config.topics.clicks, config.topics.orders) & F.col("timestamp").isNotNull()
    cured = parse(restored.where(ours & (F.col("count") < MOST_REDRIVES)), config).where(F.col("problem").isNull())

    def added(name: str, value: Column) -> Column:
        return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))

    before = F.filter("headers", lambda each: ~each["key"].isin(REDRIVE_COUNT, REDRIVE_TIMESTAMP))
    mark = F.array(added(REDRIVE_COUNT, F.col("count") + 1), added(REDRIVE_TIMESTAMP, first_written_ms()))
    headers = F.concat(before, mark).alias("headers")
    return cured.select("topic", "key", "value", headers, "event_id", F.to_date("event_time").alias("date"))


def deduplicated(events: DataFrame, config: Config, time: Column | None = None) -> DataFrame:
    """Return each event id once, the first that is read.

    A stream remembers an id until the watermark is later than the event's time plus the delay. A repetition has the
    same event time: after that it is before the watermark, and dropped like every such event. `time`: the column that
    the watermark is made from, if it is not the time of the event.
    """
    if not events.isStreaming:
        return events.dropDuplicates(["event_id"])
    delay = f"{config.times.watermark_delay_s} seconds"
    if time is None:
        return events.withWatermark("event_time", delay).dropDuplicatesWithinWatermark(["event_id"])
    timed = events.withColumn("watermark_time", time).withWatermark("watermark_time", delay)
    return timed.dropDuplicatesWithinWatermark(["event_id"]).drop("watermark_time")


def windows(events: DataFrame, config: Config) -> DataFrame:
    """Return tumbling windows by event type and country: start, end, event_type, country, events, amount.

    `amount` is null if no event has one. A window comes out once, when the watermark has passed its end.
    """
    from pyspark.sql import functions as F

    window = F.window("event_time", f"{config.times.window_s} seconds")
    grouped = events.groupBy(window, "event_type", "country").agg(*_totals())
    return grouped.select("window.start", "window.end", "event_type", "country", "events", "amount")


def sessions(events: DataFrame, config: Config) -> DataFrame:
    """Return each user's events without a gap: user_id, start, end (of the last event, plus the gap), events, amount.

    A session comes out once, when the watermark has passed its end.
    """
    from pyspark.sql import functions as F

    session = F.session_window("event_time", f"{config.times.session_gap_s} seconds")
    grouped = events.groupBy(session, "user_id").agg(*_totals())
    return grouped.select("user_id", "session_window.start", "session_window.end", "events", "amount")


def _totals() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.count(F.lit(1)).alias("events"), F.sum("amount").alias("amount")]


def conversions(orders: DataFrame, clicks: DataFrame, config: Config) -> DataFrame:
    """Return orders with each click of their user on their product in the attribution_s before them, or at the same
    moment. An order without such a click has null for it.

    Columns: order_id, click_id, click_type, user_id, product, amount, order_time, click_time. In streams an order
    without a click comes out when the watermark shows that none will come.
    """
    from pyspark.sql import functions as F

    ordered = orders.select(
        F.col("event_id").alias("order_id"), "user_id", "product", "amount", F.col("event_time").alias("order_time")
    )
    clicked = clicks.select(
        F.col("event_id").alias("click_id"),
        F.col("event_type").alias("click_type"),
        F.col("user_id").alias("click_user"),
        F.col("product").alias("click_product"),
        F.col("event_time").alias("click_time"),
    )
    before = F.col("order_time") - F.expr(f"INTERVAL {config.times.attribution_s} SECONDS")
    theirs = (F.col("click_user") == F.col("user_id")) & (F.col("click_product") == F.col("product"))
    joined = ordered.join(clicked, theirs & F.col("click_time").between(before, F.col("order_time")), "leftOuter")
    return joined.select(
        "order_id", "click_id", "click_type", "user_id", "product", "amount", "order_time", "click_time"
    )


def upserts(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return rows as records of a compacted topic: the key is the key columns between slashes, the value all columns as
    JSON.

    The last of the key columns may be null and is then left out. A row that is written again has the same bytes.
    """
    from pyspark.sql import functions as F

    types = dict(frame.dtypes)
    parts = [F.date_format(name, TIME_FORMAT) if types[name] == "timestamp" else F.col(name) for name in key]
    options = {"timestampFormat": TIME_FORMAT, "ignoreNullFields": "false"}
    value = F.to_json(F.struct(*frame.columns), options)
    return frame.select(F.concat_ws("/", *parts).cast("binary").alias("key"), value.cast("binary").alias("value"))
