"""The loops of this folder on three nodes, where a partition's leader asks a coordinator on another node.

Without faults no client gets an error. With faults, a node is killed and restarted again and again, and partitions move
to it. Then the totals are exact, and no client gets an error which shows that the nodes do not agree about a
transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.exactly_once.conftest import QUICK
from compat_tests.exactly_once.copiers.confluent_kafka_copier import make_producer
from compat_tests.exactly_once.copiers.task import Task
from compat_tests.exactly_once.kills import Kills
from compat_tests.exactly_once.producer_logs import NEVER, disagreements
from compat_tests.exactly_once.test_copy_loops import Loop, franz_go_copier, java_copier, python_copier
from compat_tests.exactly_once.test_message_copier import Copy
from compat_tests.exactly_once.test_streams import WordCount
from compat_tests.exactly_once.three_nodes import ThreeNodes
from compat_tests.topics import Topics
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from testkit.clients import wait_until
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import kafka_libs
from testkit.programs import Slot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: With the share of kills that hit a node: 20 of them, and as many moves.
ROUNDS, NODES_SHARE = 25, 0.8
COPIERS: dict[str, Callable[[], list[str]]] = {
    "librdkafka": partial(python_copier, "confluent_kafka"),
    "franz_go": franz_go_copier,
    "java": java_copier,
}


@pytest.fixture(scope="module")
def nodes(against: str) -> Iterator[ThreeNodes]:
    kafka_libs()
    with closing(ThreeNodes(against, QUICK)) as nodes:
        yield nodes.start()
        assert not nodes.cluster.complaints()


def errors(slots: list[Slot]) -> list[str]:
    return [str(event["error"]) for slot in slots for event in slot.events if event.get("did") == "failed"]


class Work(Protocol):
    """A program that copies or counts. Its result is judged after it has ended."""

    def progress(self) -> int: ...
    def finish(self) -> None: ...


def survives(nodes: ThreeNodes, work: Work, slots: list[Slot]) -> None:
    """Kill nodes and workers while it works. The totals are exact, and no worker gets an error of NEVER."""
    Kills(nodes, slots, broker_share=NODES_SHARE).run(ROUNDS, work.progress, least=200)
    work.finish()
    met = errors(slots)
    print(f"errors that were met: {met}")
    assert not [error for error in met if any(word in error for word in NEVER)]
    for slot in slots:
        assert not disagreements(slot.worker.tail(1 << 20))


@pytest.fixture(params=COPIERS)
def loop(nodes: ThreeNodes, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loop]:
    with closing(Loop(nodes, "classic", COPIERS[request.param](), tmp_path)) as loop:
        yield loop


def test_a_loop_meets_no_error(loop: Loop) -> None:
    Kills(loop.node, loop.slots).run(0, loop.progress, least=600)
    loop.finish()
    assert errors(loop.slots) == []
    assert [slot.ends for slot in loop.slots] == [[], []]


@pytest.mark.long(amount="20 kills of one of three nodes, and as many moves")
def test_a_loop_under_kills_and_moves(nodes: ThreeNodes, loop: Loop) -> None:
    survives(nodes, loop, loop.slots)


@pytest.mark.long(amount="20 kills of one of three nodes, and as many moves")
def test_kafka_streams_under_kills_and_moves(nodes: ThreeNodes, tmp_path: Path) -> None:
    with closing(WordCount(nodes, tmp_path)) as work:
        survives(nodes, work, work.slots)


@pytest.mark.long(amount="20 kills of one of three nodes, and as many moves")
@pytest.mark.parametrize("in_groups", [False, True], ids=["assigned", "group"])
def test_the_message_copier_under_kills_and_moves(nodes: ThreeNodes, tmp_path: Path, in_groups: bool) -> None:
    with closing(Copy(nodes, tmp_path, in_groups=in_groups)) as work:
        survives(nodes, work, work.copiers)


def group_coordinator(nodes: ThreeNodes, group: str) -> int:
    with Wire(nodes.cluster.address(nodes.cluster.living()[0])) as wire:
        found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators[0]
        return int(found.node_id)


def commit_an_offset(producer: Producer, consumer: Consumer, topic: str) -> None:
    """Run one transaction, of a record and an offset."""
    producer.begin_transaction()
    producer.produce(topic, b"a record", partition=0)
    assert producer.flush(30) == 0
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), 5)
    producer.commit_transaction(30)


@pytest.mark.long(amount="one kill of a coordinator")
def test_librdkafka_goes_on_after_its_metadata_left_the_groups_coordinator_out(nodes: ThreeNodes) -> None:
    """With librdkafka's own idle time this transaction never ends, also on Apache Kafka."""
    topic = Topics(nodes.bootstrap).create()
    group = f"{topic}-group"
    task = Task(nodes.bootstrap, topic, topic, group, f"{topic}-writer", "assign")
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": group})
    producer = make_producer(task)
    producer.init_transactions(60)
    commit_an_offset(producer, consumer, topic)
    away = group_coordinator(nodes, group)
    nodes.cluster.kill(away)
    wait_until(lambda: away not in producer.list_topics(timeout=30).brokers, "the producer's metadata leave it out")
    nodes.start()
    # A daemon thread, because a hanging call ignores its timeout and signals.
    work = threading.Thread(target=commit_an_offset, args=(producer, consumer, topic), daemon=True)
    work.start()
    work.join(30)
    assert not work.is_alive(), "the producer waits for a broker that it has forgotten"
    committed = consumer.committed([TopicPartition(topic, 0)], 30)
    assert [part.offset for part in committed] == [1]
    consumer.close()
