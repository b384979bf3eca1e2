"""One line per batch, and the same as JSON to the topic of metrics; and the records that a running job has lost.

Spark keeps the last progress reports of each query. The driver's loop reads them, because a listener would need a
second thread and a server for Java to call back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline import reports
from pipeline.broker import Broker, Partition, Range
from pipeline.checkpoint import offsets
from pipeline.errors import PipelineError
from pipeline.metrics import Metrics
from pipeline.preflight import GONE, Loss
from pipeline.reports import Report

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def summary(job: str, report: Report) -> dict[str, object]:
    """Return one batch in numbers; None for numbers that Spark does not know."""
    seconds = report["batchDuration"] / 1000
    states = report.get("stateOperators", [])
    written = (report.get("sink") or {}).get("numOutputRows", -1)
    observed = (report.get("observedMetrics") or {}).get("written")
    if observed is not None:  # Spark does not count the rows that a function writes
        written = observed["rows"]
    return {
        "job": job,
        "batch": report["batchId"],
        "time": report["timestamp"],
        "rows": report["numInputRows"],
        "seconds": seconds,
        "rows_per_s": round(report["numInputRows"] / seconds, 1) if seconds else None,
        "behind": _behind(report),
        "watermark": (report.get("eventTime") or {}).get("watermark"),
        "ahead_s": _ahead_s(report),
        "dropped_late": sum(state["numRowsDroppedByWatermark"] for state in states),
        "state_rows": sum(state["numRowsTotal"] for state in states),
        "written": written if written >= 0 else None,
    }


def line(batch: Mapping[str, Any]) -> str:
    """Return the same for people."""
    parts = [f"{batch['rows']:,} rows in {batch['seconds']:.1f} s"]
    if batch["rows_per_s"] is not None:
        parts[0] += f" ({batch['rows_per_s']:,.0f} rows/s)"
    parts.append(f"{batch['behind']:,} behind the end")
    if batch["watermark"] is not None:
        parts.append(f"watermark {batch['watermark']}")
        parts.append(f"{batch['dropped_late']:,} dropped as late")
        parts.append(f"{batch['state_rows']:,} rows of state")
    if batch["written"] is not None:
        parts.append(f"{batch['written']:,} written")
    return f"{batch['job']} batch {batch['batch']}: {', '.join(parts)}"


def alerts(batch: Mapping[str, Any], max_skew_s: int | None) -> list[dict[str, object]]:
    """Return the alerts of a batch: records for the topic of metrics, with the field `alert`."""
    about = {"job": batch["job"], "batch": batch["batch"], "watermark": batch["watermark"]}
    found: list[dict[str, object]] = []
    if batch["dropped_late"]:
        why = f"{batch['dropped_late']:,} events were behind the watermark: they are dead letters (behind-watermark)"
        found.append({**about, "alert": "behind-watermark", "events": batch["dropped_late"], "why": why})
    ahead_s = batch["ahead_s"]
    if max_skew_s is not None and ahead_s is not None and ahead_s > 2 * max_skew_s:
        why = f"the newest event is {ahead_s:,.0f} s ahead of the driver's clock: a client's clock is wrong, or this"
        found.append({**about, "alert": "clock-ahead", "ahead_s": ahead_s, "why": why})
    return found


def skipped(report: Report, ranges: Callable[[Iterable[Partition]], Mapping[Partition, Range]]) -> list[Loss]:
    """Return the records that a batch should have read and that were gone by then.

    Spark reports only the number of rows. If they are fewer than the offsets, the brokers are asked where the
    partitions begin now. The offsets before that are missing, but at most as many as the rows that are missing, because
    retention may have deleted more since then. (Fewer rows than offsets are ordinary if a topic is compacted or written
    in transactions.)
    """
    found = []
    for source in report["sources"]:
        start, end = offsets(source["startOffset"]), offsets(source["endOffset"])
        read = {partition: (first, end[partition]) for partition, first in start.items() if partition in end}
        for partition, (first, last) in read.items():
            if last < first:
                why = f"it goes on at {last}, after {first}: the topic was made anew, or the brokers have lost records"
                found.append(Loss(partition, None, None, why))
        missing = sum(max(0, last - first) for first, last in read.values()) - source["numInputRows"]
        if missing <= 0:
            continue
        for partition, there in ranges([each for each, (first, last) in read.items() if last > first]).items():
            first, last = read[partition]
            gone = min(min(there.earliest, last) - first, missing)
            if gone > 0:
                found.append(Loss(partition, first, first + gone, GONE))
                missing -= gone
    return found


class Progress:
    """Prints and sends the progress of the queries of one driver. `say` prints a line for people."""

    def __init__(
        self,
        broker: Broker | None,
        metrics: Metrics,
        say: Callable[[str], None] | None = None,
        *,
        max_skew_s: int | None = None,
    ) -> None:
        self._broker = broker
        self._metrics = metrics
        self._say = say or _print
        self._max_skew_s = max_skew_s
        self._told: dict[str, int] = {}  # the last batch of each job
        self._seen: dict[str, str] = {}  # when its last report was begun
        self._lost: dict[tuple[str, Partition], int] = {}  # the offset up to which a loss has been reported

    def lost(self, job: str, losses: Iterable[Loss]) -> None:
        """Report losses, each once."""
        for loss in losses:
            if loss.end is not None and self._lost.get((job, loss.partition), -1) >= loss.end:
                continue
            if loss.end is not None:
                self._lost[job, loss.partition] = loss.end
            self._say(f"{job}: LOST {loss}")
            self._metrics.send(job, {"job": job, "lost": loss.as_json()})

    def look(self, queries: Iterable[StreamingQuery]) -> None:
        """Report the batches since the last look. Spark also reports time without a batch, under the number of the next
        one."""
        for query in queries:
            last = reports.began(query)
            if last is None or last == self._seen.get(query.name):
                continue
            self._seen[query.name] = last
            for report in reports.recent(query):
                if "addBatch" in report["durationMs"] and report["batchId"] > self._told.get(query.name, -1):
                    self._told[query.name] = report["batchId"]
                    self.batch(query.name, report)

    def batch(self, job: str, report: Report) -> None:
        numbers = summary(job, report)
        self._say(line(numbers))
        self._metrics.send(job, numbers)
        for alert in alerts(numbers, self._max_skew_s):
            self._say(f"{job}: ALERT {alert['why']}")
            self._metrics.send(job, alert)
        if self._broker is None:
            return
        try:
            self.lost(job, skipped(report, self._broker.ranges))
        except PipelineError as error:
            self._say(f"{job}: whether records were lost is not known: {error.message}")


def _ahead_s(report: Report) -> float | None:
    """Return how far the newest event of the batch is ahead of the driver's clock; negative if it is not."""
    newest = (report.get("eventTime") or {}).get("max")
    if newest is None:
        return None
    return round((datetime.fromisoformat(newest) - datetime.fromisoformat(report["timestamp"])).total_seconds(), 1)


def _behind(report: Report) -> int:
    behind = 0
    for source in report["sources"]:
        end = offsets(source["endOffset"])
        for partition, latest in offsets(source["latestOffset"]).items():
            behind += max(0, latest - end.get(partition, 0))
    return behind


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
