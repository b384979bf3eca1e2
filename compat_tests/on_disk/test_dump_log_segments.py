"""Apache Kafka's DumpLogSegments reads the directory of the node under test: after a clean stop, and after a crash, a
restart and a clean stop."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compat_tests.node import Node, make_node
from compat_tests.on_disk.dumps import verified
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.tool_server import run_shared
from compat_tests.topics import Topics
from pykbroker_log.log_config import AppendOrigin, LogConfig
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.control import end_txn_marker
from testkit import needs
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, Record, wait_until
from testkit.oracle.kafka import kafka_libs

# Words with which the tool reports errors; its exit code stays 0.
COMPLAINTS = ("ismatch", "out of order", "not match", "orrupt", "rror", "xception", "isvalid: false")
PER_CODEC = 900


@dataclass
class Written:
    """The data that a node has written, and their place."""

    data_dir: Path
    topic: str
    group: str
    records: list[Record] = field(default_factory=list)

    def partition_dir(self) -> Path:
        return next(self.data_dir.rglob(f"{self.topic}-0"))


def load(node: Node, written: Written, compression: str) -> None:
    """Write records that differ in size, with rising timestamps, and one idempotent producer per call."""
    start = len(written.records)
    numbers = range(start, start + PER_CODEC)
    rng = random.Random(start)
    values = (b"%d:" % i + base64.b64encode(rng.randbytes(300 + i % 300)) for i in numbers)
    records = [
        Record(b"k%d" % i, value, (("n", b"%d" % i),), NOW_MS + i) for i, value in zip(numbers, values, strict=True)
    ]
    ConfluentClient(batch_bytes=20_000).produce(
        node.bootstrap, written.topic, records, compression=compression, idempotent=True
    )
    written.records += records


@pytest.fixture(scope="module", params=["clean-stop", "crash"])
def written(against: str, request: pytest.FixtureRequest) -> Iterator[Written]:
    needs.java()
    kafka_libs()
    node = make_node(against).start()
    try:
        topics = Topics(node.bootstrap)
        # The smallest segments that Kafka allows, and an index entry per batch.
        topic = topics.create(config={"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"})
        done = Written(node.data_dir, topic, f"group-{topic}")
        for compression in ALL_COMPRESSIONS:
            load(node, done, compression)
        if request.param == "crash":
            node.kill()
            node.start()
        load(node, done, "none")
        load(node, done, "lz4")
        member = ConfluentClient().member(node.bootstrap, topic, done.group)
        wait_until(lambda: len(member.records()) >= len(done.records), "the group has read every record")
        assert [record.content for record in member.records()] == [record.content for record in done.records]
        member.leave()
        node.stop()
        yield done
    finally:
        node.close()


def dump(files: Sequence[Path], *args: str) -> str:
    """Return the tool's output for these files, and fail if it complains."""
    assert files, "nothing to look at"
    said = run_shared("org.apache.kafka.tools.DumpLogSegments", ["--files", ",".join(map(str, files)), *args])
    for complaint in COMPLAINTS:
        assert complaint not in said.out + said.err, said.out[-3000:] + said.err[-3000:]
    return said.out


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def test_every_batch_is_valid_and_every_record_is_there(written: Written) -> None:
    segments = sorted(written.partition_dir().glob("*.log"))
    assert len(segments) >= 3, "small segments were rolled"
    said = dump(segments, "--print-data-log")
    batches = [fields(line) for line in said.splitlines() if line.startswith("baseOffset: ")]
    assert {batch["isvalid"] for batch in batches} == {"true"}
    assert {batch["magic"] for batch in batches} == {"2"}
    assert {batch["compresscodec"] for batch in batches} == set(ALL_COMPRESSIONS)
    next_offset = 0
    for batch in batches:
        assert int(batch["baseOffset"]) == next_offset
        assert int(batch["lastOffset"]) - int(batch["baseOffset"]) + 1 == int(batch["count"])
        next_offset = int(batch["lastOffset"]) + 1
    assert next_offset == len(written.records)
    starts = {int(found) for found in re.findall(r"^Log starting offset: (\d+)", said, re.M)}
    assert starts == {int(segment.stem) for segment in segments}
    assert sum(int(batch["size"]) for batch in batches) == sum(segment.stat().st_size for segment in segments)

    record = re.compile(r"^\| offset: (\d+) CreateTime: (\d+) .*headerKeys: \[n\] key: (\S+) payload: (\S+)$", re.M)
    read = [(int(o), int(t), key.encode(), value.encode()) for o, t, key, value in record.findall(said)]
    assert read == [(i, r.timestamp_ms, r.key, r.value) for i, r in enumerate(written.records)]


def test_the_offset_index_points_at_batches(written: Written) -> None:
    files = sorted(written.partition_dir().glob("*.index"))
    said = dump(files)
    assert len(re.findall(r"^offset: \d+ position: \d+", said, re.M)) > 30
    said = dump(files, "--index-sanity-check")
    assert said.count("passed sanity check") == len(files)


