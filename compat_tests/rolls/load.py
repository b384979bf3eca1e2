"""Clients that work while the nodes of a cluster restart one by one: librdkafka and the Java client, with defaults.

Each broker leads topics of its own. Writers, in transactions and without, and groups of both protocols use them. The
judge reads everything at the end, and compares it with the answers and the errors that the clients got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compat_tests.mixed_cluster.members import Cluster
from testkit.clients import wait_until
from testkit.oracle.kafka import tool_command
from testkit.programs import Worker
from testkit.torture.clients import ANSWER_S, Client, Group, TransactionalWriter, Window, Writer, go_on
from testkit.torture.journal import Journal

#: librdkafka's own defaults, where a client of the torture has other values.
DEFAULTS = {
    "linger.ms": 5,
    "batch.num.messages": 10_000,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 10_000,
    "retry.backoff.ms": 100,
    "message.timeout.ms": 300_000,
}
OF_GROUPS: dict[str, Any] = {
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 3_000,
    "reconnect.backoff.max.ms": 10_000,
}
BY_THE_BROKER = {"group.protocol": "consumer", "session.timeout.ms": None, "heartbeat.interval.ms": None}
#: The topic of the Java clients.
JAVA = "java"
#: The time between two bursts of a writer. A burst has ten records in the mean.
PAUSE_S = 0.1
TOOLS = "org.apache.kafka.tools"
#: The answers to a commit whose coordinator loads, and whose coordinator has moved. librdkafka finds the coordinator
#: again, and tells the application of the commit that failed.
LOADS, MOVED = "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"


@dataclass(frozen=True, slots=True)
class Access:
    """The bootstrap servers of clients, and the settings of their security.

    The judge reads through the cluster's own listener, which is plain."""

    bootstrap: str
    librdkafka: Mapping[str, str] = field(default_factory=dict)
    #: lines of a properties file
    java: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a client of librdkafka."""
        return {"bootstrap.servers": self.bootstrap, **self.librdkafka}


def led_by(prefix: str, numbers: Sequence[int]) -> dict[int, str]:
    """Return a topic for each broker, which leads it."""
    return {number: f"{prefix}-{number}" for number in numbers}


def order_from(number: int, numbers: Sequence[int]) -> list[int]:
    """Return all brokers, this one first."""
    return [number, *(other for other in numbers if other != number)]


class JavaLoad:
    """VerifiableProducer, with the client's default number of retries, and VerifiableConsumer in a group."""

    def __init__(self, cluster: Cluster, folder: Path, access: Access | None = None) -> None:
        self._partitions = len(cluster.numbers)
        cluster.create(JAVA, *(order_from(number, cluster.numbers) for number in cluster.numbers))
        self._access = access or Access(cluster.bootstrap)
        writing, reading = folder / "producer.properties", folder / "consumer.properties"
        writing.write_text(f"retries=2147483647\n{self._access.java}")
        reading.write_text(self._access.java)
        paced = ("--throughput", "100", "--acks", "-1", "--command-config", str(writing))
        self._producer = self._worker(folder, "VerifiableProducer", *paced)
        in_group = ("--group-id", "java", "--reset-policy", "earliest", "--verbose", "--command-config", str(reading))
        self._consumer = self._worker(folder, "VerifiableConsumer", *in_group)

    def _worker(self, folder: Path, main: str, *words: str) -> Worker:
        command = ["--bootstrap-server", self._access.bootstrap, "--topic", JAVA, *words]
        return Worker(main, tool_command(f"{TOOLS}.{main}", command), folder / f"{main}.log", lambda _: None)

    @staticmethod
    def _placed(worker: Worker, name: str) -> list[tuple[int, int, str]]:
        found = [event for event in list(worker.events) if event["name"] == name]
        return [(event["partition"], event.get("offset", -1), event["value"]) for event in found]

    def acknowledged(self) -> list[str]:
        return [value for _, _, value in self._placed(self._producer, "producer_send_success")]

    def read(self) -> list[tuple[int, int, str]]:
        return self._placed(self._consumer, "record_data")

    def finish(self) -> None:
        """Stop the producer, and check that the consumer gets each acknowledged record once and in order."""
        self._producer.terminate()
        self._producer.wait()
        written = self.acknowledged()
        wait_until(lambda: len(self.read()) >= len(written), "the Java consumer has read everything")
        read = self.read()
        assert sorted(value for _, _, value in read) == sorted(written)
        for partition in range(self._partitions):
            assert [offset for at, offset, _ in read if at == partition] == list(
                range(sum(at == partition for at, _, _ in read))
            )
        refused = [event for event in self._producer.events if event["name"] == "producer_send_error"]
        failed = [
            event for event in self._consumer.events if event["name"] == "offsets_committed" and not event["success"]
        ]
        print(f"{len(written)} records of Java; errors: {refused} {failed}")
        assert not refused
        assert not failed

    def close(self) -> None:
        for worker in (self._producer, self._consumer):
            if worker.alive():
                worker.kill()


