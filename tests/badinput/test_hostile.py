"""More than 10,000 mutated requests over every API, version and record body, while a stock client works.

No request of it may cost another client anything, leave anything in the node, or be an error of this node. Failures are
printed with the seed; the list of requests is the same for the same seed (mutations.py).
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from testkit.nodes.wire import Wire
from tests.badinput import mutations
from tests.badinput.asking import Asker
from tests.badinput.watched import HOST, WatchedNode, watched_node

SEED = int(os.environ.get("PYKBROKER_HOSTILE_SEED", "20261121"))
EACH = int(os.environ.get("PYKBROKER_HOSTILE_EACH", "45"))
RECORD_BODIES = 2000
IN_FLIGHT = 48
# A request that waits longer is parked, and is left alone, because its removal is part of the test.
PATIENCE_S = 0.25
STOCK = "stock"
SESSION_SLOTS = 200
FILES_OF_A_PARTITION = 4
# Python's memory after 10,000 requests: fragments of its allocator, groups and configurations that were really made.
MEMORY_SLACK_KIB = 24 * 1024
CONFIG = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "50",
    "max.incremental.fetch.session.cache.slots": str(SESSION_SLOTS),
    "pykbroker.connection.request.receive.timeout.ms": "2000",
}


class StockClient(threading.Thread):
    """librdkafka in ordinary use: writes a record, waits until its consumer group returns it, and again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="stock client", daemon=True)
        self.bootstrap = bootstrap
        self.rounds = 0
        self.slowest_s = 0.0
        self.failure: BaseException | None = None
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.failure = error

    def _work(self) -> None:
        from confluent_kafka import Consumer, Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "stock",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([STOCK])
        refused: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        while not self._enough.is_set():
            value = f"round {self.rounds}".encode()
            started = time.monotonic()
            producer.produce(STOCK, value, on_delivery=delivered)
            assert producer.flush(20) == 0, "a record was not acknowledged"
            assert not refused, refused
            message = consumer.poll(20)
            assert message is not None, f"{value!r} did not come back"
            assert message.error() is None, message.error()
            assert message.value() == value
            consumer.commit(message=message, asynchronous=False)
            if self.rounds:
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)
            self.rounds += 1
            time.sleep(0.01)
        consumer.close()

    def works(self, rounds: int, timeout_s: float = 30) -> None:
        """Wait until it has done this many more rounds."""
        goal, deadline = self.rounds + rounds, time.monotonic() + timeout_s
        while self.rounds < goal:
            assert self.failure is None, repr(self.failure)
            assert time.monotonic() < deadline, f"the stock client did {self.rounds} rounds, {goal} were expected"
            time.sleep(0.02)

    def stop(self) -> None:
        self._enough.set()
        self.join(30)
        assert self.failure is None, repr(self.failure)


