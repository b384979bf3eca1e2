"""The writer with a clock in memory, and brokers, a controller and a source log that the test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from pykbroker.config.live import LiveConfig
from pykbroker.config.load import development_profile, load
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.dead_letters.copy_reads import MOST_HELD_BYTES_OF_A_BROKER
from pykbroker.dead_letters.down_places import DOWN_SECONDS
from pykbroker.dead_letters.letter_metrics import LetterMetrics
from pykbroker.dead_letters.letter_requests import TIMEOUT_MS
from pykbroker.dead_letters.letter_writer import LetterWriter
from pykbroker.dead_letters.sent_requests import ANSWER_SECONDS
from pykbroker.dead_letters.source_reader import SourceReader
from pykbroker.dead_letters.source_records import CopiedRecords, NotReadable, SourceOutcome
from pykbroker.dead_letters.writer_machine import CONFIRM_SECONDS, SOURCE_SECONDS, WriterMachine
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
from pykbroker.share_leaders.dead_letter_flow import DeadLetterFlow
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker.share_partitions.delivery_states import DeadRange
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
from pykbroker_worlds.simulated.world import SimWorld
from testkit.planting import Edit, plant

GROUP = "g"
TOPIC = "dlq.g"
CREATES = {"errors.deadletterqueue.auto.create.topics.enable": "true"}


def topic(name: str, topic_id: bytes, *leaders: int, epoch: int = 0) -> TopicImage:
    partitions = {
        index: PartitionImage((1,), (ZERO_UUID,), (1,), (), (), (), (), leader, 0, epoch, 0)
        for index, leader in enumerate(leaders)
    }
    return TopicImage(name, topic_id, partitions)


class Bench:
    """A writer. A Produce is answered when the test calls `answer`."""

    def __init__(self, *, copies: bool = False, exists: bool = True, level: int = 2) -> None:
        self.world = SimWorld(1)
        self.runtime = self.world.runtime("writer", MemoryDisk())
        self.metrics = Metrics()
        self.view = MetadataView()
        self.group_config = {"errors.deadletterqueue.topic.name": TOPIC}
        if copies:
            self.group_config["errors.deadletterqueue.copy.record.enable"] = "true"
        self.level = level
        self.most_bytes = 1_048_588
        self.set_image(*[1] if exists else [])
        self.sent: list[tuple[int, ProduceRequest, asyncio.Future[Any]]] = []
        self.creations: list[tuple[str, asyncio.Future[ErrorCode]]] = []
        self.reads: list[tuple[Any, ...]] = []
        self.is_readable = True
        self.value_size = 5
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

    def set_image(self, *leaders: int, epoch: int = 0) -> tuple[MetadataImage, MetadataImage]:
        """Let the dead letter topic have a partition for each of these leaders. Without them it does not exist."""
        topics = [topic("source", b"s" * 16, 1)]
        configs: dict[tuple[int, str], Any] = {(ConfigResource.GROUP, GROUP): self.group_config}
        if leaders:
            topics.append(topic(TOPIC, b"d" * 16, *leaders, epoch=epoch))
            configs[ConfigResource.TOPIC, TOPIC] = {
                "errors.deadletterqueue.group.enable": "true",
                "max.message.bytes": str(self.most_bytes),
            }
        old = self.view.image
        self.view.image = MetadataImage(
            features=FeaturesImage(33, {"share.version": self.level}),
            topics=TopicsImage({each.name: each for each in topics}, {each.id: each for each in topics}),
            configs=ConfigsImage(configs),
        )
        return old, self.view.image

    def publish(self, *leaders: int, epoch: int = 0) -> None:
        old, new = self.set_image(*leaders, epoch=epoch)
        self.writer.publish(MetadataDelta(old), old, new)

    def send(self, node_id: int, request: ProduceRequest, timeout_ms: int) -> asyncio.Future[Any]:
        self.sent.append((node_id, request, self.world.loop.create_future()))
        return self.sent[-1][2]

    def create(self, name: str) -> asyncio.Future[ErrorCode]:
        self.creations.append((name, self.world.loop.create_future()))
        return self.creations[-1][1]

    def read(self, *asked: Any) -> asyncio.Future[SourceOutcome]:
        self.reads.append(asked)
        _, _, first, last, _ = asked
        copied = CopiedRecords({first: (b"key", b"v" * self.value_size)}, last)
        future: asyncio.Future[SourceOutcome] = self.world.loop.create_future()
        future.set_result(copied if self.is_readable else NotReadable.NOT_YET)
        return future

    def write(self, first: int, last: int, partition: int = 0) -> Promise:
        letters = DeadLetters(GROUP, b"s" * 16, partition, first, last, 3, DeadLetterCause.DELIVERY_LIMIT)
        return self.writer.write(letters)

    def sleep(self, seconds: float = 0.01) -> None:
        self.world.loop.run_until_complete(asyncio.sleep(seconds))

    def answer(self, error: ErrorCode = ErrorCode.NONE, index: int = 0) -> None:
        """Answer the first request: this error for this partition, and NONE for all others."""
        _, request, answer = self.sent.pop(0)
        answers = [
            PartitionProduceResponse(index=at.index, error_code=error if at.index == index else ErrorCode.NONE)
            for at in request.topic_data[0].partition_data
        ]
        response = ProduceResponse(responses=[TopicProduceResponse(topic_id=b"d" * 16, partition_responses=answers)])
        answer.set_result(response)
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
    assert bench.letters() == [("4", "vvvvv")]


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


def failing(bench: Bench, error: ErrorCode) -> None:
    """Give a range up after all its tries."""
    promise = bench.write(900, 900)
    bench.sleep()
    while not promise.done():
        bench.answer(error)
        bench.sleep(20)


def test_after_a_partition_has_given_up_the_other_letters_get_one_try() -> None:
    bench = Bench()
    failing(bench, ErrorCode.NOT_ENOUGH_REPLICAS)
    promise = bench.write(1, 4)
    bench.sleep()
    bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert promise.done()
    # A try that succeeds ends it.
    bench.write(5, 5)
    bench.sleep()
    bench.answer()
    promise = bench.write(6, 6)
    bench.sleep()
    bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not promise.done()


@pytest.mark.parametrize("what", ["a new leader", "time"])
def test_letters_get_all_their_tries_again_after(what: str) -> None:
    bench = Bench()
    failing(bench, ErrorCode.NOT_ENOUGH_REPLICAS)
    if what == "time":
        bench.sleep(DOWN_SECONDS)
    else:
        bench.publish(1, epoch=1)
    promise = bench.write(1, 4)
    bench.sleep()
    bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not promise.done()


class Archive:
    """A share partition whose records are archived as soon as their letters have ended."""

    def __init__(self, bench: Bench, ranges: int, partition: int = 0) -> None:
        self.expected = [(2 * at, 2 * at) for at in range(ranges)]
        self.archived: list[tuple[int, int]] = []
        key = SharePartitionKey(GROUP, b"s" * 16, partition)
        self.flow = DeadLetterFlow(bench.world.loop, key, bench.writer, self.archive, lambda: None)
        self.flow.add([DeadRange(first, last, 1, True) for first, last in self.expected])

    def archive(self, ranges: Sequence[tuple[int, int]]) -> Promise:
        self.archived.extend(ranges)
        promise = Promise()
        promise.set_result(None)
        return promise


@pytest.mark.parametrize("exists", [True, False])
def test_a_thousand_ranges_do_not_hold_their_share_partition_for_long(
    exists: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The dead letter partition has no leader, or the topic cannot be created."""
    bench = Bench(exists=exists)
    if exists:
        bench.publish(-1, epoch=1)
    archive = Archive(bench, 1_000)
    began = bench.world.loop.time()
    while not archive.flow.is_idle and bench.world.loop.time() < began + 3_600:
        bench.sleep(0.1)
        for _, creation in bench.creations:
            creation.set_result(ErrorCode.LEADER_NOT_AVAILABLE)
        bench.creations.clear()
    assert sorted(archive.archived) == archive.expected
    assert bench.world.loop.time() - began < 60
    assert not bench.sent
    assert caplog.text.count("get no dead letters") == 1
    reason = "Partition dlq.g-0 has no leader." if exists else "could not be created: LEADER_NOT_AVAILABLE."
    assert f"{reason} It was tried 5 times." in caplog.text


