"""The writer with a clock in memory, and brokers, a controller and a source log that the test scripts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.config.live import LiveConfig
from pykbroker.config.load import development_profile, load
from pykbroker.dead_letters.letter_metrics import LetterMetrics
from pykbroker.dead_letters.letter_writer import LetterWriter
from pykbroker.dead_letters.source_reader import SourceReader
from pykbroker.dead_letters.source_records import CopiedRecords
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import (
    ConfigResource,
    ConfigsImage,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from pykbroker.metadata.view import MetadataView
from pykbroker.metrics.registry import Metrics
from pykbroker.net.promise import Promise
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykbroker_wire.primitives import ZERO_UUID
from pykbroker_wire.records.batch import BatchHeader
from pykbroker_wire.records.record import iter_records
from testkit.simulated.world import World

GROUP = "g"
TOPIC = "dlq.g"
CREATES = {"errors.deadletterqueue.auto.create.topics.enable": "true"}


def topic(name: str, topic_id: bytes, leader: int, epoch: int = 0) -> TopicImage:
    partition = PartitionImage((1,), (ZERO_UUID,), (1,), (), (), (), (), leader, 0, epoch, 0)
    return TopicImage(name, topic_id, {0: partition})


class Bench:
    """A writer. A Produce is answered when the test calls `answer`."""

    def __init__(self, *, copies: bool = False, exists: bool = True, level: int = 2) -> None:
        self.world = World(1)
        self.runtime = self.world.runtime("writer", MemoryDisk())
        self.metrics = Metrics()
        self.view = MetadataView()
        self.group_config = {"errors.deadletterqueue.topic.name": TOPIC}
        if copies:
            self.group_config["errors.deadletterqueue.copy.record.enable"] = "true"
        self.level = level
        self.set_image(1 if exists else None)
        self.sent: list[tuple[int, ProduceRequest, asyncio.Future[Any]]] = []
        self.creations: list[tuple[str, asyncio.Future[ErrorCode]]] = []
        self.reads: list[tuple[Any, ...]] = []
        live = SimpleNamespace(current=load(development_profile("/data") | CREATES))
        self.writer = LetterWriter(
            self.runtime,
            cast("LiveConfig", live),
            self.view,
            cast("SourceReader", SimpleNamespace(read=self.read)),
            self.send,
            self.create,
            LetterMetrics(self.metrics),
        )

    def set_image(self, leader: int | None, epoch: int = 0) -> tuple[MetadataImage, MetadataImage]:
        topics = [topic("source", b"s" * 16, 1)]
        configs: dict[tuple[int, str], Any] = {(ConfigResource.GROUP, GROUP): self.group_config}
        if leader is not None:
            topics.append(topic(TOPIC, b"d" * 16, leader, epoch))
            configs[ConfigResource.TOPIC, TOPIC] = {"errors.deadletterqueue.group.enable": "true"}
        old = self.view.image
        self.view.image = MetadataImage(
            features=FeaturesImage(33, {"share.version": self.level}),
            topics=TopicsImage({each.name: each for each in topics}, {each.id: each for each in topics}),
            configs=ConfigsImage(configs),
        )
        return old, self.view.image

    def publish(self, leader: int | None, epoch: int = 0) -> None:
        old, new = self.set_image(leader, epoch)
        self.writer.publish(MetadataDelta(old), old, new)

    def send(self, node_id: int, request: ProduceRequest, timeout_ms: int) -> asyncio.Future[Any]:
        self.sent.append((node_id, request, self.world.loop.create_future()))
        return self.sent[-1][2]

    def create(self, name: str) -> asyncio.Future[ErrorCode]:
        self.creations.append((name, self.world.loop.create_future()))
        return self.creations[-1][1]

    def read(self, *asked: Any) -> asyncio.Future[CopiedRecords | None]:
        self.reads.append(asked)
        _, _, first, last, _ = asked
        found = CopiedRecords({first: (b"key", b"value")}, last)
        future: asyncio.Future[CopiedRecords | None] = self.world.loop.create_future()
        future.set_result(found)
        return future

    def write(self, first: int, last: int) -> Promise:
        letters = DeadLetters(GROUP, b"s" * 16, 0, first, last, 3, DeadLetterCause.DELIVERY_LIMIT)
        return self.writer.write(letters)

    def sleep(self, seconds: float = 0.01) -> None:
        self.world.loop.run_until_complete(asyncio.sleep(seconds))

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        answers = [PartitionProduceResponse(index=0, error_code=error)]
        response = ProduceResponse(responses=[TopicProduceResponse(topic_id=b"d" * 16, partition_responses=answers)])
        self.sent.pop(0)[2].set_result(response)
        self.sleep()

    def letters(self) -> list[tuple[str, str | None]]:
        """Return the offset and the value of each letter of the Produce that was sent first."""
        [written] = self.sent[0][1].topic_data
        [partition] = written.partition_data
        batch = bytes(partition.records or b"")
        return [
            (str(letter.headers[2][1] or b"", "utf-8"), None if letter.value is None else str(letter.value, "utf-8"))
            for letter in iter_records(batch, 0, BatchHeader.parse(batch))
        ]


def test_letters_of_one_turn_share_a_produce_to_all_replicas() -> None:
    bench = Bench()
    promises = [bench.write(1, 2), bench.write(7, 7)]
    bench.sleep()
    [(node_id, request, _)] = bench.sent
    assert (node_id, request.acks) == (1, -1)
    assert bench.letters() == [("1", None), ("2", None), ("7", None)]
    bench.answer()
    assert [promise.result() for promise in promises] == [None, None]
    assert all(promise.done() for promise in promises)
    names = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue"
    assert bench.metrics.snapshot() == {
        f"{names}RecordCount,group=g": 3,
        f"{names}TotalProduceRequestsPerSec,group=g": 2,
    }


def test_a_copy_is_read_from_the_source() -> None:
    bench = Bench(copies=True)
    bench.write(4, 4)
    bench.sleep()
    assert bench.reads == [(b"s" * 16, 0, 4, 4, 1048588)]
    assert bench.letters() == [("4", "value")]


def test_a_missing_topic_is_created_once() -> None:
    bench = Bench(exists=False)
    bench.write(1, 1)
    bench.write(2, 2)
    bench.sleep()
    [(name, created)] = bench.creations
    assert name == TOPIC
    bench.set_image(1)
    created.set_result(ErrorCode.NONE)
    bench.sleep()
    assert bench.letters() == [("1", None), ("2", None)]


def test_a_new_leader_gets_the_letters_at_once() -> None:
    bench = Bench()
    promise = bench.write(1, 1)
    bench.sleep()
    bench.sent.pop()[2].set_exception(ConnectionError("gone"))
    bench.sleep()
    assert not bench.sent
    bench.publish(2, epoch=1)
    bench.sleep()
    assert [node_id for node_id, *_ in bench.sent] == [2]
    bench.answer()
    assert promise.done()


def test_letters_are_given_up_after_five_tries_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    for tries in range(5):
        assert not promise.done()
        assert len(bench.sent) == 1, tries
        bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        bench.sleep(20)
    assert promise.done()
    assert promise.result() is None
    assert not bench.sent
    assert (
        "Group g: the records from offset 1 to 4 of partition 0 get no dead letters: Broker 1 answers "
        "NOT_ENOUGH_REPLICAS for partition dlq.g-0. It was tried 5 times."
    ) in caplog.text
    name = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueFailedProduceRequestsPerSec,group=g"
    assert bench.metrics.snapshot()[name] == 1


def test_an_error_that_does_not_pass_gives_up_at_once() -> None:
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    bench.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert promise.done()


@pytest.mark.parametrize(("level", "is_wanted"), [(0, False), (1, False), (2, True)])
def test_letters_are_wanted_from_share_version_2_on(level: int, is_wanted: bool) -> None:
    bench = Bench(level=level)
    assert bench.writer.is_wanted(GROUP) is is_wanted
    assert not bench.writer.is_wanted("another")


def test_after_the_close_no_promise_has_a_result() -> None:
    bench = Bench()
    promise = bench.write(1, 1)
    bench.sleep()
    bench.writer.close()
    bench.answer()
    assert not promise.done()
    assert not bench.write(2, 2).done()
    bench.sleep(60)
    assert not bench.sent


def test_a_range_of_100_000_records_is_many_turns() -> None:
    bench = Bench()
    promise = bench.write(0, 99_999)
    requests = 0
    while not promise.done():
        bench.sleep()
        [(_, request, _)] = bench.sent
        [partition] = request.topic_data[0].partition_data
        assert 0 < BatchHeader.parse(bytes(partition.records or b"")).record_count <= 4_000
        requests += 1
        bench.answer()
    assert requests == 25