def attack(port: int, hostile: Iterator[mutations.Hostile]) -> Counter[str]:
    """Send all of them, each alone on its connection; a connection with a response is used again."""
    verdicts: Counter[str] = Counter()
    selector = selectors.DefaultSelector()
    busy: dict[socket.socket, float] = {}
    idle: list[socket.socket] = []

    def drop(one: socket.socket) -> None:
        selector.unregister(one)
        busy.pop(one, None)
        one.close()

    def settle(wait_s: float) -> None:
        now = time.monotonic()
        for key, _ in selector.select(wait_s):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            try:
                data = one.recv(1 << 20)
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            if not data:
                if one in busy:
                    verdicts["closed"] += 1
                else:
                    idle.remove(one)
                drop(one)
            elif one in busy:
                verdicts["answered"] += 1
                # Only the beginning of a large response is read here; such a connection is not used again.
                if len(data) >= 4 and int.from_bytes(data[:4], "big") == len(data) - 4:
                    del busy[one]
                    idle.append(one)
                else:
                    drop(one)
        for one in [one for one, since in busy.items() if now - since > PATIENCE_S]:
            verdicts["silent"] += 1
            drop(one)

    for request in hostile:
        while len(busy) >= IN_FLIGHT:
            settle(0.02)
        if idle:
            one = idle.pop()
        else:
            one = Wire(f"{HOST}:{port}").socket
            selector.register(one, selectors.EVENT_READ)
        busy[one] = time.monotonic()
        try:
            one.settimeout(5)
            one.sendall(request.data)
        except (BrokenPipeError, ConnectionResetError):
            verdicts["closed"] += 1
            drop(one)
    while busy:
        settle(0.02)
    for one in idle:
        one.close()
    selector.close()
    return verdicts


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_hostile_client_disturbs_nobody_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with watched_node(CONFIG) as node, Asker(node.port) as asker:
        asker.make_topic(mutations.TOPIC)
        asker.make_topic(STOCK)
        asker.make_coordinator()
        asker.make_share_group()
        # Objects that are made once (modules, caches, free lists) are made before anything is counted.
        known = mutations.Known(topic_id=asker.topic_id(mutations.TOPIC))
        attack(node.port, mutations.requests(SEED + 1, 2, 100, known))
        _forget_topics(asker)
        # The node has two connections to itself: for share coordinators, and for the ends of partitions.
        before = _settled(node, {"connections": 3})
        stock = StockClient(f"{HOST}:{node.port}")
        stock.start()
        stock.works(3)
        started = time.monotonic()
        verdicts = attack(node.port, mutations.requests(SEED, EACH, RECORD_BODIES, known))
        seconds = time.monotonic() - started
        during = stock.rounds
        stock.works(20)
        stock.stop()
        _forget_topics(asker)
        exactly = ("connections", "sockets", "receive_bytes", "unanswered", "parked_fetches")
        goal = {name: before[name] for name in exactly}
        # Logs and each of their indexes are opened when first used.
        goal["open_files"] = before["open_files"] + FILES_OF_A_PARTITION * _partitions(asker)
        goal["anonymous_kib"] = before["anonymous_kib"] + MEMORY_SLACK_KIB
        goal["fetch_sessions"] = SESSION_SLOTS
        after = node.settles(goal)
        asker.is_served()
        with capsys.disabled():
            print(f"\n  seed {SEED}: {sum(verdicts.values())} requests in {seconds:.1f} s: {dict(verdicts)}")
            print(f"  stock client: {during} rounds during it, slowest {stock.slowest_s * 1000:.0f} ms")
            print(f"  before {before}\n  after  {after}")
        assert not node.complaints(), f"seed {SEED}:\n" + "\n".join(node.complaints()[:100])
        assert sum(verdicts.values()) >= 10_000
        assert during > 10
        assert {name: count for name, count in after.items() if count > goal[name]} == {}, f"seed {SEED}: {goal}"


def _partitions(asker: Asker) -> int:
    """Return the number of all partitions that this node has by now."""
    names = [MetadataRequestTopic(name=name) for name in (mutations.TOPIC, STOCK, "__consumer_offsets")]
    return sum(len(topic.partitions) for topic in asker.ask(MetadataRequest(topics=names)).topics)


def _settled(node: WatchedNode, goal: dict[str, int]) -> dict[str, int]:
    """Return the counts when parked requests, half requests and deleted files are gone."""
    node.settles({**goal, "unanswered": 0, "parked_fetches": 0, "receive_bytes": 0})
    time.sleep(0.5)
    return node.holds()


def _forget_topics(asker: Asker) -> None:
    """Delete topics that requests have created, because they cost files."""
    made = [topic.name for topic in asker.ask(MetadataRequest(topics=None)).topics]
    extra = [name for name in made if name not in (mutations.TOPIC, STOCK, "__consumer_offsets")]
    if extra:
        asker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in extra], timeout_ms=10000))


@pytest.mark.slow
def test_the_list_is_the_same_for_the_same_seed_and_covers_everything() -> None:
    one = [request.data for request in mutations.requests(1, 1, 50)]
    assert one == [request.data for request in mutations.requests(1, 1, 50)]
    asked = {request.what.split(" ")[0] + request.what.split(" ")[1] for request in mutations.requests(1, 1, 0)}
    assert len(asked) == len(mutations.served())
    assert len(mutations.served()) * EACH + RECORD_BODIES >= 10_000