def test_the_time_index_agrees_with_the_log(written: Written) -> None:
    said = dump(sorted(written.partition_dir().glob("*.timeindex")))
    entries = [(int(when), int(offset)) for when, offset in re.findall(r"^timestamp: (\d+) offset: (\d+)", said, re.M)]
    assert len(entries) > 30
    assert all(written.records[offset].timestamp_ms == when for when, offset in entries)


def test_the_last_producer_snapshot_has_every_producer(written: Written) -> None:
    newest = max(written.partition_dir().glob("*.snapshot"))
    assert int(newest.stem) == len(written.records), "a clean stop leaves a snapshot at the end of the log"
    producers = [fields(line) for line in dump([newest]).splitlines() if line.startswith("producerId: ")]
    ends = [PER_CODEC * (i + 1) - 1 for i in range(len(written.records) // PER_CODEC)]
    assert sorted(int(producer["lastOffset"]) for producer in producers) == ends
    assert {producer["lastSequence"] for producer in producers} == {str(PER_CODEC - 1)}
    assert len({producer["producerId"] for producer in producers}) == len(ends)


def test_transactions(tmp_path: Path) -> None:
    """Markers and `.txnindex`, as the log writes them: the first transaction is aborted, the second committed."""
    needs.java()
    kafka_libs()
    log = PartitionLog.open(
        OsDisk(),
        f"{tmp_path}/t-0",
        topic="t",
        partition=0,
        topic_id=bytes(range(16)),
        config=LogConfig(),
        now_ms=NOW_MS,
    )
    for producer_id in (7, 8):
        made = build_batch(
            [(None, b"v", (), NOW_MS)], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append_as_leader(bytearray(made), leader_epoch=0, now_ms=NOW_MS)
    for producer_id, commit in ((7, False), (8, True)):
        marker = end_txn_marker(
            commit=commit, producer_id=producer_id, producer_epoch=1, coordinator_epoch=3, timestamp=NOW_MS
        )
        log.append_as_leader(
            bytearray(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=2
        )
    log.close(clean=True)
    folder = tmp_path / "t-0"
    said = dump([*folder.glob("*.log")], "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", said) == [("ABORT", "3"), ("COMMIT", "3")]
    said = dump([*folder.glob("*.txnindex")])
    assert re.findall(r"version: 0 producerId: 7 firstOffset: 0 lastOffset: 2 lastStableOffset: 1", said)
    said = dump([max(folder.glob("*.snapshot"))])
    assert [fields(line)["currentTxnFirstOffset"] for line in said.splitlines() if "producerId: " in line] == [
        "OptionalLong.empty"
    ] * 2


def test_the_group_is_in_the_offsets_topic(written: Written) -> None:
    files = [path for path in sorted(written.data_dir.rglob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    said = dump(files, "--offsets-decoder", "--print-data-log")
    rows = re.findall(r"key: (\{.*\}) payload: (\{.*\}|<DELETE>)$", said, re.M)
    decoded: list[tuple[dict[str, Any], Any]] = [
        (json.loads(k), json.loads(v) if v != "<DELETE>" else None) for k, v in rows
    ]
    mine = [(key, value) for key, value in decoded if key["data"].get("group") == written.group]
    commits = [value for key, value in mine if key["type"] == "1"]
    assert commits[-1]["data"]["offset"] == len(written.records)
    assert all(key["data"]["topic"] == written.topic for key, _ in mine if key["type"] == "1")
    states = [value["data"] for key, value in mine if key["type"] == "2"]
    assert any(state["protocol"] == "range" and len(state["members"]) == 1 for state in states)
    assert (states[-1]["protocolType"], states[-1]["members"]) == ("consumer", [])


def test_the_metadata_log_tells_the_whole_story(written: Written) -> None:
    folder = next(written.data_dir.rglob("__cluster_metadata-0"))
    said = dump(sorted(folder.glob("*.log")), "--cluster-metadata-decoder")
    records = [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", said, re.M)]
    kinds = {record["type"] for record in records}
    assert {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} <= kinds
    features = {r["data"]["name"]: r["data"]["featureLevel"] for r in records if r["type"] == "FEATURE_LEVEL_RECORD"}
    assert features.get("metadata.version", 30) == 30
    (topic,) = [r["data"] for r in records if r["type"] == "TOPIC_RECORD" and r["data"]["name"] == written.topic]
    (partition,) = [
        r["data"] for r in records if r["type"] == "PARTITION_RECORD" and r["data"]["topicId"] == topic["topicId"]
    ]
    assert (partition["partitionId"], len(partition["replicas"]), len(partition["directories"])) == (0, 1, 1)
    assert "LeaderChange: " in said
    assert topic["topicId"] in (written.partition_dir() / "partition.metadata").read_text()


def test_metadata_snapshots_are_decoded(written: Written) -> None:
    folder = next(written.data_dir.rglob("__cluster_metadata-0"))
    files = sorted(folder.glob("*.checkpoint"))
    said = dump(files, "--cluster-metadata-decoder")
    assert said.count("SnapshotHeader ") == said.count("SnapshotFooter ") == len(files)
    assert "KRaftVoters " in said


def test_our_tool_finds_nothing_wrong(written: Written) -> None:
    assert verified([written.data_dir]) == ""