class Load:
    """Clients of both kinds for each broker."""

    def __init__(self, cluster: Cluster, access: Access | None = None) -> None:
        self._cluster = cluster
        self.plain, self.committed = (led_by(prefix, cluster.numbers) for prefix in ("plain", "committed"))
        for topics in (self.plain, self.committed):
            for number, topic in topics.items():
                cluster.create(topic, order_from(number, cluster.numbers))
        bootstrap = cluster.bootstrap
        reached = (access or Access(bootstrap)).settings
        self.journals = {
            **{topic: Journal(topic) for topic in self.plain.values()},
            **{topic: Journal(topic, transactional=True) for topic in self.committed.values()},
        }
        once = {**DEFAULTS, **reached, "enable.idempotence": True}
        in_transactions = {**DEFAULTS, **reached, "transaction.timeout.ms": 60_000}
        self.writers: list[Writer] = [
            *(
                Writer(f"once-{topic}", bootstrap, self.journals[topic], topic, settings=once, pause_s=PAUSE_S)
                for topic in self.plain.values()
            ),
            *(
                TransactionalWriter(
                    f"in-{topic}", bootstrap, self.journals[topic], topic, settings=in_transactions, pause_s=PAUSE_S
                )
                for topic in self.committed.values()
            ),
        ]
        self.groups = [
            Group(bootstrap, topic, f"{kind}-{topic}", {**OF_GROUPS, **reached, **settings})
            for topic in self.plain.values()
            for kind, settings in (("classic", {}), ("consumer", BY_THE_BROKER))
        ]
        self.clients: list[Client] = [*self.writers, *self.groups]
        for client in self.clients:
            client.start()

    @property
    def topics(self) -> list[str]:
        return list(self.journals)

    def leads_again(self, number: int) -> None:
        """Make a broker lead its topics, as an election of preferred leaders does."""
        for topics in (self.plain, self.committed):
            self._cluster.move(topics[number], number)

    def succeeds(self, old: int, new: int) -> None:
        """Let a broker lead the topics of another one, which has gone. The judge asks the brokers that are there."""
        for topics in (self.plain, self.committed):
            topics[new] = topics.pop(old)
        for client in self.clients:
            client.bootstrap = self._cluster.bootstrap

    def goes_on(self) -> None:
        """Wait until each client has done something more."""
        go_on(self.clients, watched=self.clients)

    def forgive(self, *codes: str) -> int:
        """Remove the commits that were answered with one of these error codes. Returns their number."""
        count = 0
        for client in self.clients:
            for error in [error for error in client.met if any(f"code={code}," in error for code in codes)]:
                client.met.remove(error)
                count += 1
        return count

    def close(self) -> None:
        for client in self.clients:
            client.ask_to_stop()

    def finish(self) -> None:
        """Stop the clients, and judge what is read by the answers that they received."""
        self.close()
        for client in self.clients:
            client.join(ANSWER_S)
            assert not client.is_alive(), f"{client.name} does not end"
            client.check()
        met = {client.name: client.met for client in self.clients if client.met}
        for topic, journal in self.journals.items():
            window = Window(self._cluster.bootstrap, committed=journal.transactional)
            with closing(window):
                start, end = window.bounds(topic)
                found = window.read(topic, start, end)
            assert found is not None
            journal.judge(found, start, end)
        for group in self.groups:
            assert group.fetch_committed() >= group.committed
        acknowledged = sum(len(writer.written.acknowledged) for writer in self.writers)
        ended = sum(writer.progress for writer in self.writers if isinstance(writer, TransactionalWriter))
        print(f"{acknowledged} records acknowledged, {ended} transactions of librdkafka ended; errors: {met}")
        assert met == {}
