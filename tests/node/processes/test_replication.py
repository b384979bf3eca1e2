"""Topics with three replicas on three processes: acknowledged records survive the end of any one of them."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from testkit.nodes.load import Load
from testkit.nodes.nodes import GROUP, PATIENCE_SECONDS, TRANSACTION, eventually
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

#: Each node leads one of three topics.
ORDERS = {"one": (1, 2, 3), "two": (2, 3, 1), "three": (3, 1, 2)}
EVERYTHING = 1 << 62


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("trio"), "dynamic", REPLICATED) as found:
        yield found


@pytest.fixture
def trio(started: Trio) -> Iterator[Trio]:
    """The nodes are those of the tests before. Topics are new ones (`fresh`)."""
    started.bring_back()
    before = started.complaints()
    yield started
    assert started.complaints() == before


@pytest.fixture
def new_trio(tmp_path: Path) -> Iterator[Trio]:
    """Nodes that have not been restarted, so that each leads its part of the internal topics."""
    with Trio(tmp_path, "dynamic", REPLICATED) as found:
        found.serving(*NUMBERS)
        yield found
        assert not found.complaints()


def fresh(name: str) -> str:
    """Return a name that no test has used."""
    return f"{name}-{next(_NUMBERS)}"


_NUMBERS = itertools.count()


def create_one_for_each(trio: Trio) -> list[str]:
    return [trio.create(fresh(topic), order) for topic, order in ORDERS.items()]


def new_leader(trio: Trio, topic: str, *, but: int) -> int:
    """Return the leader of partition 0 when it is no longer a certain node."""

    def look() -> int | None:
        leader = trio.leaders(topic)[0]
        return leader if leader != but else None

    return eventually(f"another node than {but} leads {topic}", look)


def high_watermark(wire: Wire, topic: str) -> int:
    found: int = wire.fetch(topic, max_wait_ms=0).high_watermark
    return found


def test_every_node_holds_the_same_bytes(trio: Trio) -> None:
    topic = trio.create(fresh("t"), *ORDERS.values())
    producer = Producer({"bootstrap.servers": trio.bootstrap, "acks": "all", "compression.type": "lz4"})
    refused: list[object] = []

    def report(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    for number in range(600):
        value = b"%d-" % number * 40
        producer.produce(topic, value, partition=number % 3, on_delivery=report)
        producer.poll(0)
        if number % 60 == 0:
            producer.flush(PATIENCE_SECONDS)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert not refused
    for partition, leader in trio.leaders(topic).items():
        assert trio.same_logs(topic, partition)
        with Wire(trio.address(leader)) as wire:
            assert wire.values(topic, partition) == [b"%d-" % n * 40 for n in range(partition, 600, 3)]


def test_a_leader_that_returns_gives_up_what_was_never_committed(trio: Trio) -> None:
    topic = trio.create(fresh("t"), (1, 2, 3))
    with Wire(trio.address(1)) as wire:
        assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
        with trio.paused(2, 3):
            # A fetch response with the first record may be on its way to a follower. The second is in no other log.
            for value in (b"perhaps", b"lost"):
                assert wire.produce(topic, batch(value), acks=1).error_code == ErrorCode.NONE
            trio.kill(1)
    assert b"lost" in trio.stored(1, topic, 0, EVERYTHING)
    leader = new_leader(trio, topic, but=1)
    with Wire(trio.address(leader)) as wire:
        assert wire.produce(topic, batch(b"later")).error_code == ErrorCode.NONE
        values = wire.values(topic)
    assert values in ([b"kept", b"later"], [b"kept", b"perhaps", b"later"])
    trio.start(1).ready(PATIENCE_SECONDS)
    trio.in_sync(topic)
    assert b"lost" not in trio.same_logs(topic)
    with Wire(trio.address(leader)) as wire:
        assert wire.values(topic) == values


@pytest.mark.parametrize("victim", ["a broker", "the active controller"])
def test_nothing_acknowledged_is_lost_with_a_killed_leader(trio: Trio, victim: str) -> None:
    active = trio.active()
    killed = active if victim == "the active controller" else active % 3 + 1
    topics = create_one_for_each(trio)
    led = topics[killed - 1]
    with Load(trio, topics) as load:
        load.goes_on()
        in_sync = set(trio.partitions(led)[0].isr_nodes)
        trio.kill(killed)
        assert new_leader(trio, led, but=killed) in in_sync - {killed}
        load.goes_on()
        trio.start(killed).ready(PATIENCE_SECONDS)
        trio.in_sync(*topics)
        load.goes_on()
    load.judge()
    for topic in topics:
        trio.same_logs(topic)


def test_nothing_acknowledged_is_lost_when_all_nodes_are_killed_at_once(trio: Trio) -> None:
    """No stop was clean, so each replica leaves the ISR when its broker registers; the last one leads again."""
    topics = create_one_for_each(trio)
    with Load(trio, topics) as load:
        load.goes_on()
        for process in trio.running.values():
            os.kill(process.pid, signal.SIGKILL)
        for number in NUMBERS:
            trio.kill(number)
            trio.start(number)
        for process in trio.running.values():
            process.ready(PATIENCE_SECONDS)
        trio.in_sync(*topics)
        load.goes_on()
    load.judge()
    for topic in topics:
        trio.same_logs(topic)


def test_below_min_isr_nothing_is_acknowledged_or_committed(trio: Trio) -> None:
    """Two of three nodes stop, the second in order: the active controller is left, and knows that it is alone."""
    left = trio.active()
    first, second = (number for number in NUMBERS if number != left)
    topic, quiet = (trio.create(fresh(name), (left, first, second)) for name in ("t", "quiet"))
    with Load(trio, [topic]) as load, Wire(trio.address(left)) as wire:
        assert wire.produce(quiet, batch(b"before")).error_code == ErrorCode.NONE
        load.goes_on()
        trio.kill(first)
        eventually("the killed node is out", lambda: set(trio.partitions(quiet)[0].isr_nodes) == {left, second})
        load.goes_on()
        assert trio.stop(second) == 0
        eventually("the other node is out", lambda: set(trio.partitions(quiet)[0].isr_nodes) == {left})
        assert wire.produce(quiet, batch(b"refused")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert wire.produce(quiet, batch(b"alone"), acks=1).error_code == ErrorCode.NONE
        assert high_watermark(wire, quiet) == 1
        assert wire.values(quiet) == [b"before"]
        for number in (first, second):
            trio.start(number)
        for number in (first, second):
            trio.running[number].ready(PATIENCE_SECONDS)
        trio.in_sync(topic, quiet)
        load.goes_on()
        eventually("what was appended is committed", lambda: high_watermark(wire, quiet) == 2)
        assert wire.values(quiet) == [b"before", b"alone"]
    load.judge()
    for name in (topic, quiet):
        trio.same_logs(name)


def test_a_rolling_restart_fails_no_request_of_a_client(trio: Trio) -> None:
    topics = create_one_for_each(trio)
    with Load(trio, topics) as load:
        for number in NUMBERS:
            load.goes_on()
            assert trio.stop(number) == 0
            load.goes_on()
            trio.start(number).ready(PATIENCE_SECONDS)
            trio.in_sync(*topics)
    load.judge()
    for topic in topics:
        trio.same_logs(topic)


def test_a_partition_moves_to_another_node_while_clients_run(trio: Trio) -> None:
    """KIP-455: its leader leaves, and the leadership moves with the last step."""
    topic = trio.create(fresh("t"), (1, 2))
    wanted = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=[3, 2])])
    with Load(trio, [topic]) as load:
        load.goes_on()
        with Wire(trio.address(2)) as wire:
            answer = wire.call(AlterPartitionReassignmentsRequest(topics=[wanted]))
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        eventually("the partition moves", lambda: trio.partitions(topic)[0].replica_nodes == [3, 2])
        assert trio.leaders(topic) == {0: 3}
        load.goes_on()
        trio.in_sync(topic)
    load.judge()
    trio.same_logs(topic)
    eventually("node 1 gives its replica up", lambda: not (trio.data(1) / f"{topic}-0").exists())


def test_a_group_and_a_transaction_survive_their_coordinator(new_trio: Trio) -> None:
    trio = new_trio
    killed = trio.active() % 3 + 1
    read, written, by_hand = (trio.create(name, (1, 2, 3)) for name in ("read", "written", "by-hand"))
    groups = [trio.keys_by_coordinator(GROUP, prefix)[killed] for prefix in ("member", "by-hand")]
    ids = [trio.keys_by_coordinator(TRANSACTION, prefix)[killed] for prefix in ("writer", "by-hand")]
    internal = ["__consumer_offsets", "__transaction_state"]
    trio.in_sync(*internal)
    load = Load(trio, [read])
    load.consume(groups[0], read)
    load.transact(ids[0], written)
    producer = Producer({"bootstrap.servers": trio.bootstrap, "transactional.id": ids[1]})
    consumer = Consumer({"bootstrap.servers": trio.bootstrap, "group.id": groups[1], "enable.auto.commit": False})
    with load:
        load.goes_on()
        producer.init_transactions(PATIENCE_SECONDS)
        producer.begin_transaction()
        producer.produce(by_hand, b"kept", partition=0)
        offsets = [TopicPartition(read, 0, 7)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
        assert producer.flush(PATIENCE_SECONDS) == 0
        trio.kill(killed)
        producer.commit_transaction(PATIENCE_SECONDS)
        assert [found.offset for found in consumer.committed(offsets, PATIENCE_SECONDS)] == [7]
        load.goes_on()
        trio.start(killed).ready(PATIENCE_SECONDS)
        trio.in_sync(read, written, by_hand, *internal)
        load.goes_on()
    consumer.close()
    load.judge()
    with Wire(trio.address(trio.leaders(by_hand)[0])) as wire:
        assert wire.values(by_hand)[:1] == [b"kept"]
        answer = wire.fetch(by_hand, isolation_level=1)
        assert answer.last_stable_offset == answer.high_watermark == 2
    for topic in (read, written, by_hand):
        trio.same_logs(topic)
