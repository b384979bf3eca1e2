"""Spark's reports about the batches of a query, as the JSON that Spark makes of them.

PySpark's own objects of a report take hundreds of calls to the JVM, because py4j ends each of their many maps by an
exception. That is seconds of CPU for one look at five queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Report = Mapping[str, Any]


def began(query: StreamingQuery) -> str | None:
    """Return when the batch began that Spark has reported last, None before the first report."""
    last: Any = query._jsq.lastProgress()
    return str(last.timestamp()) if last else None


def recent(query: StreamingQuery) -> Iterator[Report]:
    """Yield the reports that Spark still has, the oldest first."""
    kept: Any = query._jsq.recentProgress()
    for report in kept:
        yield json.loads(report.json())
