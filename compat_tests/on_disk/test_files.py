"""Every file of a log directory: after the same requests Apache Kafka and pykbroker have left the same names, and the
same bytes except for ids and times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from compat_tests.differential.session import Session
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import commit_for
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from pykbroker_raft import flushed_note, reserve
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec
from testkit import needs
from testkit.clients import NOW_MS, Record, wait_until
from testkit.oracle.kafka import kafka_libs

CONFIG = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "200",
}


@dataclass
class Left:
    """The result of one owner: the directory after a clean stop, and its names before that."""

    root: Path
    running: set[str] = field(default_factory=set)


def _produce(session: Session, topic: str, number: int, *, size: int = 50, compacted: bool = False) -> None:
    """Write a batch without a value that depends on the node."""
    records = [(b"k%d" % i, b"%d " % number * (size // 2), (("h", b"v"),), NOW_MS + 10 * number + i) for i in range(3)]
    plain: dict[str, Any] = {} if compacted else {"producer_id": 4711, "producer_epoch": 2, "base_sequence": 3 * number}
    batch = build_batch(records, codec=Codec(number % 5 if size < 1000 else 0), **plain)
    data = TopicProduceData(
        topic_id=session.topic_id(topic), partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    (done,) = session.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])).responses
    assert done.partition_responses[0].error_code == 0, done


def _live(home: Home) -> None:
    """Send the same requests to both."""
    topics = Topics(home.bootstrap)
    topics.create(name="plain", partitions=2, config={"index.interval.bytes": "100"})
    topics.create(name="rolled", config={"segment.bytes": str(1 << 20), "index.interval.bytes": "4096"})
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(1 << 20)}
    topics.create(name="compacted", config=compacted)
    topics.create(name="transacted")
    topics.create(name="empty", partitions=2)
    topics.create(name="doomed")
    session = Session("files", home.bootstrap, {})
    try:
        for number in range(12):
            _produce(session, "plain", number)
        for number in range(9):
            _produce(session, "rolled", number, size=200_000)
            _produce(session, "compacted", number, size=200_000, compacted=True)
        _produce(session, "doomed", 0)
        part = DeleteRecordsPartition(partition_index=0, offset=8)
        asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="rolled", partitions=[part])], timeout_ms=20_000)
        assert session.ask(asked).topics[0].partitions[0].error_code == 0
    finally:
        session.close()
    rows = [Record(b"k", b"%d" % i, (), NOW_MS + i) for i in range(3)]
    ConfluentClient().transact(home.bootstrap, "transacted", "tx", [(True, rows), (False, rows), (True, rows)])
    commit_for("group", home.bootstrap, 5, topic="plain")
    checkpoint = home.log_dirs[0] / "cleaner-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and "compacted 0" in checkpoint.read_text(), "the cleaner has been there")
    watermarks = home.log_dirs[0] / "replication-offset-checkpoint"
    wait_until(watermarks.exists, "the high watermarks are noted, five seconds after the start")
    below = home.log_dirs[0] / "rolled-0/00000000000000000003.log.deleted"
    wait_until(below.exists, "retention has been there")
    topics.delete("doomed")
    wait_until(lambda: any(path.name.endswith("-delete") for path in home.log_dirs[0].iterdir()), "doomed is renamed")


@pytest.fixture(scope="module")
def left() -> Iterator[dict[Owner, Left]]:
    needs.java()
    kafka_libs()
    homes: dict[Owner, Home] = {"kafka": Home(CONFIG), "pykbroker": Home(CONFIG)}
    found: dict[Owner, Left] = {}
    try:
        for owner, home in homes.items():
            home.format(owner)
            home.start(owner)
            _live(home)
            root = home.log_dirs[0]
            found[owner] = Left(root, _names(root))
            home.stop()
        yield found
    finally:
        for home in homes.values():
            home.close()


#: Parts of names that depend on the node: unique ids, and offsets of the metadata log.
MASKS = (
    (re.compile(r"\.[0-9a-f]{32}-"), ".‹id›-"),
    (re.compile(r"(__cluster_metadata-0/)\d{20}(-\d{10})?(?=\.(checkpoint|snapshot))"), r"\1‹offset›"),
)


#: Our own files, which Apache Kafka ignores: the durable end of the metadata log (decision 13), and the space that is
#: reserved for it (decision 6).
OURS = [f"__cluster_metadata-0/{name}" for name in (flushed_note.FILE, reserve.FILE)]


def _names(root: Path) -> set[str]:
    found = set()
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        for pattern, by in MASKS:
            name = pattern.sub(by, name)
        # It depends on the cleaner's timing which segments are already joined. Apache Kafka deletes its own lock when
        # it stops; an unheld lock has the same meaning.
        if not name.startswith("compacted-0/0") and name != ".lock":
            found.add(name)
    return found


def test_the_same_names_after_a_clean_stop(left: dict[Owner, Left]) -> None:
    theirs, ours = (_names(left[owner].root) for owner in ("kafka", "pykbroker"))
    assert (sorted(theirs - ours), sorted(ours - theirs)) == ([], OURS)
    kinds = {re.sub(r"^.*?(?=\.[a-z_]+$|$)", "", name) for name in ours}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".properties"} <= kinds


def test_the_same_names_while_running(left: dict[Owner, Left]) -> None:
    """Except files that are made later: snapshots, and in our case indexes."""
    due = re.compile(r"‹offset›|\.index$|\.timeindex$|\.tmp$")
    theirs, ours = ({name for name in left[owner].running if not due.search(name)} for owner in ("kafka", "pykbroker"))
    assert (sorted(theirs - ours), sorted(ours - theirs)) == ([], OURS)
    assert ".kafka_cleanshutdown" not in ours


def _text(*masks: tuple[str, str], lines_in_any_order: bool = False) -> Callable[[bytes], str]:
    def canonical(data: bytes) -> str:
        text = data.decode()
        for pattern, by in masks:
            text = re.sub(pattern, by, text, flags=re.M)
        return "\n".join(sorted(text.split("\n"))) if lines_in_any_order else text

    return canonical


def _json(*masked: str) -> Callable[[bytes], object]:
    def canonical(data: bytes) -> object:
        found = json.loads(data)
        return {name: "‹node›" if name in masked else value for name, value in found.items()}

    return canonical


UUID = r"[A-Za-z0-9_-]{22}"
SAME = bytes
#: A file, and the compared part of it.
CONTENTS: tuple[tuple[str, Callable[[bytes], object]], ...] = (
    ("meta.properties", _text((r"^#\w.*$", "#‹date›"), (rf"id={UUID}", "id=‹id›"), lines_in_any_order=True)),
    (".kafka_cleanshutdown", _json("brokerEpoch")),
    ("recovery-point-offset-checkpoint", _text(lines_in_any_order=True)),
    ("replication-offset-checkpoint", _text(lines_in_any_order=True)),
    ("log-start-offset-checkpoint", _text(lines_in_any_order=True)),
    ("cleaner-offset-checkpoint", _text((r"^__.*\n", ""), (r"\A0\n\d+", "0\n‹count›"), lines_in_any_order=True)),
    ("plain-0/partition.metadata", _text((UUID, "‹id›"))),
    *((f"{topic}-0/leader-epoch-checkpoint", SAME) for topic in ("plain", "rolled", "transacted", "empty")),
    *((f"plain-0/00000000000000000000{kind}", SAME) for kind in (".log", ".index", ".timeindex")),
    ("plain-0/00000000000000000036.snapshot", SAME),
    *((f"rolled-0/{base:020d}{kind}", SAME) for base in (6, 12, 18) for kind in (".log", ".index", ".timeindex")),
    *((f"rolled-0/{base:020d}.snapshot", SAME) for base in (12, 18, 27)),
    ("transacted-0/00000000000000000000.txnindex", SAME),
    ("__cluster_metadata-0/quorum-state", _json("votedDirectoryId", "leaderEpoch")),
    ("__cluster_metadata-0/partition.metadata", SAME),
)


@pytest.mark.parametrize(("name", "canonical"), CONTENTS, ids=[name for name, _ in CONTENTS])
def test_the_same_content(name: str, canonical: Callable[[bytes], object], left: dict[Owner, Left]) -> None:
    theirs, ours = (canonical((left[owner].root / name).read_bytes()) for owner in ("kafka", "pykbroker"))
    assert ours == theirs
