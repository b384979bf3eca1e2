"""The work of clients on a node before, between and after handovers: writing, committing, changing topics; and the
results that each owner must return for work on the previous one.

A `Life` remembers what its clients remember: sequences of an idempotent producer, offsets that a group has read.
"""

from __future__ import annotations

import random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from compat_tests.on_disk.estate import Asker, Inventory, inventory
from compat_tests.on_disk.home import Home
from compat_tests.python.confluent_client import ConfluentClient, ConfluentMember
from compat_tests.topics import Topics
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, PATIENCE_S, Record, wait_until

CLASSIC, MODERN = "classic-group", "consumer-group"
#: Written one after another by the same owner, and the state in which each is left.
COMMITTED, ABORTED, OPEN = "tx-committed", "tx-aborted", "tx-open"
MANY = 50
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(1 << 20)}


class Idempotent:
    """An idempotent producer of one partition that remembers its last batch."""

    def __init__(self, asker: Asker, topic: str) -> None:
        self.topic = topic
        answer = asker.until(lambda: _initialised(asker), "a producer id")
        self.producer_id, self.epoch = answer
        self.next_sequence = 0
        self.last: tuple[bytes, int] = (b"", -1)

    def send(self, asker: Asker, count: int = 3, *, skip: int = 0) -> ErrorCode:
        first = self.next_sequence + skip
        records = [(b"k%d" % i, b"s%d" % i, (), NOW_MS + i) for i in range(first, first + count)]
        batch = build_batch(records, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=first)
        code, offset = self._produce(asker, batch)
        if code is ErrorCode.NONE:
            self.last = (batch, offset)
            self.next_sequence = first + count
        return code

    def repeat(self, asker: Asker) -> tuple[ErrorCode, int]:
        return self._produce(asker, self.last[0])

    def _produce(self, asker: Asker, batch: bytes) -> tuple[ErrorCode, int]:
        topic_id = bytes.fromhex(asker.topics()[self.topic][0])
        data = [TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)])]
        answer = asker.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data))
        (done,) = answer.responses[0].partition_responses
        return ErrorCode(done.error_code), done.base_offset


def _initialised(asker: Asker) -> tuple[int, int] | None:
    answer = asker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    return None if answer.error_code else (answer.producer_id, answer.producer_epoch)


#: Features that an owner may not serve.
TRANSACTIONS, MODERN_GROUPS = "transactions", "consumer protocol"
EVERYTHING = frozenset({TRANSACTIONS, MODERN_GROUPS})


