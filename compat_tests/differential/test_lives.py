"""The life of a log on both nodes: producers, deletion and restarts in the same order; answers and files are compared.

The state of a log's producers after a restart, DeleteRecords or retention is in no single answer, so the same story is
run on Apache Kafka and on pykbroker. A story yields when its node is to be stopped; all stories of a node share the
restarts, of which the first and the third are clean stops and the second is a SIGKILL. After each clean stop the names
of the partition's files and the entries of its newest producer snapshot are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.differential import share_lives
from compat_tests.differential.compare import compare
from compat_tests.differential.session import Session, Step
from compat_tests.node import Node, make_node
from pykbroker_log import names
from pykbroker_log.checkpoints import decode_offsets
from pykbroker_log.producers import decode_snapshot
from pykbroker_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker_wire.records.batch import build_batch
from testkit.clients import wait_until
from testkit.ports import steady_port

CONFIG = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "producer.id.expiration.check.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    # Allow transactional batches without their coordinator.
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
#: the same on both sides, and recent enough that no producer is forgotten
NOW_MS = int(time.time()) * 1000
KEEP = {"retention.ms": "-1", "retention.bytes": "-1"}


class Story:
    """One node, one topic with one partition. `say` and the other methods send a request and keep the answer."""

    def __init__(self, node: Node, name: str, *, takes_notes_away: bool) -> None:
        self.node = node
        self._takes_notes_away = takes_notes_away
        self._name = name
        self.topic = ""
        self.steps: list[Step] = []
        self._session = Session(name, node.bootstrap, {})

    def make(self, **configs: str) -> None:
        wanted = KEEP | {key.replace("_", "."): value for key, value in configs.items()}
        self.topic = self._session.make_topic("t")
        self.alter(2, self.topic, wanted)
        self._session.until_published()

    def _call(self, label: str, request: object, version: int | None = None) -> object:
        answer: object = self._session.call(label, request, version)  # type: ignore[arg-type]
        return answer

    # -- asking

    def send(
        self,
        sequence: int,
        count: int = 1,
        *,
        pid: int = 7,
        epoch: int = 0,
        txn: bool = False,
        size: int = 10,
        at_ms: int = NOW_MS,
    ) -> None:
        records = [(b"k", b"v" * size, (), at_ms) for _ in range(count)]
        data = build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=txn)
        request = ProduceRequest(
            transactional_id="t" if txn else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=0, records=data)])
            ],
        )
        self._call(f"producer {pid} epoch {epoch} sequence {sequence} x {count} txn {txn}", request, 11)

    def mark(self, *, commit: bool, pid: int, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        marker = WritableTxnMarker(
            producer_id=pid,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=self.topic, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
        )
        self._call(f"marker of {pid} commit {commit}", WriteTxnMarkersRequest(markers=[marker]), 1)

    def delete(self, offset: int) -> None:
        asked = DeleteRecordsTopic(
            name=self.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
        )
        self._call(f"delete before {offset}", DeleteRecordsRequest(timeout_ms=10_000, topics=[asked]))

    def look(self, label: str) -> None:
        """Read offsets by name, producers, the end of the epoch, readable offsets and unreadable ones."""
        for timestamp in (-1, -2, -3, -4):
            for level in (0, 1):
                self._call(f"{label}: offset {timestamp} level {level}", self._offsets(timestamp, level), 8)
        producers = DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=[0])])
        self._call(f"{label}: producers", producers)
        epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        ends = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=self.topic, partitions=[epoch])]
        )
        self._call(f"{label}: end of epoch 0", ends)
        for offset in (0, self.start()):
            for level in (0, 1):
                self._call(f"{label}: fetch from {offset} level {level}", self._fetch(offset, level), 12)

    def _offsets(self, timestamp: int, level: int = 0) -> ListOffsetsRequest:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self.topic, partitions=[wanted])
        return ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic])

    def _fetch(self, offset: int, level: int) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=level,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )

    def _offset(self, timestamp: int) -> int:
        answer = self._session.ask(self._offsets(timestamp))
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    def start(self) -> int:
        return self._offset(-2)

    # -- changing the world

    def alter(self, kind: int, name: str, values: dict[str, str]) -> None:
        configs = [AlterableConfig(name=key, value=value) for key, value in values.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        self._session.ask(IncrementalAlterConfigsRequest(resources=[resource]))

    def keep_for(self, retention_ms: int) -> None:
        self.alter(2, self.topic, {"retention.ms": str(retention_ms)})

    def until_start_is(self, wanted: Callable[[int, int], bool]) -> None:
        """Wait until retention, which removes files, has moved the log start."""

        def moved() -> bool:
            first = min(int(path.stem) for path in self.folder().glob("*" + names.LOG))
            return wanted(self.start(), self._offset(-1)) and first == self.start()

        wait_until(moved, "the log start moves")

    def until_settled(self) -> None:
        """Wait until the files before the log start are deleted, and a crash does not move the log start.

        Two tasks do that at intervals: one deletes the files, the other writes the log start to a checkpoint. If the
        first file that is left has the same offset, Apache Kafka removes its checkpoint entry again. Its producer state
        after a crash depends on whether that happened, because with the entry it reads no snapshot from before.
        pykbroker keeps the entry, and for it this makes no difference.
        """

        def is_settled() -> bool:
            start = self.start()
            found = [path.name for path in self.folder().iterdir()]
            bases = sorted(int(name[:20]) for name in found if name.endswith(names.LOG))
            # The log itself is deleted first, then its indexes, then the producer snapshot.
            going = {name[:20] for name in found if name.endswith(names.LOG + names.DELETED)}
            gone = not any(base <= start for base in bases[1:]) and not any(
                name[:20] in going and not name.endswith(names.DELETED) for name in found
            )
            checkpoint = self.node.data_dir / names.LOG_START_OFFSETS
            noted = decode_offsets(checkpoint.read_bytes()).get((self.topic, 0)) if checkpoint.exists() else None
            if start > bases[0]:
                return gone and noted == start
            return gone and (noted is None or (noted == start and not self._takes_notes_away))

        wait_until(is_settled, "the log start is on disk, and nothing lies before it")

    def until_producers(self, wanted: set[int]) -> None:
        request = DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=[0])])

        def known() -> set[int]:
            answer = self._session.ask(request)
            return {producer.producer_id for producer in answer.topics[0].partitions[0].active_producers}

        wait_until(lambda: known() == wanted, "producers are forgotten")

    def leave(self) -> None:
        """Finish before the node stops."""
        self._session.end()
        self.steps += self._session.steps

    def another_session(self) -> Session:
        """Return a session that stays open while the node stops, unlike the story's own. `end_session` ends it."""
        return Session(self._name, self.node.bootstrap, {})

    def end_session(self, session: Session) -> None:
        session.close()
        self.steps += session.steps

    def come_back(self) -> None:
        self._session = Session(self._name, self.node.bootstrap, {})
        self._session.until_served(self.topic)

    # -- files

    def note(self, label: str, value: object) -> None:
        self.steps.append(Step(label, "", 0, None, value))

    def folder(self) -> Path:
        return self.node.data_dir / f"{self.topic}-0"

    def files(self, label: str) -> None:
        """Compare the files of a stopped node."""
        found = sorted(path.name for path in self.folder().iterdir() if not path.name.endswith(names.DELETED))
        kinds = (names.LOG, *names.INDEXES)
        kept = [name for name in found if name.endswith(kinds)]
        # A snapshot at the first segment's base is useless, and it depends on Kafka's timing whether it still exists.
        snapshots = [name for name in found if name.endswith(names.SNAPSHOT) and name[:20] > kept[0][:20]]
        self.note(f"{label}: files", kept + snapshots)
        if snapshots:
            self.note(
                f"{label}: producers in {snapshots[-1]}",
                [
                    [entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset]
                    + [batch.offset_delta for batch in entry.batches]
                    + [entry.last_timestamp > NOW_MS, entry.coordinator_epoch, entry.txn_first_offset]
                    for entry in sorted(
                        decode_snapshot((self.folder() / snapshots[-1]).read_bytes()), key=lambda e: e.producer_id
                    )
                ],
            )
        starts = decode_offsets((self.node.data_dir / names.LOG_START_OFFSETS).read_bytes())
        self.note(f"{label}: checkpoint of the log start", starts.get((self.topic, 0), -1))


