"""The checks before a job starts, against a real node and without a JVM. The checkpoints are written as Spark writes
them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from pipeline import checkpoint, preflight
from pipeline.broker import Broker, Partition, Range
from pipeline.config import Config, LakeConfig, Source
from pipeline.errors import DoesNotFitError, PipelineError
from pipeline.preflight import Loss
from pipeline.secured import kafka_python
from testkit.clients import NOW_MS, Record


class LocalFiles:
    """A checkpoint on the disk of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        path = self._root / folder
        return [each.name for each in path.iterdir()] if path.exists() else []

    def read(self, path: str) -> str:
        return (self._root / path).read_text()

    def write(self, path: str, text: str) -> None:
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        (self._root / path).write_text(text)


class Job:
    """The job "windows" over the topics of this test."""

    def __init__(self, bootstrap: str, folder: Path, broker: Broker, topics: Topics) -> None:
        self.config = Config(
            checkpoints=str(folder), lake=LakeConfig(path=str(folder)), kafka={"bootstrap.servers": bootstrap}
        )
        self.files = LocalFiles(folder / "windows")
        self.broker = broker
        self.topics = topics
        self.bootstrap = bootstrap

    def write(self, topic: str, count: int, partition: int = 0) -> None:
        records = [Record(b"k", b"%d" % number, (), NOW_MS, partition) for number in range(count)]
        ConfluentClient().produce(self.bootstrap, topic, records)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete records now, as retention does."""
        wanted = TopicPartition(topic, partition, offset)
        for future in self.topics.admin.delete_records([wanted]).values():
            future.result(30)

    def recreate(self, topic: str, partitions: int = 1) -> None:
        self.topics.delete(topic)
        self.topics.create(name=topic, partitions=partitions)

    def batch(self, number: int, *sources: Mapping[str, Mapping[str, int]], committed: bool = True) -> None:
        """Write a batch that Spark has planned, and maybe committed, and that ends at these offsets."""
        lines = ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}', *map(json.dumps, sources)]
        self.files.write(f"offsets/{number}", "\n".join(lines))
        if committed:
            self.files.write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')

    def check(self, *topics: str, fail_on_data_loss: bool = True) -> list[Loss]:
        config = replace(self.config, source=Source(fail_on_data_loss=fail_on_data_loss))
        return preflight.check(config, "windows", topics, self.files, self.broker)


@pytest.fixture
def job(broker: Node, topics: Topics, tmp_path: Path) -> Iterator[Job]:
    asked = Broker({"bootstrap.servers": broker.bootstrap})
    yield Job(broker.bootstrap, tmp_path, asked, topics)
    asked.close()


def test_the_first_start_writes_down_what_the_checkpoint_is_of(job: Job) -> None:
    topic = job.topics.create()
    assert job.check(topic) == []
    known = checkpoint.identity(job.files)
    assert known is not None
    assert known.job == "windows"
    assert list(known.topics) == [topic]
    assert known.topics[topic]
    assert job.check(topic) == []


def test_a_topic_that_is_not_there_is_named_and_not_made(job: Job) -> None:
    there, missing = job.topics.create(), job.topics.name()
    with pytest.raises(PipelineError, match=f"windows: topic {missing} does not exist\n"):
        job.check(there, missing)
    assert missing not in job.broker.topics([missing])


def test_a_topic_that_was_deleted(job: Job) -> None:
    topic = job.topics.create()
    job.check(topic)
    job.topics.delete(topic)
    with pytest.raises(PipelineError, match="does not exist any more; it was there at an earlier start"):
        job.check(topic)


def test_records_that_retention_has_deleted_are_counted_for_each_partition(job: Job) -> None:
    topic = job.topics.create(partitions=3)
    for partition in range(3):
        job.write(topic, 20, partition)
    job.check(topic)
    job.batch(0, {topic: {"0": 5, "1": 5, "2": 5}})
    job.delete_before(topic, 0, 12)
    job.delete_before(topic, 1, 5)  # what has been read may go
    job.delete_before(topic, 2, 6)
    with pytest.raises(DoesNotFitError) as refused:
        job.check(topic)
    assert f"\n  {topic}-0: 7 records (offsets 5 to 11): deleted" in refused.value.message
    assert f"\n  {topic}-2: 1 record (offset 5): deleted" in refused.value.message
    assert f"{topic}-1" not in refused.value.message
    assert "fail_on_data_loss = false" in refused.value.advice

    lost = job.check(topic, fail_on_data_loss=False)
    assert [(loss.partition, loss.records) for loss in lost] == [(Partition(topic, 0), 7), (Partition(topic, 2), 1)]


def test_a_batch_that_is_to_be_repeated_needs_its_records_again(job: Job) -> None:
    topic = job.topics.create()
    job.write(topic, 20)
    job.check(topic)
    job.batch(0, {topic: {"0": 5}})
    job.batch(1, {topic: {"0": 15}}, committed=False)
    assert job.check(topic) == []
    job.delete_before(topic, 0, 15)
    assert [loss.records for loss in job.check(topic, fail_on_data_loss=False)] == [10]


def test_the_very_first_batch_is_repeated_from_where_it_began(job: Job) -> None:
    topic = job.topics.create()
    job.write(topic, 20)
    job.files.write("sources/0/0", "\0v1\n" + json.dumps({topic: {"0": 3}}))
    job.batch(0, {topic: {"0": 15}}, committed=False)
    job.delete_before(topic, 0, 10)
    assert [(loss.first, loss.records) for loss in job.check(topic, fail_on_data_loss=False)] == [(3, 7)]


@pytest.mark.parametrize("again", [4, 10, 30], ids=["shorter", "as long", "longer"])
def test_a_topic_that_was_deleted_and_created_again(job: Job, again: int) -> None:
    """If the new topic is longer than the old one, Spark sees no difference."""
    topic = job.topics.create()
    job.write(topic, 20)
    job.check(topic)
    job.batch(0, {topic: {"0": 10}})
    job.recreate(topic)
    job.write(topic, again)
    with pytest.raises(DoesNotFitError) as refused:
        job.check(topic)
    assert f"{topic}-0: the topic was deleted and created again" in refused.value.message
    assert f"{min(again, 10)} records (offsets 0 to {min(again, 10) - 1})" in refused.value.message
    assert "To read the new topic from its beginning" in refused.value.advice
    with pytest.raises(DoesNotFitError):
        job.check(topic)  # refused once is not forgotten

    lost = job.check(topic, fail_on_data_loss=False)
    assert [loss.records for loss in lost] == [None, min(again, 10)]
    job.batch(1, {topic: {"0": again}})
    assert job.check(topic) == [], "the new topic is the topic now"


def test_a_running_job_can_ask_whether_its_topics_are_the_same(job: Job) -> None:
    topic = job.topics.create()
    job.check(topic)
    assert not preflight.changed(job.files, [topic], job.broker)
    job.recreate(topic)
    assert preflight.changed(job.files, [topic], job.broker)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("written_down", [True, False], ids=["pipeline.json", "offsets alone"])
def test_a_checkpoint_of_another_topic_is_always_refused(job: Job, fail_on_data_loss: bool, written_down: bool) -> None:
    one, other = job.topics.create(), job.topics.create()
    if written_down:
        job.check(one)
    job.batch(0, {one: {"0": 0}})
    with pytest.raises(DoesNotFitError, match=f"is the checkpoint of {one}, and .topics. says {other}\n"):
        job.check(other, fail_on_data_loss=fail_on_data_loss)


def test_a_checkpoint_of_another_job_is_refused(job: Job) -> None:
    topic = job.topics.create()
    checkpoint.write_identity(job.files, checkpoint.Identity("lake", {topic: None}))
    with pytest.raises(DoesNotFitError, match="is the checkpoint of lake"):
        job.check(topic)


def test_partitions_that_are_gone_new_or_cut(job: Job) -> None:
    topic = job.topics.create(partitions=2)
    job.write(topic, 20, 0)
    job.write(topic, 20, 1)
    job.delete_before(topic, 1, 8)
    job.check(topic)
    job.batch(0, {topic: {"0": 25, "7": 3}})
    cut, gone, new = job.check(topic, fail_on_data_loss=False)
    assert "it ends at offset 20 and the checkpoint goes on at 25" in cut.why
    assert (gone.partition.number, gone.records) == (7, None)
    assert (new.partition.number, new.first, new.records) == (1, 0, 8)


def test_two_sources_each_with_its_line(job: Job) -> None:
    orders, clicks = job.topics.create(), job.topics.create()
    job.batch(4, {orders: {"0": 2}}, {clicks: {"0": 3}})
    assert checkpoint.position(job.files).next == {Partition(orders, 0): 2, Partition(clicks, 0): 3}


def test_a_later_pipelines_checkpoint_is_not_guessed_at(job: Job) -> None:
    job.files.write("pipeline.json", '{"format": 9}')
    with pytest.raises(DoesNotFitError, match="format 9"):
        job.check(job.topics.create())


def test_offsets_of_a_partition_that_is_there_as_it_was_are_no_loss() -> None:
    position = checkpoint.Position({Partition("t", 0): 5})
    assert preflight.losses(position, set(), {Partition("t", 0): Range(5, 5)}) == []


def test_the_drivers_client_is_told_what_the_java_client_is_told() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a b;c";'
    kafka = {
        "bootstrap.servers": "one:9092, two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "fetch.max.bytes": "1",
    }
    assert kafka_python(kafka) == {
        "bootstrap_servers": ["one:9092", "two:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "a b;c",
        "ssl_cafile": "/ca.pem",
    }


@pytest.mark.parametrize("key", ["ssl.truststore.location", "sasl.login.callback.handler.class"])
def test_security_that_the_drivers_client_cannot_have_is_named(key: str) -> None:
    with pytest.raises(PipelineError, match=key):
        kafka_python({"bootstrap.servers": "one:9092", key: "x"})
