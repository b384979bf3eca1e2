"""Three nodes go one by one from an earlier build to this one under load, then back, and then forward again.

librdkafka and the Java client work during this time, with their defaults. No application receives an error, and what
was acknowledged is read once. With `--against apache-kafka` the nodes of Apache Kafka are restarted in the same way.

One error is counted and forgiven if the earlier build or Apache Kafka may have answered, namely the answer to a commit
that its coordinator loads. This build lets the commit wait for the load (pykbroker/coordinator/held_requests.py).

Short transactions of Java get errors on three nodes of the earlier build even without a restart. So they begin when the
nodes have come to this build, and then the nodes are restarted once more with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compat_tests.exactly_once.short_transactions import Task, Transactions
from compat_tests.exactly_once.three_nodes import NUMBERS, REPLICATED
from compat_tests.mixed_cluster.members import Cluster, Kind, Member
from compat_tests.upgrade.builds import earlier
from testkit.clients import wait_until
from testkit.oracle.kafka import kafka_libs, tool_command
from testkit.programs import Worker
from testkit.torture.clients import ANSWER_S, Client, Group, TransactionalWriter, Window, Writer, go_on
from testkit.torture.journal import Journal

#: The build before a node had two event loops, and before its directory kept the sign of a clean stop.
EARLIER = "e61dd17"
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
#: One topic for each node, which leads it.
PLAIN = {number: f"plain-{number}" for number in NUMBERS}
COMMITTED = {number: f"committed-{number}" for number in NUMBERS}
#: The topic of the Java clients.
JAVA = "java"
PAUSE_S = 0.03
TOOLS = "org.apache.kafka.tools"


class JavaLoad:
    """VerifiableProducer, with the client's default number of retries, and VerifiableConsumer in a group."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        cluster.create(JAVA, *([number, *(other for other in NUMBERS if other != number)] for number in NUMBERS))
        self._bootstrap = cluster.bootstrap
        retries = folder / "producer.properties"
        retries.write_text("retries=2147483647\n")
        self._producer = self._worker(
            folder, "VerifiableProducer", "--throughput", "300", "--acks", "-1", "--command-config", str(retries)
        )
        self._consumer = self._worker(
            folder, "VerifiableConsumer", "--group-id", "java", "--reset-policy", "earliest", "--verbose"
        )

    def _worker(self, folder: Path, main: str, *words: str) -> Worker:
        command = ["--bootstrap-server", self._bootstrap, "--topic", JAVA, *words]
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
        self._producer.terminate()
        self._producer.wait()
        written = self.acknowledged()
        wait_until(lambda: len(self.read()) >= len(written), "the Java consumer has read everything")
        read = self.read()
        assert sorted(value for _, _, value in read) == sorted(written)
        for partition in range(len(NUMBERS)):
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
    """Clients of both kinds for each node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        for number in NUMBERS:
            for topic in (PLAIN[number], COMMITTED[number]):
                cluster.create(topic, [number, *(other for other in NUMBERS if other != number)])
        bootstrap = cluster.bootstrap
        self.journals = {
            **{topic: Journal(topic) for topic in PLAIN.values()},
            **{topic: Journal(topic, transactional=True) for topic in COMMITTED.values()},
        }
        once = {**DEFAULTS, "enable.idempotence": True}
        in_transactions = {**DEFAULTS, "transaction.timeout.ms": 60_000}
        self.writers: list[Writer] = [
            *(
                Writer(f"once-{topic}", bootstrap, self.journals[topic], topic, settings=once, pause_s=PAUSE_S)
                for topic in PLAIN.values()
            ),
            *(
                TransactionalWriter(
                    f"in-{topic}", bootstrap, self.journals[topic], topic, settings=in_transactions, pause_s=PAUSE_S
                )
                for topic in COMMITTED.values()
            ),
        ]
        self.groups = [
            Group(bootstrap, topic, f"{kind}-{topic}", {**OF_GROUPS, **settings})
            for topic in PLAIN.values()
            for kind, settings in (("classic", {}), ("consumer", BY_THE_BROKER))
        ]
        self.clients: list[Client] = [*self.writers, *self.groups]
        for client in self.clients:
            client.start()

    def goes_on(self) -> None:
        """Wait until each client has done something more."""
        go_on(self.clients, watched=self.clients)

    def forgive_loads(self) -> int:
        """Remove the commits that were answered with a coordinator that loads. Returns their number."""
        count = 0
        for client in self.clients:
            for error in [error for error in client.met if "COORDINATOR_LOAD_IN_PROGRESS" in error]:
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


@pytest.fixture
def cluster(against: str) -> Iterator[Cluster]:
    kafka_libs()
    kind: Kind = "kafka" if against == "apache-kafka" else "pykbroker"
    with Cluster({number: Member(kind) for number in NUMBERS}, settings=REPLICATED, directories=1) as cluster:
        try:
            yield cluster
        except BaseException:
            print(cluster.tails())
            raise


def goes_to(cluster: Cluster, number: int, build: Path | None) -> None:
    """Restart a node with a build, and make it lead its topics again."""
    cluster.stop(number)
    if build is None:
        cluster.pythons.pop(number, None)
    else:
        cluster.pythons[number] = build
    cluster.start(number)
    cluster.in_sync(*PLAIN.values(), *COMMITTED.values(), JAVA, "__consumer_offsets", "__transaction_state")
    for topics in (PLAIN, COMMITTED):
        cluster.move(topics[number], number)


@pytest.mark.long(amount="twelve restarts of three nodes: there, back, there again, and once more")
@pytest.mark.timeout(1200)
def test_no_client_is_told_of_an_upgrade_or_of_the_way_back(cluster: Cluster, against: str, tmp_path: Path) -> None:
    build = earlier(EARLIER)
    cluster.pythons = dict.fromkeys(NUMBERS, build)
    cluster.format()
    cluster.start_all()
    cluster.serving(*NUMBERS)
    load = Load(cluster)
    with closing(JavaLoad(cluster, tmp_path)) as java, closing(load):
        load.goes_on()
        wait_until(java.read, "the Java clients work")
        for next_build in (None, build, None):
            for number in NUMBERS:
                goes_to(cluster, number, next_build)
                load.goes_on()
        forgiven = load.forgive_loads()
        with closing(Transactions(cluster, Task(producers=3, records=6, seconds=20))) as transactions:
            for number in NUMBERS:
                goes_to(cluster, number, None)
                load.goes_on()
            outcome = transactions.end()
            transactions.check_records(outcome)
        if against == "apache-kafka":
            forgiven += load.forgive_loads()
        print(f"{forgiven} commits of librdkafka were told that their coordinator loads")
        load.finish()
        java.finish()
    print(f"{len(outcome.committed)} transactions of Java, errors {outcome.errors}, {outcome.fatal}")
    assert (outcome.errors, outcome.fatal, outcome.in_doubt) == ({}, {}, [])
    cluster.stop(*NUMBERS)
    assert not cluster.complaints()
