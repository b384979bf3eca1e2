"""DataFrame -> DataFrame, pure: the same functions for a stream and for a table.

`parse` makes the normal form (`schemas.EVENT`) of raw records; everything else takes it from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.parsing import parse
from pipeline.schemas import EVENT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["dead_letters", "parse", "valid"]


def valid(parsed: DataFrame) -> DataFrame:
    """The events: rows without a problem, in the normal form."""
    from pyspark.sql import functions as F

    return parsed.where(F.col("problem").isNull()).select(*EVENT_COLUMNS)


def dead_letters(parsed: DataFrame) -> DataFrame:
    """Rows with a problem as records: key and value untouched, and behind their own headers the reason, as text.

    dlq.reason (the code), dlq.message, dlq.topic, dlq.partition, dlq.offset, dlq.timestamp (milliseconds), and
    dlq.event-id where it could be read.
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
    ]
    none = F.array().cast("array<struct<key: string, value: binary>>")
    headers = F.concat(F.coalesce("headers", none), F.array_compact(F.array(*said)))
    return parsed.where(F.col("problem").isNotNull()).select("key", "value", headers.alias("headers"))
