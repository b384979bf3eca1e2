"""The clients that the torture runs during the kills, namely writers, readers at the tail, and a group that commits.

Each client is a thread around a librdkafka client. It enters what it sends, what is answered and what it reads into a
journal. A failure ends the thread and stays in `failure` until the test reads it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testkit.clients import wait_until
from testkit.torture.attempts import SAYS_ITS_REQUESTS, listening
from testkit.torture.epochs import SAYS_ITS_EPOCHS
from testkit.torture.journal import Found, Journal, Transaction, Written, value_of

#: Longer than any of these runs, so that no record is given up because the broker was away.
_FOR_EVER_MS = 2**31 - 1
#: For a producer that is not idempotent, because a request that its client gave up may still be appended after later
#: ones. These are librdkafka's highest values, longer than anything here waits.
_NEVER_GIVEN_UP = {"request.timeout.ms": 900_000, "socket.timeout.ms": 300_000}
_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 4}
#: Records of one writer that are written and not yet answered.
_MAX_WAITING = 400
#: The limit for an answer. A node that shares its processor with twenty others once had two seconds of it in twenty. A
#: node that hangs does so for longer.
ANSWER_S = 180.0


def offset_of(message: Message) -> int:
    """The offset of a record or of a partition's end; both have one."""
    offset = message.offset()
    assert offset is not None
    return offset


def delivery_report(journal: Journal, written: Written, number: int) -> Callable[[KafkaError | None, Message], None]:
    """Return a function that enters the answer to a writer's record into the journal. It raises KafkaException if the
    record was given up."""

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        # None if only a later answer proves that the record was written.
        offset = message.offset()
        with journal.lock:
            written.acknowledged[number] = -1 if offset is None else offset

    return report


class Client(threading.Thread):
    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.failure: BaseException | None = None
        #: errors that the application of the client received, and after which it continued
        self.met: list[str] = []
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            self.work(self._stopping.is_set)
        except BaseException as error:  # noqa: BLE001  # it is raised where somebody looks
            error.add_note(f"in {self.name}")
            self.failure = error

    def work(self, stopping: Callable[[], bool]) -> None:
        raise NotImplementedError

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    @property
    def progress(self) -> int:
        """A number that grows with each answer."""
        raise NotImplementedError


def go_on(clients: Iterable[Client], watched: Iterable[Client]) -> None:
    """Wait until each of `clients` gets an answer again, and raise the failure of any of `watched`."""
    waiting = {client: client.progress for client in clients}

    def all_went_on() -> bool:
        for client in watched:
            client.check()
        for client in [client for client, before in waiting.items() if client.progress > before]:
            del waiting[client]
        return not waiting

    try:
        wait_until(all_went_on, "every client goes on", timeout_s=ANSWER_S)
    except AssertionError as error:
        error.add_note(f"no answers for {[client.name for client in waiting]}")
        raise