def producers_over_restarts(story: Story) -> Iterator[None]:
    """Sequences, repetitions, epochs; a clean stop and a crash in between."""
    story.make(internal_segment_bytes="400")
    for sequence in range(8):
        story.send(sequence)
    story.send(0, 3, pid=8)
    story.send(2**31 - 2, 4, pid=9)
    story.send(100, pid=10, epoch=3)

    def verdicts(repeated: tuple[int, ...]) -> None:
        for sequence in (*repeated, 7, 9):
            story.send(sequence)
        story.send(7, 2)
        story.send(0, 3, pid=8)
        story.send(0, 2, pid=8)
        story.send(1, 2, pid=8)
        story.send(2**31 - 2, 4, pid=9)
        story.send(2**31 - 1, 3, pid=9)
        story.send(100, pid=10, epoch=3)
        story.send(100, pid=10, epoch=2)
        story.send(1, pid=10, epoch=4)
        story.look("verdicts")

    verdicts((2, 3, 4, 6))
    yield
    # A snapshot has only the last batch: Kafka now refuses the others, pykbroker finds them in the log.
    verdicts(())
    story.send(8)
    story.send(3, pid=8)
    story.send(2, pid=9)
    story.send(0, pid=10, epoch=4)
    yield
    story.look("after a crash")
    for sequence in (8, 10, 9):
        story.send(sequence)
    story.send(2, pid=9)
    story.send(3, pid=9)
    story.send(0, pid=10, epoch=4)
    yield
    story.look("at last")