def hanging(bench: Bench, archives: Sequence[Archive]) -> tuple[int, float]:
    """Let each request end with its timeout until nothing is left to do. Return the number of requests, and seconds."""
    loop = bench.world.loop
    began, requests = loop.time(), 0
    while not all(archive.flow.is_idle for archive in archives):
        bench.sleep()
        for _, _, answer in bench.sent:
            requests += 1
            loop.call_later(TIMEOUT_MS / 1_000, answer.set_exception, TimeoutError("no answer within 30 s"))
        bench.sent.clear()
        assert loop.time() - began < 3_600
    return requests, loop.time() - began


def test_a_leader_that_hangs_costs_a_thousand_ranges_the_tries_of_one(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    archive = Archive(bench, 1_000)
    requests, seconds = hanging(bench, [archive])
    assert sorted(archive.archived) == archive.expected
    # Five tries of 30 s, and rests of 2, 4, 8 and 16 s, which may be 20 % longer.
    assert requests == 5
    assert seconds < 190
    assert "It was tried 5 times." in caplog.text
    # The leader answers again.
    bench.sleep(TIMEOUT_MS / 2_000)
    promise = bench.write(5_000, 5_000)
    bench.sleep()
    bench.answer()
    assert promise.done()
    assert bench.metrics.snapshot()["kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueRecordCount,group=g"] == 1


@pytest.mark.parametrize("copies", [False, True])
def test_share_partitions_wait_together_for_a_leader_that_hangs(copies: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The letters of some come while those of others are under way, so two requests take turns."""
    bench = Bench(copies=copies)
    bench.set_image(*[1] * 20)
    archives = []
    for partition in range(20):
        archives.append(Archive(bench, 200, partition))
        bench.sleep(1)
    requests, seconds = hanging(bench, archives)
    assert all(sorted(archive.archived) == archive.expected for archive in archives)
    assert requests <= 12
    assert seconds < 400


def test_a_refusal_decides_no_other_letters_when_its_request_waited_for_another_partition() -> None:
    bench = Bench()
    bench.set_image(1, 1)
    failing(bench, ErrorCode.NOT_ENOUGH_REPLICAS)
    refused, slow = bench.write(1, 1), bench.write(2, 2, 1)
    bench.sleep()
    [(_, request, _)] = bench.sent
    assert [partition.index for partition in request.topic_data[0].partition_data] == [0, 1]
    waiting = bench.write(3, 3)
    # The leader waits for the followers of partition 1.
    bench.sleep(19)
    bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refused.done()
    assert slow.done()
    # One letter has waited for the answer, and another comes soon after it. Each gets its try.
    assert bench.letters() == [("3", None)]
    bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert waiting.done()
    bench.sleep(5)
    late = bench.write(4, 4)
    bench.sleep()
    assert bench.letters() == [("4", None)]
    bench.answer()
    assert late.done()


def test_after_a_leader_that_hangs_the_next_one_gets_all_letters() -> None:
    bench = Bench()
    archive = Archive(bench, 100)
    bench.sleep()
    for _ in range(4):
        bench.sleep(30)
        bench.sent.pop()[2].set_exception(TimeoutError("no answer within 30 s"))
    bench.sleep()
    assert not bench.sent
    bench.publish(2, epoch=1)
    bench.sleep()
    letters: list[str] = []
    while bench.sent:
        assert [node_id for node_id, *_ in bench.sent] == [2]
        letters += [offset for offset, _ in bench.letters()]
        bench.answer()
    assert letters == [str(first) for first, _ in archive.expected]


def test_letters_do_not_wait_for_a_leader_that_hangs_and_has_lost_its_place() -> None:
    """Its late answer changes nothing. Both leaders may have written the letters then."""
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    bench.publish(2, epoch=1)
    bench.sleep(ANSWER_SECONDS + 0.1)
    assert [node_id for node_id, *_ in bench.sent] == [1, 2]
    bench.answer()
    assert not promise.done()
    assert bench.letters() == [("1", None), ("2", None), ("3", None), ("4", None)]
    bench.answer()
    assert promise.done()
    name = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue"
    assert bench.metrics.snapshot() == {
        f"{name}RecordCount,group=g": 4,
        f"{name}TotalProduceRequestsPerSec,group=g": 2,
    }


def test_a_leader_that_has_lost_its_place_and_answers_soon_decides_its_letters() -> None:
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    bench.publish(2, epoch=1)
    bench.sleep(ANSWER_SECONDS / 2)
    bench.answer()
    assert promise.done()
    bench.sleep(2 * ANSWER_SECONDS)
    assert not bench.sent


@pytest.mark.parametrize("leader", [-1, 1])
def test_letters_stay_in_their_request_while_no_other_broker_leads(leader: int) -> None:
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    bench.publish(2, epoch=1)
    bench.sleep(ANSWER_SECONDS / 2)
    bench.publish(leader, epoch=2)
    bench.sleep(20)
    bench.answer()
    assert promise.done()
    assert not bench.sent


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_refusal_by_the_last_leader_lets_the_next_one_have_the_letters_at_once(error: ErrorCode) -> None:
    bench = Bench()
    bench.write(1, 4)
    bench.sleep()
    bench.publish(2, epoch=1)
    bench.answer(error)
    assert [node_id for node_id, *_ in bench.sent] == [2]


def test_letters_that_a_leader_has_appended_are_not_sent_again() -> None:
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    bench.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    bench.sleep(CONFIRM_SECONDS)
    assert promise.done()
    assert not bench.sent
    name = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueue"
    assert bench.metrics.snapshot() == {
        f"{name}RecordCount,group=g": 4,
        f"{name}TotalProduceRequestsPerSec,group=g": 1,
    }


def test_letters_that_a_leader_has_appended_are_sent_again_to_a_new_leader() -> None:
    bench = Bench()
    promise = bench.write(1, 4)
    bench.sleep()
    bench.answer(ErrorCode.REQUEST_TIMED_OUT)
    assert not promise.done()
    bench.publish(2, epoch=1)
    bench.sleep()
    assert [node_id for node_id, *_ in bench.sent] == [2]
    assert [offset for offset, _ in bench.letters()] == ["1", "2", "3", "4"]
    bench.answer()
    assert promise.done()


@pytest.mark.parametrize("error", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_only_the_letter_that_is_too_large_goes_without_its_copy(error: ErrorCode) -> None:
    """The leader takes smaller batches than this broker knows."""
    bench = Bench(copies=True)
    promises = [bench.write(1, 4)]
    bench.sleep()
    bench.value_size = 2_000
    promises += [bench.write(7, 7), bench.write(8, 9)]
    bench.answer()
    found: list[tuple[str, bool]] = []
    while bench.sent:
        [partition] = bench.sent[0][1].topic_data[0].partition_data
        if len(partition.records or b"") > 1_500:
            bench.answer(error)
        else:
            found += [(offset, value is not None) for offset, value in bench.letters()]
            bench.answer()
    assert found == [("7", False), ("8", False), ("9", False)]
    assert all(promise.done() for promise in promises)
    assert not [name for name in bench.metrics.snapshot() if "Failed" in name]


def test_a_letter_that_is_too_large_without_a_copy_is_given_up_alone() -> None:
    bench = Bench()
    promises = [bench.write(1, 1), bench.write(2, 2)]
    bench.sleep()
    bench.answer(ErrorCode.MESSAGE_TOO_LARGE)
    assert bench.letters() == [("1", None)]
    bench.answer(ErrorCode.MESSAGE_TOO_LARGE)
    assert [promise.done() for promise in promises] == [True, False]
    bench.answer()
    assert promises[1].done()
    name = "kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueFailedProduceRequestsPerSec,group=g"
    assert bench.metrics.snapshot()[name] == 1


def test_a_very_large_letter_has_a_request_of_its_own() -> None:
    """A leader closes the connection if a request is larger than its socket.request.max.bytes."""
    bench = Bench(copies=True)
    bench.group_config["errors.deadletterqueue.copy.record.enable"] = "true"
    bench.most_bytes = 8 << 20
    bench.set_image(1, 1)
    bench.write(1, 1)
    bench.sleep()
    bench.write(2, 2)
    bench.sleep()
    bench.value_size = 2 << 20
    bench.write(3, 3, partition=1)
    bench.sleep()
    bench.answer()
    assert bench.letters() == [("2", "v" * 5)]
    bench.answer()
    assert [offset for offset, _ in bench.letters()] == ["3"]


def test_a_record_that_cannot_be_read_yet_is_waited_for() -> None:
    bench = Bench(copies=True)
    bench.is_readable = False
    bench.write(4, 4)
    bench.sleep(5)
    assert len(bench.reads) > 5
    assert not bench.sent
    bench.is_readable = True
    bench.sleep(0.6)
    assert bench.letters() == [("4", "vvvvv")]


def test_the_wait_for_a_record_is_bounded_and_not_repeated_for_each() -> None:
    bench = Bench(copies=True)
    bench.is_readable = False
    bench.write(4, 4)
    bench.sleep(SOURCE_SECONDS + 0.2)
    assert bench.letters() == [("4", None)]
    bench.answer()
    bench.write(5, 5)
    bench.sleep()
    assert bench.letters() == [("5", None)]


def test_a_broker_that_hangs_delays_no_copies_for_others() -> None:
    bench = Bench(copies=True)
    bench.most_bytes = 8 << 20
    bench.value_size = 1 << 20
    bench.set_image(1, 2)
    for offset in range(20):
        bench.write(offset, offset)
    bench.sleep()
    assert {node_id for node_id, *_ in bench.sent} == {1}
    assert len(bench.reads) * bench.value_size == MOST_HELD_BYTES_OF_A_BROKER
    hanging, bench.sent = bench.sent, []
    promises = [bench.write(offset, offset, partition=1) for offset in range(10)]
    bench.sleep()
    while bench.sent:
        assert {node_id for node_id, *_ in bench.sent} == {2}
        bench.answer(index=1)
    assert all(promise.done() for promise in promises)
    assert len(hanging) == 1


#: Bugs that the random events of test_letter_model.py find too seldom, each with the case that finds it.
SELDOM: Final[Mapping[str, tuple[Callable[[], None], list[Edit]]]] = {
    "the end of the wait for a leader that hangs is not looked for": (
        test_letters_do_not_wait_for_a_leader_that_hangs_and_has_lost_its_place,
        [(WriterMachine.next_wake, "self._sent.next_due()", "None")],
    ),
    "a new leader waits for letters that the last one has appended": (
        partial(
            test_a_refusal_by_the_last_leader_lets_the_next_one_have_the_letters_at_once,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
        [(WriterMachine._confirm, "if failed.is_moved:", "if False:")],
    ),
}


@pytest.mark.parametrize("bug", SELDOM)
def test_a_case_finds_a_bug_that_events_find_too_seldom(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, planted = SELDOM[bug]
    plant(monkeypatch, planted)
    with pytest.raises(AssertionError):
        case()