class Writer(Client):
    """Writes numbered records into one partition, in bursts, and records which of them were acknowledged."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        journal: Journal,
        topic: str,
        *,
        settings: Mapping[str, Any],
        keys: int = 0,
        seed: int = 0,
        pause_s: float = 0.0,
        says_its_requests: bool = True,
    ) -> None:
        """`pause_s` is the time between two bursts. With `says_its_requests` a client that is not idempotent records in
        the journal what it sends, so that order and repeats are judged. That makes it a client of one broker
        (attempts.py)."""
        super().__init__(f"writer {name}", bootstrap)
        #: the time between two bursts
        self.pause_s = pause_s
        self.journal = journal
        self.topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "message.timeout.ms": _FOR_EVER_MS,
            "linger.ms": 2,
            "batch.num.messages": 20,
            **_QUICK,
            **settings,
        }
        self.written = journal.writer(
            name, exactly_once="enable.idempotence" in settings, is_accounted=says_its_requests, keys=keys
        )
        self._says = says_its_requests and not self.written.exactly_once
        if self._says:
            self._settings |= {**_NEVER_GIVEN_UP, **SAYS_ITS_REQUESTS, **settings}
        self._rng = random.Random(f"{seed} {name}")

    @property
    def progress(self) -> int:
        return len(self.written.acknowledged)

    def _producer(self) -> Producer:
        if self._says:
            return Producer(self._settings, logger=listening(self.name, self.written.account))
        if self.written.exactly_once:
            settings = {**self._settings, **SAYS_ITS_EPOCHS}
            return Producer(settings, logger=listening(self.name, self.written.repeats))
        return Producer(self._settings)

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        return delivery_report(self.journal, self.written, number)

    def _send(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            number = self.written.sent
            with self.journal.lock:
                self.written.sent += 1
            producer.produce(
                self.topic,
                partition=0,
                key=self.written.key(number),
                value=value_of(self.written.name, number),
                on_delivery=self._delivered(number),
            )

    def work(self, stopping: Callable[[], bool]) -> None:
        producer = self._producer()
        while not stopping():
            if len(producer) < _MAX_WAITING:
                self._send(producer, self._rng.choice([1, 1, 1, 5, 20, 40]))
            producer.poll(self._rng.choice([0.01, 0.03, 0.1]))
            self._stopping.wait(self.pause_s)
        left = producer.flush(ANSWER_S)
        assert left == 0, f"{self.name}: {left} records were never answered"


class TransactionalWriter(Writer):
    """Commits and aborts in turn. It records no outcome for a transaction whose end was not reported to it."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        journal: Journal,
        topic: str,
        *,
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        pause_s: float = 0.0,
    ) -> None:
        # A transaction that its producer lost is given up soon, because it holds readers up.
        wanted = {"transaction.timeout.ms": 3000, **(settings or {})}
        own = {"enable.idempotence": True, "transactional.id": name}
        super().__init__(name, bootstrap, journal, topic, settings={**wanted, **own}, seed=seed, pause_s=pause_s)
        del self._settings["message.timeout.ms"]
        self.done = journal.transactions[name] = []

    @property
    def progress(self) -> int:
        return sum(transaction.outcome is not None for transaction in list(self.done))

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        def report(error: KafkaError | None, message: Any) -> None:
            pass  # the transaction's end is the answer

        return report

    def work(self, stopping: Callable[[], bool]) -> None:
        producer: Producer | None = None
        while not stopping():
            try:
                if producer is None:
                    producer = Producer(self._settings)
                    producer.init_transactions(20)
                self._transact(producer)
                self._stopping.wait(self.pause_s)
            except KafkaException as error:
                producer = self._after(error, producer)

    def _transact(self, producer: Producer) -> None:
        producer.begin_transaction()
        with self.journal.lock:
            transaction = Transaction(self.written.sent)
            self.done.append(transaction)
        try:
            self._send(producer, self._rng.randrange(1, 30))
        finally:
            transaction.end = self.written.sent
        if self._rng.random() < 0.3:
            producer.flush(20)
            producer.abort_transaction(20)
            transaction.outcome = False
        else:
            producer.commit_transaction(20)
            transaction.outcome = True

    def _after(self, error: KafkaException, producer: Producer | None) -> Producer | None:
        """Return the producer that continues, or None if there is none."""
        what: KafkaError = error.args[0]
        self.met.append(str(what))
        if what.txn_requires_abort() and producer is not None:
            try:
                producer.abort_transaction(20)
                return producer
            except KafkaException:
                pass
        return None


