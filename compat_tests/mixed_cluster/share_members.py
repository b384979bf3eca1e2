"""Members of share groups that consume while leaders move and nodes die, and the judge of what they saw.

Four groups read one topic of one partition: those of Apache Kafka's Java client and of librdkafka, each with implicit
and with explicit acknowledgement. Explicit members release each fifth value at its first delivery. The judge knows only
what the clients were told. An acknowledgement that failed may have been carried out, so its record may come again.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer

from compat_tests.built import java_classes
from compat_tests.mixed_cluster.members import Cluster
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import GROUP as GROUP_CONFIGS
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import TOOL_JVM, java_command

SOURCE = Path(__file__).with_name("ShareMembers.java")
DELIVERED, ACCEPTED, RELEASED = "D", "A", "R"
CLIENTS, MODES = ("java", "librdkafka"), ("implicit", "explicit")
PATIENCE_S = 120.0


class Event(NamedTuple):
    """`kind` is DELIVERED, or ACCEPTED or RELEASED for an acknowledgement that succeeded. `deliveries` is
    the delivery count."""

    kind: str
    value: int
    deliveries: int


def judge(events: list[Event], produced: int) -> None:
    """Raises AssertionError if a record never came, if one came after its acceptance had succeeded, or if a delivery
    count is not possible. After a release that succeeded it is one more than before. After a delivery without an
    outcome it is at most one more, and more than what was stored."""
    stored: dict[int, int] = {}
    last: dict[int, Event] = {}
    accepted: set[int] = set()
    for event in events:
        before = last.get(event.value)
        if event.kind == DELIVERED:
            assert event.value not in accepted, f"{event.value} was accepted and came again"
            least, most = stored.get(event.value, 0) + 1, (before.deliveries if before else 0) + 1
            assert least <= event.deliveries <= most, f"{event} after {before}, {least - 1} were stored"
            last[event.value] = event
        elif event.kind == ACCEPTED:
            accepted.add(event.value)
        else:
            assert before is not None
            stored[event.value] = before.deliveries
    assert last.keys() == set(range(produced)), "every record was delivered"


class ShareMembers:
    """The members of all groups. `produce` writes records and does not wait; `all_came` does."""

    def __init__(self, cluster: Cluster, topic: str, bootstrap: str | None = None) -> None:
        """`bootstrap`: where the members begin, when it is not at the brokers that are there now."""
        self._cluster = cluster
        self._topic = topic
        self.groups = {(client, mode): f"{topic}-{client}-{mode}" for client in CLIENTS for mode in MODES}
        self.events: dict[str, list[Event]] = {group: [] for group in self.groups.values()}
        self.produced = 0
        self._ended = threading.Event()
        self._bootstrap = bootstrap or cluster.bootstrap
        # With several requests in flight, librdkafka may write records twice (testkit/torture/epochs.py).
        settings = {"enable.idempotence": True, "max.in.flight": 1, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": self._bootstrap, **settings})
        self._running: list[Future[None]] = []
        with Wire(cluster.address(cluster.living()[0])) as wire:
            for group in self.events:
                wire.alter(GROUP_CONFIGS, group, {"share.auto.offset.reset": "earliest"})

    @contextmanager
    def running(self) -> Iterator[None]:
        words = [word for mode in MODES for word in (mode, self.groups["java", mode])]
        command = java_command("ShareMembers", jvm=TOOL_JVM, extra_classpath=java_classes(SOURCE))
        process = subprocess.Popen(
            [*command, self._bootstrap, self._topic, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with ThreadPoolExecutor(1 + len(MODES)) as pool:
            self._running = [pool.submit(self._read, process)]
            self._running += [pool.submit(self._consume, mode) for mode in MODES]
            try:
                yield
            finally:
                self._ended.set()
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(PATIENCE_S)
                finally:
                    process.kill()
        for each in self._running:
            each.result()
        assert process.returncode == 0

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                group, kind, value, count = line.split()
                self.events[group].append(Event(kind, int(value), int(count)))

    def _consume(self, mode: str) -> None:
        group = self.groups["librdkafka", mode]
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": mode,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            self._poll(consumer, self.events[group], explicit=mode == "explicit")
        consumer.close()

    def _poll(self, consumer: ShareConsumer, events: list[Event], *, explicit: bool) -> None:
        done: list[tuple[str, int]] = []
        for message in consumer.poll(0.2) or ():
            if message.error() is not None:
                continue  # a broker has gone
            value, count = int(message.value() or b""), message.delivery_count()
            assert count is not None
            events.append(Event(DELIVERED, value, count))
            releases = explicit and count == 1 and value % 5 == 0
            done.append((RELEASED if releases else ACCEPTED, value))
            if explicit:
                consumer.acknowledge(message, AcknowledgeType.RELEASE if releases else AcknowledgeType.ACCEPT)
        if not done:
            return
        try:
            outcome = consumer.commit_sync(30.0)
        except KafkaException:
            return
        if outcome and not any(outcome.values()):
            events += [Event(kind, value, 0) for kind, value in done]

    def produce(self, count: int) -> None:
        for value in range(self.produced, self.produced + count):
            self._producer.produce(self._topic, str(value), partition=0)
        self.produced += count

    def all_came(self) -> None:
        """Wait until each group has had each record at least once."""
        assert self._producer.flush(PATIENCE_S) == 0

        def all_delivered() -> bool:
            assert not any(each.done() for each in self._running), "a member has ended"
            return all(
                len({event.value for event in list(events) if event.kind == DELIVERED}) == self.produced
                for events in self.events.values()
            )

        eventually(f"all groups have {self.produced} records of {self._topic}", all_delivered, seconds=PATIENCE_S)

    def judge(self) -> None:
        for group, events in self.events.items():
            try:
                judge(events, self.produced)
            except AssertionError as error:
                raise AssertionError(f"{group}: {error}") from None
            kinds = {event.kind for event in events}
            assert kinds == {DELIVERED, ACCEPTED} | ({RELEASED} if group.endswith("explicit") else set()), group
