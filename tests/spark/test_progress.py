"""The line about a batch, from the report that Spark has made of it."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.behind import dropped_range
from pipeline.broker import Partition
from pipeline.progress import alerts, summary

REPORT = {
    "batchId": 7,
    "batchDuration": 500,
    "numInputRows": 10,
    "timestamp": "2026-01-31T12:00:00.000Z",
    "eventTime": {"max": "2026-01-31T12:59:00.000Z", "watermark": "2026-01-31T11:48:00.000Z"},
    "stateOperators": [{"numRowsDroppedByWatermark": 3, "numRowsTotal": 5}],
    "sink": {"numOutputRows": -1},
    "observedMetrics": {"written": {"rows": 4}},
    "sources": [],
}


def test_rows_that_a_function_has_written_are_counted() -> None:
    assert summary("windows", REPORT)["written"] == 4
    assert summary("lake", {**REPORT, "observedMetrics": {}})["written"] is None


def test_a_clock_that_is_ahead_and_events_behind_the_watermark_are_alerts() -> None:
    batch = summary("lake", REPORT)
    assert [(each["alert"], each.get("events"), each.get("ahead_s")) for each in alerts(batch, 60)] == [
        ("behind-watermark", 3, None),
        ("clock-ahead", None, 3540.0),
    ]
    calm = {**REPORT, "eventTime": {"max": "2026-01-31T12:02:00.000Z"}, "stateOperators": []}
    assert alerts(summary("lake", calm), 60) == []
    assert alerts(summary("dead-letters", {**REPORT, "eventTime": {}, "stateOperators": []}), 60) == []


class Files:
    """A checkpoint of three batches."""

    def read(self, path: str) -> str:
        number = int(Path(path).name)
        offsets = {"clicks": {"0": 10 * number, "1": 5, **({"2": 4} if number == 2 else {})}}
        return "\n".join(["v1", json.dumps({"batchWatermarkMs": number * 1000}), json.dumps(offsets)])

    def names(self, folder: str) -> list[str]:
        raise AssertionError

    def write(self, path: str, text: str) -> None:
        raise AssertionError


def test_a_batch_drops_by_the_watermark_of_the_batch_before() -> None:
    assert dropped_range(Files(), 0) is None
    assert dropped_range(Files(), 1) is None, "there was no watermark yet"
    starts, ends, watermark_ms = dropped_range(Files(), 2) or ({}, {}, 0)
    assert watermark_ms == 1000
    assert ends == {Partition("clicks", 0): 20, Partition("clicks", 2): 4}, "partition 1 has nothing new"
    assert starts == {Partition("clicks", 0): 10, Partition("clicks", 1): 5}