class Life:
    """`serves`: the features of the first owner. `compressible`: large values are all the same."""

    def __init__(
        self,
        home: Home,
        *,
        records: int = 60,
        serves: frozenset[str] = EVERYTHING,
        compressible: bool = False,
    ) -> None:
        self.home = home
        self.serves = serves
        self.compressible = compressible
        self.client = ConfluentClient(batch_bytes=20_000)
        self.per_codec = records
        self.rng = random.Random(11)
        self.round = 0
        self.read = dict.fromkeys(self.groups, 0)
        self.producer_ids: set[int] = set()
        self.idempotent: Idempotent | None = None

    @property
    def groups(self) -> list[str]:
        return [CLASSIC, MODERN] if MODERN_GROUPS in self.serves else [CLASSIC]

    @property
    def transactional_ids(self) -> list[str]:
        return [COMMITTED, ABORTED, OPEN] if TRANSACTIONS in self.serves else []

    # -- what is found

    def inventory(self) -> Inventory:
        return inventory(self.home.bootstrap, groups=[*self.groups, "admin"], transactional_ids=self.transactional_ids)

    @staticmethod
    def compacted() -> list[str]:
        return ["compacted"]

    # -- what is done

    def settle(self) -> None:
        """Create every topic, and write into each for the first time."""
        topics = Topics(self.home.bootstrap)
        for codec in ALL_COMPRESSIONS:
            topics.create(name=codec, partitions=2)
        topics.create(name="many", partitions=MANY)
        topics.create(name="small", config=SMALL_SEGMENTS)
        topics.create(name="compacted", config=COMPACTED)
        topics.create(name="trimmed", config=SMALL_SEGMENTS)
        topics.create(
            name="configured", partitions=3, config={"retention.ms": "1234567890", "max.message.bytes": "2000000"}
        )
        topics.create(name="transacted", partitions=2)
        topics.create(name="sequences")
        topics.create(name="groups", partitions=3)
        topics.create(name="doomed-0", partitions=2)
        self._write(topics)
        with_asker(self.home, self._begin_sequences)
        if TRANSACTIONS in self.serves:
            self._transact()
        self._commit_groups()

    def _begin_sequences(self, asker: Asker) -> None:
        self.idempotent = Idempotent(asker, "sequences")
        assert self.idempotent.producer_id not in self.producer_ids
        self.producer_ids.add(self.idempotent.producer_id)
        for _ in range(7):
            assert self.idempotent.send(asker) is ErrorCode.NONE

    def go_on(self) -> None:
        """Check this owner's answers for clients of the previous one; then write more of everything, and make
        changes."""
        topics = Topics(self.home.bootstrap)
        with_asker(self.home, self._continue_sequences)
        self._finish_transactions()
        self._read_on()
        self._write(topics)
        with_asker(self.home, self._begin_sequences)
        self._transact()
        self._commit_groups()
        self._change(topics)

    def _continue_sequences(self, asker: Asker) -> None:
        known = self.idempotent
        assert known is not None
        assert known.repeat(asker) == (ErrorCode.NONE, known.last[1]), "a repetition is told where it was written"
        assert known.send(asker, skip=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert known.send(asker) is ErrorCode.NONE
        assert known.repeat(asker) == (ErrorCode.NONE, known.last[1])

    def _write(self, topics: Topics) -> None:
        number = self.round
        for codec in ALL_COMPRESSIONS:
            written = self._records(self.per_codec, 2)
            self.client.produce(self.home.bootstrap, codec, written, compression=codec, idempotent=number % 2 == 0)
        self.client.produce(
            self.home.bootstrap, "many", [Record(b"%d" % number, b"%d" % i, (), NOW_MS + i, i) for i in range(MANY)]
        )
        large = [Record(b"%d" % i, self._large(20_000), (), NOW_MS + i) for i in range(110)]
        fast, small = ("none", "none") if self.compressible else ("lz4", "zstd")
        for topic in ("small", "trimmed"):
            self.client.produce(self.home.bootstrap, topic, large, compression=fast, idempotent=True)
        keyed = [Record(b"k%d" % (i % 10), self._large(10_000), (), NOW_MS + i) for i in range(220)]
        gone = [Record(b"k3", None, (), NOW_MS + 300)]
        self.client.produce(self.home.bootstrap, "compacted", keyed + gone, compression=small)
        self.client.produce(self.home.bootstrap, "groups", self._records(30, 3))
        self.client.produce(self.home.bootstrap, f"doomed-{number}", self._records(4, 2))
        upto = 50 + 110 * number  # in the newest segment but one
        done = topics.admin.delete_records([ClientPartition("trimmed", 0, upto)])
        assert [future.result(30).low_watermark for future in done.values()] == [upto]
        files = [path / "log-start-offset-checkpoint" for path in self.home.log_dirs]
        wait_until(
            lambda: any(f"trimmed 0 {upto}\n" in path.read_text() for path in files if path.exists()),
            "the log start is durable",
        )

    def _large(self, size: int) -> bytes:
        return b"large" * (size // 5) if self.compressible else self.rng.randbytes(size)

    def _records(self, count: int, partitions: int) -> list[Record]:
        made = []
        for i in range(count):
            key = (None, b"", b"key-%d" % i)[i % 3]
            value = b"x" * self.rng.randrange(200) + self.rng.randbytes(self.rng.randrange(200)) if i % 7 else b""
            headers = ((), (("trace", b"\x00\xff"), ("trace", b"again")), (("größe", None),))[i % 3]
            made.append(Record(key, value, headers, NOW_MS + self.rng.randrange(60_000), i % partitions))
        return made

    def _transact(self) -> None:
        for name, commit in ((COMMITTED, True), (ABORTED, False)):
            self.client.transact(
                self.home.bootstrap, "transacted", name, [(commit, self._records(6, 2)), (commit, self._records(2, 2))]
            )
        # The transaction stays open over the handovers of a slow machine, and not only for the default of a minute.
        producer = Producer(
            {
                "bootstrap.servers": self.home.bootstrap,
                "transactional.id": OPEN,
                "transaction.timeout.ms": 900_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for record in self._records(4, 2):
            producer.produce("transacted", key=record.key, value=record.value, partition=record.partition)
        assert producer.flush(PATIENCE_S) == 0

    def _finish_transactions(self) -> None:
        """Check that the open transaction is still open; a new producer with its id aborts it."""

        def stable(asker: Asker) -> list[int]:
            ends = [asker.offset_at("transacted", index, -1)[0] for index in range(2)]
            return [end - asker.offset_at("transacted", index, -1, committed=True)[0] for index, end in enumerate(ends)]

        assert all(with_asker(self.home, stable)), "a transaction is open in both partitions"
        self.client.transact(self.home.bootstrap, "transacted", OPEN, [(True, self._records(2, 2))])
        wait_until(lambda: not any(with_asker(self.home, stable)), "nothing is open any more")

    def _members(self) -> dict[str, ConfluentMember]:
        modern: dict[str, Any] = {
            "group.protocol": "consumer",
            "session.timeout.ms": None,
            "heartbeat.interval.ms": None,
        }
        options = {CLASSIC: {"session.timeout.ms": "10000"}, MODERN: modern}
        return {group: ConfluentMember(self.home.bootstrap, "groups", group, **options[group]) for group in self.groups}

    def _commit_groups(self) -> None:
        """Both groups read to the end, commit and leave."""
        self._read_on(commit_admin=True)

    def _read_on(self, *, commit_admin: bool = False) -> None:
        """Read the rest: nothing twice, and nothing left out."""
        total = sum(part.end for part in with_asker(self.home, group_ends))
        members = self._members()
        for group, member in members.items():
            wanted = total - self.read[group]
            wait_until(
                lambda m=member, n=wanted: len(m.records()) >= n and m.partitions(),  # type: ignore[misc]
                f"{group} has read {wanted}",
            )
        for group, member in members.items():
            member.leave()
            assert len(member.records()) == total - self.read[group], group
            self.read[group] = total
        if commit_admin:
            commit_for("admin", self.home.bootstrap, total)

    def _change(self, topics: Topics) -> None:
        admin = topics.admin
        topics.delete(f"doomed-{self.round}")
        self.round += 1
        topics.create(name=f"doomed-{self.round}", partitions=2)
        known = len(admin.list_topics("configured", timeout=30).topics["configured"].partitions)
        done = admin.create_partitions([NewPartitions("configured", known + 2)], operation_timeout=30)
        done["configured"].result(60)
        change = ConfigEntry("retention.ms", str(10**9 + self.round), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "configured", incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        wait_until(lambda: topics.led("configured", known + 2), "the new partitions are led")
        self.client.produce(self.home.bootstrap, "configured", self._records(known + 2, known + 2))


class _End:
    def __init__(self, end: int) -> None:
        self.end = end


def group_ends(asker: Asker) -> list[_End]:
    return [_End(asker.offset_at("groups", index, -1)[0]) for index in range(3)]


def commit_for(group: str, bootstrap: str, number: int, topic: str = "groups") -> None:
    """Commit offsets of a group without members, with metadata."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        parts = [ClientPartition(topic, 1, number, metadata=f"número {number}")]

        def is_committed() -> bool:
            try:
                consumer.commit(offsets=parts, asynchronous=False)
            except KafkaException as error:
                # librdkafka tells its application that the coordinator of Apache Kafka loads.
                if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                return False
            return True

        wait_until(is_committed, f"{group} has committed {number}")
    finally:
        consumer.close()


def with_asker(home: Home, what: Any) -> Any:
    asker = Asker(home.bootstrap)
    try:
        return what(asker)
    finally:
        asker.close()
