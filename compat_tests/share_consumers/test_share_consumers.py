"""Share consumers of Java, Spring, librdkafka and franz-go on one node: delivery, acknowledgements, release."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from compat_tests.built import go_program, java_classes
from compat_tests.node import Node
from compat_tests.our_tools.both import ours
from testkit.oracle.kafka import TOOL_JVM, java_command

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("ShareProgram.java")
SPRING = Path(__file__).with_name("spring")
GO = Path(__file__).parents[1] / "go"
PATIENCE_S = 60.0
RECORDS = 400


class Delivered(NamedTuple):
    partition: int
    value: int
    deliveries: int


#: (bootstrap servers, topic, group, number of records, mode) -> what was delivered, in its order
Consume = Callable[[str, str, str, int, str], list[Delivered]]


def librdkafka(bootstrap: str, topic: str, group: str, records: int, mode: str) -> list[Delivered]:
    """Consume as ShareProgram.java does."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "implicit" if mode == "implicit" else "explicit",
        }
    )
    consumer.subscribe([topic])
    found: list[Delivered] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < records:
        assert time.monotonic() < deadline, f"{len(found)} of {records} records came"
        polled: Sequence[Any] = list(consumer.poll(timeout=0.5) or ())
        for message in polled:
            assert message.error() is None
            value = int(message.value())
            each = Delivered(message.partition(), value, message.delivery_count())
            found.append(each)
            if mode == "reject":
                consumer.acknowledge(message, AcknowledgeType.REJECT if value % 2 else AcknowledgeType.ACCEPT)
            elif mode in ("explicit", "odd"):
                releases = mode == "odd" and each.deliveries == 1 and value % 2 == 1
                consumer.acknowledge(message, AcknowledgeType.RELEASE if releases else AcknowledgeType.ACCEPT)
        if polled and mode != "keep":
            assert not [error for error in consumer.commit_sync(30.0).values() if error is not None]
    consumer.close()
    return found


def java(bootstrap: str, topic: str, group: str, records: int, mode: str) -> list[Delivered]:
    command = java_command("ShareProgram", jvm=TOOL_JVM, extra_classpath=java_classes(SOURCE))
    return of_program(command, bootstrap, topic, group, str(records), mode)


def franz_go(bootstrap: str, topic: str, group: str, records: int, mode: str) -> list[Delivered]:
    command = [str(go_program(GO)), "share"]
    return of_program(command, bootstrap, topic, group, str(records), mode)


def spring(bootstrap: str, topic: str, group: str, records: int, mode: str) -> list[Delivered]:
    classes = java_classes(SPRING / "SpringShareProgram.java", pom=SPRING / "pom.xml")
    command = java_command("SpringShareProgram", jvm=TOOL_JVM, extra_classpath=classes)
    return of_program(command, bootstrap, topic, group, str(records), mode)


def of_program(command: Sequence[str], *words: str) -> list[Delivered]:
    """Run a program that consumes as ShareProgram.java does."""
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return [Delivered(*map(int, line.split())) for line in done.stdout.splitlines()]


@pytest.fixture(params=[librdkafka, java, spring, franz_go], ids=["librdkafka", "java", "spring", "franz-go"])
def consume(request: pytest.FixtureRequest) -> Consume:
    made: Consume = request.param
    return made


class Queue(NamedTuple):
    bootstrap: str
    topic: str
    group: str

    def consumed(self, consume: Consume, records: int, mode: str) -> list[Delivered]:
        return consume(self.bootstrap, self.topic, self.group, records, mode)


@pytest.fixture
def queue(broker: Node, request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A topic of two partitions with RECORDS records, whose values are 0, 1, 2, and a group that begins with them."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    queue = Queue(broker.bootstrap, name, f"group-{name}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    reset = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, queue.group, incremental_configs=[reset])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in range(RECORDS):
        producer.produce(name, str(value), partition=value % 2)
    assert producer.flush(PATIENCE_S) == 0
    yield queue
    admin.delete_topics([name])[name].result()


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_each_record_comes_once(queue: Queue, consume: Consume, mode: str) -> None:
    found = queue.consumed(consume, RECORDS, mode)
    assert sorted(each.value for each in found) == list(range(RECORDS))
    assert {(each.value % 2, each.deliveries) for each in found} == {(each.partition, 1) for each in found}


def test_what_is_released_comes_again_with_a_higher_count(queue: Queue, consume: Consume) -> None:
    found = queue.consumed(consume, RECORDS + RECORDS // 2, "odd")
    assert Counter(each.value for each in found) == {value: 1 + value % 2 for value in range(RECORDS)}
    assert {each.deliveries for each in found if each.value % 2 == 0} == {1}
    assert Counter(each.deliveries for each in found if each.value % 2) == {1: RECORDS // 2, 2: RECORDS // 2}


# Spring's container polls again only when its listener has acknowledged all records, so its program keeps none.
@pytest.mark.parametrize("consume", [librdkafka, java, franz_go], ids=["librdkafka", "java", "franz-go"])
def test_what_a_member_leaves_unacknowledged_comes_to_the_next(queue: Queue, consume: Consume) -> None:
    kept = {each.value for each in queue.consumed(consume, 1, "keep")}
    found = queue.consumed(consume, RECORDS, "explicit")
    assert sorted(each.value for each in found) == list(range(RECORDS))
    assert {each.value for each in found if each.deliveries == 2} >= kept


def test_what_is_rejected_becomes_a_dead_letter(queue: Queue, consume: Consume) -> None:
    _tool(queue, "features", "upgrade", "--feature", "share.version=2")
    letters = f"dlq.{queue.topic}"
    enabled = ("--config", "errors.deadletterqueue.group.enable=true")
    _tool(queue, "topics", "--create", "--topic", letters, "--partitions", "2", *enabled)
    configs = f"errors.deadletterqueue.topic.name={letters},errors.deadletterqueue.copy.record.enable=true"
    _tool(queue, "configs", "--alter", "--entity-type", "groups", "--entity-name", queue.group, "--add-config", configs)
    found = queue.consumed(consume, RECORDS, "reject")
    assert sorted(each.value for each in found) == list(range(RECORDS))
    read = _letters(queue.bootstrap, letters, RECORDS // 2)
    assert sorted(int(message.value()) for message in read) == list(range(1, RECORDS, 2))
    for message in read:
        headers = {name: str(value, "utf-8") for name, value in message.headers()}
        assert headers.keys() == {
            f"__dlq.errors.{name}" for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
        }
        assert headers["__dlq.errors.topic"] == queue.topic
        assert headers["__dlq.errors.partition"] == str(message.partition())
        assert headers["__dlq.errors.group"] == queue.group
        assert headers["__dlq.errors.message"] == "Offset rejected by client."


def _tool(queue: Queue, name: str, *words: str) -> None:
    """Run one of pykbroker's tools. Its options for the broker come before the verb."""
    ended = ours(name, ["--bootstrap-server", queue.bootstrap, *words])
    assert ended.status == 0, ended


def _letters(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Read letters as any consumer does."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"reader-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} letters came"
        found += [message for message in consumer.consume(count, 0.5) if message.error() is None]
    consumer.close()
    return found