def deleted_by_request(story: Story) -> Iterator[None]:
    """DeleteRecords through batches, transactions and epochs, and the state after a restart."""
    story.make(internal_segment_bytes="400")
    story.send(0, 5)
    # Two batches, because in the middle of one, Kafka's last stable offset would be before its log start.
    story.send(0, 1, pid=8, txn=True)
    story.send(1, 1, pid=8, txn=True)
    story.send(0, 1, pid=9, txn=True)
    story.mark(commit=False, pid=9)
    story.send(5, 3)
    story.look("before")
    for offset in (3, 0, 3, -2, 100, 2**62):
        story.delete(offset)
    story.look("in the middle of a batch")
    story.send(5, 3)
    story.until_settled()
    yield
    story.look("in the middle of a batch, restarted")
    # Into the open transaction, after its beginning.
    story.delete(6)
    story.look("in an open transaction")
    story.send(2, 1, pid=8, txn=True)
    story.mark(commit=False, pid=8)
    story.look("which was aborted")
    story.delete(-1)
    story.look("everything")
    story.send(8, 1)
    story.send(20, 1, pid=9)
    story.send(3, 1, pid=8)
    story.until_settled()
    yield
    story.look("everything, restarted")
    story.send(9, 1)
    story.send(11, 1)
    story.send(4, 1, pid=8)
    story.delete(-1)
    story.until_settled()
    yield
    story.look("nothing left, restarted")
    story.send(1000, 1)
    story.send(1002, 1)
    story.send(77, 1, pid=8)


def deleted_by_retention(story: Story) -> Iterator[None]:
    """Retention deletes everything, also the active segment; its producers stay until a restart."""
    story.make()
    story.send(0, 5)
    story.send(0, 2, pid=8)
    story.keep_for(1)
    story.until_start_is(lambda start, end: start == end == 7)
    story.keep_for(-1)
    story.look("everything expired")
    story.send(0, 5)
    story.send(4, 1)
    story.send(5, 1)
    story.send(0, 2, pid=8)
    yield
    story.look("everything expired, restarted")
    story.send(5, 1)
    story.send(0, 2, pid=8)
    story.send(2, 1, pid=8)
    story.keep_for(1)
    story.until_start_is(lambda start, end: start == end)
    story.keep_for(-1)
    story.until_settled()
    yield
    story.look("nothing left, restarted")
    story.send(50, 1)
    story.send(60, 1, pid=8, epoch=2)
    story.send(60, 1, pid=8, epoch=1)


