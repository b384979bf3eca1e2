"""The tests that every client must pass with the broker: one class, and one subclass per client in that client's
folder.

Every test asserts on the data: the records written are compared with those read, one by one, and a client of another
family also reads the records of one client.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest
from confluent_kafka import Producer

from compat_tests.flaky import FlakyProxy
from compat_tests.groups import GroupSuite
from compat_tests.node import Node
from compat_tests.topics import Topics
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, Client, ProduceError, Record, wait_until


def sample(count: int, partitions: int, writer: Client) -> list[Record]:
    """Return records of every shape: null, empty and long keys and values, no and many headers, half compressible."""
    rng = random.Random(7)
    records = []
    for i in range(count):
        key = (None, b"", b"key-%d" % i, rng.randbytes(20))[i % 4]
        mixed = b"x" * rng.randrange(1, 400) + rng.randbytes(rng.randrange(1, 400))
        value = (None, b"", mixed, b"value-%d" % i)[i % 5 % 4]
        if key is None and value is None and not writer.keyless_tombstones:
            key = b"tombstone"
        headers: tuple[tuple[str, bytes | None], ...] = (
            (),
            (("trace", b"\x00\xff"), ("trace", b"again")),
            (("größe", b""), ("none", None if writer.null_header_values else b"none")),
        )[i % 3]
        records.append(Record(key, value, headers, NOW_MS + i, i % partitions))
    return records


def by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return dict(found)


def assert_same(written: Sequence[Record], read: Sequence[Record]) -> None:
    """Check for the same records in the same order in each partition, with offsets dense from 0."""
    ours, theirs = by_partition(written), by_partition(read)
    assert sorted(ours) == sorted(theirs)
    for partition, records in ours.items():
        assert [record.content for record in theirs[partition]] == [record.content for record in records]
        assert [record.offset for record in theirs[partition]] == list(range(len(records)))


class ClientSuite(GroupSuite):
    """Subclasses define `client`; `other` is a client of another family that reads the records of this one."""

    @pytest.fixture
    def other(self) -> Client:
        from compat_tests.python.confluent_client import ConfluentClient

        return ConfluentClient()

    @pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
    @pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
    def test_every_compression_comes_back_exactly(
        self, client: Client, other: Client, broker: Node, topics: Topics, compression: str, idempotent: bool
    ) -> None:
        if compression not in client.compressions:
            pytest.skip(f"{client.name} has no {compression}")
        topic = topics.create(partitions=2)
        written = sample(120, 2, client)
        placed = client.produce(broker.bootstrap, topic, written, compression=compression, idempotent=idempotent)
        assert placed == [(i % 2, i // 2) for i in range(120)]
        assert_same(written, client.consume(broker.bootstrap, topic))
        assert_same(written, other.consume(broker.bootstrap, topic))

    def test_it_reads_what_another_client_wrote(
        self, client: Client, other: Client, broker: Node, topics: Topics
    ) -> None:
        topic = topics.create(partitions=1)
        written = sample(60, 1, other)
        for compression in client.compressions:
            other.produce(broker.bootstrap, topic, written, compression=compression, idempotent=True)
        assert_same(written * len(client.compressions), client.consume(broker.bootstrap, topic))

    def test_tombstones_survive_in_a_compacted_topic(self, client: Client, broker: Node, topics: Topics) -> None:
        topic = topics.create(partitions=1, config={"cleanup.policy": "compact"})
        written = [
            Record(b"a", b"1", (), NOW_MS),
            Record(b"a", None, (("why", b"gone"),), NOW_MS + 1),
            Record(b"b", b"", (), NOW_MS + 2),
            Record(b"", None, (), NOW_MS + 3),
        ]
        client.produce(broker.bootstrap, topic, written)
        assert_same(written, client.consume(broker.bootstrap, topic))

    def test_seek_by_time(self, client: Client, broker: Node, topics: Topics) -> None:
        topic = topics.create(partitions=2)
        written = [Record(None, b"%d" % i, (), NOW_MS + 1000 * i, i % 2) for i in range(40)]
        client.produce(broker.bootstrap, topic, written)

        def values(from_time_ms: int) -> list[int]:
            read = client.consume(broker.bootstrap, topic, from_time_ms=from_time_ms)
            return sorted(int(record.value or b"") for record in read)

        assert values(0) == list(range(40))
        assert values(NOW_MS + 25_000) == list(range(25, 40))
        assert values(NOW_MS + 24_001) == list(range(25, 40))
        assert values(NOW_MS + 39_000) == [39]
        assert values(NOW_MS + 39_001) == []

    def test_a_message_of_10_mb(self, client: Client, broker: Node, topics: Topics) -> None:
        topic = topics.create(partitions=1, config={"max.message.bytes": str(11 << 20)})
        payload = random.Random(1).randbytes(10 << 20)
        written = [
            Record(b"small", b"before", (), NOW_MS),
            Record(b"large", payload, (("size", b"10 MB"),), NOW_MS + 1),
            Record(b"small", b"after", (), NOW_MS + 2),
        ]
        client.produce(broker.bootstrap, topic, written, max_request_bytes=12 << 20)
        assert_same(written, client.consume(broker.bootstrap, topic))

    def test_a_message_larger_than_the_topic_allows_is_refused(
        self, client: Client, broker: Node, topics: Topics
    ) -> None:
        topic = topics.create(partitions=1, config={"max.message.bytes": "100000"})
        with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE"):
            client.produce(
                broker.bootstrap, topic, [Record(b"k", b"x" * 200_000, (), NOW_MS)], max_request_bytes=1 << 20
            )
        fits = [Record(b"k", b"x" * 50_000, (), NOW_MS)]
        client.produce(broker.bootstrap, topic, fits, max_request_bytes=1 << 20)
        assert_same(fits, client.consume(broker.bootstrap, topic))

    def test_a_thousand_partitions(self, client: Client, broker: Node, thousand_partitions: str) -> None:
        mine = f"{client.name}-".encode()
        written = [Record(mine + b"%d" % i, b"%d" % i, (), NOW_MS, i) for i in range(1000)]
        placed = client.produce(broker.bootstrap, thousand_partitions, written)
        assert [partition for partition, _ in placed] == list(range(1000))
        read = [
            record
            for record in client.consume(broker.bootstrap, thousand_partitions)
            if record.key is not None and record.key.startswith(mine)
        ]
        assert sorted((r.partition, r.offset, r.value) for r in read) == [
            (partition, offset, b"%d" % partition) for partition, offset in placed
        ]

    def test_a_lost_answer_leaves_no_duplicate_and_no_gap(self, client: Client, flaky: FlakyProxy) -> None:
        """The records were written and the client does not know it, so it sends them again, and they are stored
        once."""
        bootstrap = f"localhost:{flaky.port}"
        topic = Topics(bootstrap).create(partitions=2)
        for start in (0, 100):
            flaky.lose(2)
            batch = [Record(None, b"%d" % i, (), NOW_MS + i, i % 2) for i in range(start, start + 100)]
            placed = client.produce(bootstrap, topic, batch, idempotent=True)
            assert placed == [(i % 2, i // 2) for i in range(start, start + 100)]
            assert flaky.lost > 0, "an answer was lost"
        flaky.lose(0)
        everything = [Record(None, b"%d" % i, (), NOW_MS + i, i % 2) for i in range(200)]
        assert_same(everything, client.consume(bootstrap, topic))

    def test_aborted_and_undecided_transactions_are_not_for_read_committed(
        self, client: Client, other: Client, broker: Node, topics: Topics
    ) -> None:
        topic = topics.create(partitions=2)

        def some(name: str) -> list[Record]:
            return [Record(b"key", b"%s-%d" % (name.encode(), i), (), NOW_MS + i, i % 2) for i in range(10)]

        def contents(reader: Client, *, committed: bool) -> dict[int, list[bytes | None]]:
            read = by_partition(reader.consume(broker.bootstrap, topic, committed=committed))
            return {partition: [record.value for record in records] for partition, records in read.items()}

        def halves(*names: str) -> dict[int, list[bytes | None]]:
            written = by_partition(record for name in names for record in some(name))
            return {partition: [record.value for record in records] for partition, records in written.items()}

        steps = [(True, some("first")), (False, some("aborted")), (True, some("second")), (False, some("again"))]
        client.transact(broker.bootstrap, topic, f"id-{topic}", steps)
        undecided = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"undecided-{topic}"})
        undecided.init_transactions(30)
        undecided.begin_transaction()
        for record in some("undecided"):
            undecided.produce(topic, record.value, partition=record.partition)
        assert undecided.flush(30) == 0
        client.transact(broker.bootstrap, topic, f"id-{topic}", [(True, some("behind"))])

        for reader in (client, other):
            assert contents(reader, committed=True) == halves("first", "second")
            everything = halves("first", "aborted", "second", "again", "undecided", "behind")
            assert contents(reader, committed=False) == everything, "no marker is among them"
        undecided.commit_transaction(30)
        wait_until(
            lambda: contents(client, committed=True) == halves("first", "second", "undecided", "behind"),
            "what was decided is there, and what was behind it",
        )