class Reader(Client):
    """Reads a partition from the beginning up to the tail, along the tail for a while, and then again."""

    def __init__(self, bootstrap: str, journal: Journal, topic: str, *, committed: bool = False, seed: int = 0) -> None:
        super().__init__(f"reader of {topic}", bootstrap)
        self.journal = journal
        self.topic = topic
        self.count = 0
        self._committed = committed
        self._rng = random.Random(f"{seed} {topic}")

    def work(self, stopping: Callable[[], bool]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reads-and-never-commits",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "isolation.level": "read_committed" if self._committed else "read_uncommitted",
                **_QUICK,
            }
        )
        try:
            while not stopping():
                consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
                self._read(consumer, self._rng.randrange(500, 20_000), stopping)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, count: int, stopping: Callable[[], bool]) -> None:
        last = -1
        while count > 0 and not stopping():
            # Do not read all at once, because the broker uses the same machine.
            self._stopping.wait(0.05)
            for message in consumer.consume(200, timeout=0.1):
                if message.error() is not None:
                    continue  # the broker is away
                record = Found(offset_of(message), message.key(), message.value())
                with self.journal.lock:
                    if record.offset <= last:
                        raise self.journal.violated(f"a reader got {record.offset} after {last}")
                    self.journal.see(record)
                last = record.offset
                count -= 1
                self.count += 1


class Group(Client):
    """The only member of a group, which reads and commits. A committed offset never goes back."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, settings: Mapping[str, str | None] | None = None
    ) -> None:
        """`settings` are those of librdkafka, and override what is set here; None removes a key."""
        super().__init__(f"group {group}", bootstrap)
        self.topic = topic
        self.group = group
        self.committed = -1
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            **_QUICK,
        }
        wanted = {**self._settings, **(settings or {})}
        self._settings = {key: value for key, value in wanted.items() if value is not None}

    @property
    def progress(self) -> int:
        return self.committed

    def work(self, stopping: Callable[[], bool]) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self.topic])
        try:
            while not stopping():
                messages = []
                for message in consumer.consume(50, timeout=0.05):
                    if message.error() is None:
                        messages.append(message)
                    else:
                        self.met.append(str(message.error()))
                if messages:
                    self._commit(consumer, max(offset_of(message) for message in messages) + 1)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, offset: int) -> None:
        try:
            done = consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        except KafkaException as error:
            self.met.append(str(error.args[0]))
            return
        if done and done[0].error is None:
            # A member that was away too long begins again at the offset that the broker has, never before the
            # acknowledged one.
            assert offset > self.committed, f"{self.group} was sent back from {self.committed} to before {offset}"
            self.committed = offset

    def fetch_committed(self) -> int:
        """Return the committed offset from the broker, asked by another client than the member, or -1 if there is
        none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, **_QUICK})
        try:
            # If nothing was committed, librdkafka answers with a large negative number.
            return max(-1, int(consumer.committed([TopicPartition(self.topic, 0)], timeout=ANSWER_S)[0].offset))
        finally:
            consumer.close()


class Window:
    """Reads from outside the bounds of partitions, and any stretch of their records."""

    def __init__(self, bootstrap: str, *, committed: bool = False) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "looks-and-never-commits",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                **_QUICK,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def bounds(self, topic: str) -> tuple[int, int]:
        """Return the log start and the end (or the last stable offset)."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
                return int(low), int(high)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def read(self, topic: str, start: int, end: int, *, patience_s: float = ANSWER_S) -> list[Found] | None:
        """Return the records in [start, end), or None if the log now begins after `start`. It may take any time, as
        long as a record comes every `patience_s`."""
        found: list[Found] = []
        if start >= end:
            return found
        deadline = time.monotonic() + patience_s
        self._consumer.assign([TopicPartition(topic, 0, start)])
        try:
            while time.monotonic() < deadline:
                messages = self._consumer.consume(1000, timeout=0.2)
                if any(message.error() is None for message in messages):
                    deadline = time.monotonic() + patience_s
                for message in messages:
                    error = message.error()
                    if error is None:
                        if offset_of(message) >= end:
                            return found
                        found.append(Found(offset_of(message), message.key(), message.value()))
                        if offset_of(message) == end - 1:
                            return found
                    elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                        return None
                    elif error.code() == KafkaError._PARTITION_EOF and offset_of(message) >= end:
                        return found
        finally:
            self._consumer.unassign()
        raise AssertionError(f"{topic}: {start} to {end} stopped for {patience_s} s after {len(found)}")