def deleted_by_size(story: Story) -> Iterator[None]:
    """retention.bytes, exactly at a segment's size and around it; a future timestamp and none."""
    story.make(internal_segment_bytes="300")
    for sequence in range(9):
        story.send(sequence, size=60, at_ms=NOW_MS + 1_800_000 if sequence == 1 else -1 if sequence == 3 else NOW_MS)
    size = sum(path.stat().st_size for path in story.folder().glob("*.log"))
    one = next(iter(sorted(story.folder().glob("*.log")))).stat().st_size
    for kept, start_moves in ((size - one + 1, False), (size - one, True), (1, True)):
        before = story.start()
        story.alter(2, story.topic, {"retention.bytes": str(kept)})
        if start_moves:
            story.until_start_is(lambda start, end, before=before: start > before)  # type: ignore[misc]
        story.look(f"retention.bytes {kept}")
    story.alter(2, story.topic, {"retention.bytes": "0"})
    story.until_start_is(lambda start, end: start == end)
    story.look("retention.bytes 0")
    story.alter(2, story.topic, KEEP)
    story.send(9)
    yield
    story.look("restarted")


def producers_that_expire(story: Story) -> Iterator[None]:
    """producer.id.expiration.ms while running; a producer with an open transaction is never forgotten."""
    story.make()
    story.send(0, 2)
    story.send(0, 2, pid=8, txn=True)
    story.send(0, 1, pid=9, txn=True)
    story.mark(commit=True, pid=9)
    story.look("all there")
    story.alter(4, "", {"producer.id.expiration.ms": "1"})
    story.until_producers({8})
    story.look("one left")
    story.send(5)
    story.until_producers({8})
    story.mark(commit=True, pid=8)
    story.until_producers(set())
    story.alter(4, "", {"producer.id.expiration.ms": "86400000"})
    story.look("none left")
    story.send(9)
    story.send(3, pid=8)
    yield
    story.look("restarted")


SHARED = (share_lives.share_group_over_restarts,)
STORIES = (producers_over_restarts, deleted_by_request, deleted_by_retention, deleted_by_size, *SHARED)
#: in which the two differ on purpose
DIFFERENT = share_lives.latest_group_over_a_kill
#: changes its broker, so it runs after the others
LAST = producers_that_expire


def tell(against: str) -> dict[str, list[Step]]:
    """Return the transcript of every story."""
    steps: dict[str, list[Step]] = {}
    ended = object()
    node = make_node(against, CONFIG, port=steady_port()).start()
    try:
        for group in ((*STORIES, DIFFERENT), (LAST,)):
            told = {
                script.__name__: Story(node, script.__name__, takes_notes_away=against == "apache-kafka")
                for script in group
            }
            running = [script(told[script.__name__]) for script in group]
            for stop in ("clean", "crash", "clean", "none"):
                running = [story for story in running if next(story, ended) is not ended]
                for story in told.values():
                    story.leave()
                if not running:
                    break
                assert stop != "none", "a story of at most three restarts"
                if stop == "clean":
                    node.stop()
                    for story in told.values():
                        story.files("after a clean stop")
                else:
                    node.kill()
                node.start()
                for story in told.values():
                    story.come_back()
            steps |= {name: story.steps for name, story in told.items()}
    finally:
        node.close()
    return steps


@pytest.fixture(scope="module")
def lives() -> tuple[dict[str, list[Step]], dict[str, list[Step]]]:
    return tell("apache-kafka"), tell("pykbroker")


@pytest.mark.slow
@pytest.mark.parametrize("name", [script.__name__ for script in (*STORIES, LAST)])
def test_the_same_life(name: str, lives: tuple[dict[str, list[Step]], dict[str, list[Step]]]) -> None:
    theirs, ours = lives
    found = compare(theirs[name], ours[name])
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.slow
def test_a_latest_group_gets_again_what_it_had_before_a_kill(
    lives: tuple[dict[str, list[Step]], dict[str, list[Step]]],
) -> None:
    """Apache Kafka loses the records for the group (docs/queues.md)."""

    def acquired(steps: list[Step], label: str) -> list[dict[str, int]]:
        (step,) = (step for step in steps if step.label == label)
        partitions = [each for topic in step.answered["responses"] for each in topic["partitions"]]
        return [found for each in partitions for found in each["acquired_records"]]

    theirs, ours = (side[DIFFERENT.__name__] for side in lives)
    first = {"first_offset": 0, "last_offset": 2, "delivery_count": 1}
    assert acquired(theirs, "acquires") == acquired(ours, "acquires") == [first]
    assert acquired(theirs, "after a kill") == []
    assert acquired(ours, "after a kill") == [first]
