"""Reading a running pipeline from outside, on files as Spark and the lake write them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from example import watch
from example.records import Record
from example.sending import Delivered
from example.watch import LakeWatch
from pipeline.lake.commits import BATCH, CLAIM, COMPACTION, Note, Position, State


def plan(checkpoint: Path, batch: int, *sources: dict[str, dict[str, int]], committed: bool = True) -> None:
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(source) for source in sources)]
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    if committed:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def delivered(offset: int, at_ms: int, partition: int = 0) -> Delivered:
    return Delivered(Record(0, "clicks", partition, None, b"", ()), "clicks", offset, at_ms)


def test_a_query_has_read_what_all_its_sources_have_read(tmp_path: Path) -> None:
    ends = watch.ends_of_delivered([delivered(4, 0), delivered(7, 0), delivered(1, 0, partition=1)])
    assert ends == {("clicks", 0): 8, ("clicks", 1): 2}
    assert not watch.has_read(tmp_path, ends)
    plan(tmp_path, 0, {"clicks": {"0": 8, "1": 2}}, {"clicks": {"0": 7, "1": 2}})
    assert watch.offsets(tmp_path / "offsets" / "0") == {("clicks", 0): 7, ("clicks", 1): 2}
    assert not watch.has_read(tmp_path, ends)
    plan(tmp_path, 9, {"clicks": {"0": 8, "1": 2}})
    assert watch.has_read(tmp_path, ends)
    plan(tmp_path, 10, {"clicks": {"0": 9, "1": 2}}, committed=False)
    assert not watch.has_read(tmp_path, {("clicks", 0): 9})
    (tmp_path / "offsets" / ".11.crc").write_text("no batch")
    assert watch.batches(tmp_path, "offsets") == [0, 9, 10]


def test_a_record_is_fresh_when_its_batch_is_in_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "lake" / "_delta_log"
    log.mkdir(parents=True)
    monkeypatch.setattr(LakeWatch, "_run", lambda self: None)

    def entry(kind: str, batch: int, adds: str, removes: str = "") -> list[dict[str, object]]:
        note = Note(kind, "driver", 1, "lake", State("query", Position(batch, "plan")))
        added: list[dict[str, object]] = [{"add": {"path": path, "size": 1, "partitionValues": {}}} for path in adds]
        removed: list[dict[str, object]] = [{"remove": {"path": path}} for path in removes]
        return [{"commitInfo": {"operation": "WRITE", "userMetadata": note.encode()}}, *added, *removed]

    entries = [entry(CLAIM, -1, ""), entry(BATCH, 0, "ab"), entry(COMPACTION, 0, "c", "ab"), entry(BATCH, 1, "d")]
    entries.append([{"commitInfo": {"operation": "VACUUM START"}}])
    for version, actions in enumerate(entries):
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    with closing(LakeWatch(tmp_path / "lake")) as lake:
        pass
    assert (lake.files_written, lake.compactions, sorted(lake.committed_at_ms)) == (3, 1, [0, 1])
    assert lake.files == {"c", "d"}
    lake.committed_at_ms = {0: 5_000, 1: 9_000}
    checkpoint = tmp_path / "checkpoint"
    plan(checkpoint, 0, {"clicks": {"0": 2}})
    plan(checkpoint, 1, {"clicks": {"0": 4}})
    found = lake.freshness_s(
        checkpoint, [delivered(3, 8_500), delivered(0, 1_000), delivered(9, 0), delivered(1, 4_000)]
    )
    assert list(found) == [4.0, 1.0, 0.5]
