"""A node under load is killed at any moment, also while it starts and while it stops, and no acknowledged record is
lost.

SIGKILL takes the process and leaves the page cache, so even what was never flushed must be there. journal.py contains
the rules. They are checked after every restart (on a stretch of every partition, and the groups' offsets), and on
everything at the end.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compat_tests.differential.session import Session
from compat_tests.node import Pykbroker
from compat_tests.tool_server import run_shared
from compat_tests.topics import Topics
from compat_tests.torture.kills import Kills
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from testkit import needs
from testkit.oracle.kafka import kafka_libs
from testkit.ports import steady_port
from testkit.torture.clients import ANSWER_S, Client, Group, Reader, TransactionalWriter, Window, Writer, go_on
from testkit.torture.journal import Journal

# Settings with which everything that normally happens from time to time happens continuously.
BUSY = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "150",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.scheduler.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.log.segment.bytes": "8388608",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.min.session.timeout.ms": "500",
}
SMALL = {"internal.segment.bytes": "60000", "index.interval.bytes": "300", "file.delete.delay.ms": "100"}
TOPICS = {
    "plain": SMALL,
    "flushed": {**SMALL, "flush.messages": "1", "preallocate": "true"},
    "retained": {**SMALL, "retention.bytes": "300000", "segment.ms": "700"},
    "compacted": {
        **SMALL,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "500",
        "max.compaction.lag.ms": "1000",
    },
    "transactions": {**SMALL, "segment.index.bytes": "800"},
}
ONCE: dict[str, object] = {"enable.idempotence": True}
#: The tool gets the names of the files in one argument, which may have 128 KiB.
FILES_AT_ONCE = 500
COMPLAINTS = ("ismatch", "out of order", "not match", "orrupt", "rror", "xception", "isvalid: false", "Non-consecutive")


@dataclass
class Torture:
    node: Pykbroker
    seed: int
    #: pause of writers between two bursts
    pause_s: float = 0.0
    topics: dict[str, str] = field(default_factory=dict)
    journals: dict[str, Journal] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        made = Topics(self.node.bootstrap)
        for kind, config in TOPICS.items():
            self.topics[kind] = made.create(config=config, name=kind)
            self.journals[kind] = Journal(
                kind,
                compacted=kind == "compacted",
                transactional=kind == "transactions",
                shrinks=kind == "retained",
            )
        self._writer("once-none", "plain", ONCE)
        self._writer("once-lz4", "plain", {**ONCE, "compression.type": "lz4"})
        self._writer("all-gzip", "plain", {"acks": "all", "max.in.flight": 1, "compression.type": "gzip"})
        self._writer("once-flushed", "flushed", ONCE)
        self._writer("leader-flushed", "flushed", {"acks": 1, "max.in.flight": 1, "compression.type": "zstd"})
        self._writer("once-retained", "retained", {**ONCE, "compression.type": "snappy"})
        self._writer("leader-retained", "retained", {"acks": 1, "max.in.flight": 1})
        self._writer("once-keys", "compacted", ONCE, keys=17)
        self._writer("all-keys", "compacted", {"acks": "all", "max.in.flight": 1}, keys=5)
        bootstrap, seed = self.node.bootstrap, self.seed
        self.writers.append(
            TransactionalWriter("transactor", bootstrap, self.journals["transactions"], "transactions", seed=seed)
        )
        for kind, journal in self.journals.items():
            committed = kind == "transactions"
            self.readers.append(Reader(bootstrap, journal, self.topics[kind], committed=committed, seed=seed))
        self.groups = [Group(bootstrap, "plain", "followers"), Group(bootstrap, "flushed", "others")]
        for client in self.clients:
            client.start()

    def _writer(self, name: str, kind: str, settings: dict[str, object], keys: int = 0) -> None:
        journal = self.journals[kind]
        bootstrap, topic = self.node.bootstrap, self.topics[kind]
        self.writers.append(
            Writer(name, bootstrap, journal, topic, settings=settings, keys=keys, seed=self.seed, pause_s=self.pause_s)
        )

    @property
    def clients(self) -> list[Client]:
        return [*self.writers, *self.readers, *self.groups]

    def watch(self) -> None:
        for client in self.clients:
            client.check()

    def close(self) -> None:
        for client in self.clients:
            client.ask_to_stop()

    # -- what must hold

    def await_progress(self) -> None:
        """Wait until every writer that does not wait for a timeout gets an answer again."""
        go_on([writer for writer in self.writers if not isinstance(writer, TransactionalWriter)], watched=self.clients)

    def look(self, rng: random.Random) -> None:
        """Check a stretch of every partition, and the groups' offsets."""
        promised = {group.group: group.committed for group in self.groups}
        newest = {kind: self._newest(kind) for kind in self.topics}
        window = Window(self.node.bootstrap)
        try:
            for kind, journal in self.journals.items():
                if kind == "transactions":
                    continue
                start, end = window.bounds(self.topics[kind])
                if end <= newest[kind]:
                    raise journal.violated(f"{newest[kind]} was acknowledged and the log ends at {end}")
                self._check_start(journal, start)
                begin = rng.randrange(start, end) if start < end else start
                stop = min(end, begin + 300)
                found = window.read(self.topics[kind], begin, stop)
                if found is None:
                    assert journal.shrinks, f"{kind}: {begin} is out of range and the log began at {start}"
                else:
                    with journal.lock:
                        journal.see_window(found, begin, stop)
        finally:
            window.close()
        for group in self.groups:
            there = group.fetch_committed()
            assert there >= promised[group.group], f"{group.group} had committed {promised[group.group]}, now {there}"

    def _check_start(self, journal: Journal, start: int) -> None:
        if not journal.shrinks and start != 0:
            raise journal.violated(f"the log begins at {start}, nothing was to be deleted")

    def _newest(self, kind: str) -> int:
        journal = self.journals[kind]
        with journal.lock:
            return max((max(one.acknowledged.values(), default=-1) for one in journal.writers.values()), default=-1)

    def finish(self) -> None:
        """Stop all clients, and read everything."""
        for client in self.clients:
            client.ask_to_stop()
        for client in self.clients:
            client.join(2 * ANSWER_S)
            assert not client.is_alive(), f"{client.name} does not end"
        self.watch()
        for committed in (False, True):
            window = Window(self.node.bootstrap, committed=committed)
            try:
                for kind, journal in self.journals.items():
                    if committed is (kind == "transactions"):
                        self._judge(window, kind, journal)
            finally:
                window.close()
        for group in self.groups:
            assert group.committed > 0
            assert group.fetch_committed() >= group.committed
        self._check_leaders()

    def _check_leaders(self) -> None:
        """Check that each partition has its leader back, with eligible leader replicas on and one replica. Apache Kafka
        4.3.1 leaves some partitions without a leader permanently."""
        session = Session("torture", self.node.bootstrap, {})
        try:
            asked = ApiVersionsRequest(client_software_name="torture", client_software_version="1")
            levels = {one.name: one.max_version_level for one in session.ask(asked, 4).finalized_features}
        finally:
            session.close()
        assert levels["eligible.leader.replicas.version"] == 1
        topics = Topics(self.node.bootstrap)
        listed = topics.admin.list_topics(timeout=30).topics
        assert {"__consumer_offsets", "__transaction_state", *self.topics.values()} <= set(listed)
        for name, topic in listed.items():
            assert topics.led(name, len(topic.partitions)), f"{name} is without a leader"

    def _judge(self, window: Window, kind: str, journal: Journal) -> None:
        start, end = window.bounds(self.topics[kind])
        self._check_start(journal, start)
        found = window.read(self.topics[kind], start, end)
        while found is None:  # retention was quicker
            start, end = window.bounds(self.topics[kind])
            found = window.read(self.topics[kind], start, end)
        journal.judge(found, start, end)
        late = f", {journal.sent_later} behind later ones, as their client sent them" if journal.sent_later else ""
        print(f"{kind}: {start} to {end}, {len(found)} records, all as they must be{late}")


