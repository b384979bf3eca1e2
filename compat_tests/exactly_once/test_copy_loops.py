"""Consume, transform, produce: the loop that transactions are made for, in every client that has them, under SIGKILL.

Two copiers of one client family share the input and are killed while they work, and so is the broker. At the end the
output with read_committed is the transformed input, in its order, every record once. copiers/task.py describes the task
of a copier.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.built import go_program, java_classes
from compat_tests.exactly_once import reading
from compat_tests.exactly_once.copiers.task import Task
from compat_tests.exactly_once.hanging import wait_with_mending
from compat_tests.exactly_once.kills import Kills
from compat_tests.exactly_once.test_message_copier import different
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record
from testkit.oracle.kafka import java_command, kafka_libs
from testkit.programs import Slot

# Each start of a broker takes 20 s on a machine with other work.
pytestmark = pytest.mark.timeout(900)

PARTITIONS = 2
#: After a kill a copier may wait for the end of the transaction and of the session of the one before it.
PATIENCE_S = 300.0
#: Classic groups have three clients, and the new ones two. The other protocol of a client is a long test.
ALSO = pytest.mark.long(amount="the other protocol of a client")
CLASSIC_ALSO = [pytest.param("classic", marks=ALSO), "consumer"]
CONSUMER_ALSO = ["classic", pytest.param("consumer", marks=ALSO)]


class Loop:
    def __init__(self, node: Node, protocol: str, command: list[str], folder: Path) -> None:
        self.node = node
        topics = Topics(node.bootstrap)
        self.source = topics.create(partitions=PARTITIONS)
        self.target = topics.create(partitions=PARTITIONS)
        self._written = 0
        self.write(200)
        self.slots: list[Slot] = []
        self._commit_the_beginning(f"copy-{self.source}")
        for number in range(PARTITIONS):
            task = Task(
                bootstrap=node.bootstrap,
                source=self.source,
                target=self.target,
                group=f"copy-{self.source}",
                transactional_id=f"copy-{self.source}-{number}",
                protocol=protocol,
                partitions=[number] if protocol == "assign" else [],
            )
            self.slots.append(Slot(f"copier-{number}", [*command, json.dumps(asdict(task))], folder))

    def _commit_the_beginning(self, group: str) -> None:
        """Commit offsets of the group before its first member joins, so that "none" is never the right answer."""
        consumer = Consumer({"bootstrap.servers": self.node.bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            consumer.commit(
                offsets=[TopicPartition(self.source, number, 0) for number in range(PARTITIONS)], asynchronous=False
            )
        finally:
            consumer.close()

    def write(self, count: int) -> None:
        numbers = range(self._written, self._written + count)
        records = [Record(None, b"%d" % i, (), NOW_MS, i % PARTITIONS) for i in numbers]
        ConfluentClient().produce(self.node.bootstrap, self.source, records, idempotent=True)
        self._written += count

    def progress(self) -> int:
        """Return the number of copied records; there is always something left to copy."""
        done: int = sum(e["records"] for slot in self.slots for e in list(slot.events) if e["did"] == "committed")
        if done + 400 > self._written:
            self.write(400)
        return done

    def finish(self) -> None:
        def whole() -> bool:
            for slot in self.slots:
                slot.tend()
            found = reading.values(self.node.bootstrap, self.target)
            return sum(map(len, found.values())) >= self._written

        wait_with_mending(
            self.node, whole, f"all {self._written} records are copied", timeout_s=PATIENCE_S, every_s=reading.EVERY_S
        )
        for slot in self.slots:
            slot.close()
        found = reading.values(self.node.bootstrap, self.target)
        for number in range(PARTITIONS):
            wanted = [b"%d!" % i for i in range(number, self._written, PARTITIONS)]
            assert found[number] == wanted, f"partition {number}: {different(wanted, found[number])}"
        everything = reading.values(self.node.bootstrap, self.target, committed=False)
        aborted = sum(map(len, everything.values())) - self._written
        failed = [e["error"] for slot in self.slots for e in slot.events if e["did"] == "failed"]
        print(f"{self._written} records; {aborted} more in aborted transactions; errors that were met: {failed}")
        assert aborted > 0, "the copiers abort on purpose, and who reads uncommitted sees that"

    def close(self) -> None:
        for slot in self.slots:
            slot.close()


class LoopSuite:
    """Subclasses define the command of one client's copier."""

    #: kills in CI
    rounds = 3
    #: the share of kills that hit the broker
    broker_share = 0.3

    @pytest.fixture
    def command(self) -> list[str]:
        raise NotImplementedError

    @pytest.fixture
    def protocol(self) -> str:
        return "classic"

    @pytest.fixture
    def loop(self, killable: Node, protocol: str, command: list[str], tmp_path: Path) -> Iterator[Loop]:
        made = Loop(killable, protocol, command, tmp_path)
        yield made
        made.close()

    def test_every_record_once(self, loop: Loop) -> None:
        Kills(loop.node, loop.slots, broker_share=self.broker_share).run(self.rounds, loop.progress, least=60)
        loop.finish()

    @pytest.mark.long(amount="60 kills")
    @pytest.mark.timeout(1800)
    def test_every_record_once_through_many_kills(self, loop: Loop) -> None:
        Kills(loop.node, loop.slots, broker_share=self.broker_share).run(60, loop.progress, least=60)
        loop.finish()


def python_copier(name: str) -> list[str]:
    return [sys.executable, "-m", f"compat_tests.exactly_once.copiers.{name}_copier"]


def franz_go_copier() -> list[str]:
    return [str(go_program(Path(__file__).parents[1] / "go")), "copy"]


def java_copier() -> list[str]:
    kafka_libs()
    source = Path(__file__).parents[1] / "java" / "CopyProgram.java"
    return java_command("CopyProgram", extra_classpath=java_classes(source))


class TestConfluentKafka(LoopSuite):
    @pytest.fixture(params=CLASSIC_ALSO)
    def protocol(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def command(self) -> list[str]:
        return python_copier("confluent_kafka")


class TestKafkaPython(LoopSuite):
    @pytest.fixture
    def command(self) -> list[str]:
        return python_copier("kafka_python")


class TestAiokafka(LoopSuite):
    @pytest.fixture
    def protocol(self) -> str:
        return "assign"

    @pytest.fixture
    def command(self) -> list[str]:
        return python_copier("aiokafka")


class TestFranzGo(LoopSuite):
    @pytest.fixture(params=CONSUMER_ALSO)
    def protocol(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def command(self) -> list[str]:
        return franz_go_copier()


class TestJava(LoopSuite):
    @pytest.fixture(params=["classic", "consumer"])
    def protocol(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def command(self) -> list[str]:
        return java_copier()