@pytest.fixture
def torture(against: str, request: pytest.FixtureRequest) -> Iterator[Torture]:
    if against != "pykbroker":
        pytest.skip("this is about our own process")
    seed = int(os.environ.get("PYKBROKER_TORTURE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"PYKBROKER_TORTURE_SEED={seed}")
    node = Pykbroker(BUSY, port=steady_port())
    made = Torture(node, seed, pause_s=0.0 if request.node.get_closest_marker("long") else 0.1)
    try:
        node.start()
        made.begin()
        yield made
    finally:
        made.close()
        node.close()


def run(torture: Torture, kills: int) -> None:
    rng = random.Random(torture.seed + 1)
    ending = Kills(torture.node, torture.seed, torture.watch)
    began = time.monotonic()
    torture.await_progress()
    count = 0
    try:
        while count < kills:
            count += ending.round()
            torture.await_progress()
            torture.look(rng)
            print(f"{count} kills after {time.monotonic() - began:.0f} s", flush=True)
        torture.finish()
    except BaseException:
        torture.node.abort()
        print(
            "\n".join(line for line in torture.node.tail(3000).splitlines() if "left by retention" not in line)[-6000:]
        )
        raise
    finally:
        written = sum(writer.written.sent for writer in torture.writers)
        read = sum(reader.count for reader in torture.readers)
        print(
            f"seed {torture.seed}: {count} kills in {time.monotonic() - began:.0f} s, "
            f"{written} records written, {read} read: {' '.join(ending.done)}"
        )
    log = torture.node.log_file.read_text(errors="replace")
    assert "Traceback" not in log, log[max(0, log.index("Traceback") - 2000) :][:6000]
    torture.node.stop()
    dump_everything(torture.node.data_dir)


def dump_everything(data_dir: Path) -> None:
    """Check that Apache Kafka's tool finds nothing wrong in any file."""
    needs.java()
    kafka_libs()
    for partition in sorted(path for path in data_dir.iterdir() if path.is_dir()):
        files = sorted(str(path) for path in partition.iterdir() if re.fullmatch(r"\.(log|snapshot)", path.suffix))
        for first in range(0, len(files), FILES_AT_ONCE):
            some = ",".join(files[first : first + FILES_AT_ONCE])
            said = run_shared("org.apache.kafka.tools.DumpLogSegments", ["--files", some])
            for complaint in COMPLAINTS:
                assert complaint not in said.out + said.err, f"{partition}: {said.out[-3000:]}{said.err[-3000:]}"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_six_kills(torture: Torture) -> None:
    run(torture, 6)


@pytest.mark.long(amount="200 kills")
@pytest.mark.timeout(3600)
def test_two_hundred_kills(torture: Torture) -> None:
    run(torture, 200)
