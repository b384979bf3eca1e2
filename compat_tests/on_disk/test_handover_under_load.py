"""One directory, two brokers, and a SIGKILL while a client writes: the other broker has every acknowledged record."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Message, Producer

from compat_tests.on_disk.dumps import verified
from compat_tests.on_disk.estate import inventory
from compat_tests.on_disk.home import Home, Owner
from compat_tests.on_disk.life import SMALL_SEGMENTS
from compat_tests.on_disk.test_handover import CONFIG, OTHER
from compat_tests.topics import Topics
from testkit import needs
from testkit.clients import wait_until
from testkit.oracle.kafka import kafka_libs


@pytest.fixture(autouse=True)
def _judge() -> None:
    needs.java()
    kafka_libs()


class _Load:
    """An idempotent producer that writes until the broker is gone, and keeps the acknowledged records."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.sent: list[list[bytes]] = [[], []]
        self._stop = threading.Event()
        settings = {"enable.idempotence": True, "linger.ms": 1, "batch.size": 2_000, "compression.type": "lz4"}
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number
            try:
                self._producer.produce("load", value, partition=number % 2, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.01)
                continue
            self.sent[number % 2].append(value)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            self.acknowledged[message.partition() or 0, offset] = value

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", ["pykbroker", pytest.param("kafka", marks=pytest.mark.long(amount="one kill under load"))]
)
def test_a_kill_in_the_middle_of_load_loses_nothing_for_the_other(first: Owner) -> None:
    """Every acknowledged record is there, and all records are those that were sent, in their order and once."""
    with Home(CONFIG) as home:
        home.format(first)
        home.start(first)
        Topics(home.bootstrap).create(name="load", partitions=2, config=SMALL_SEGMENTS)
        owner = first
        for enough in (3_000, 6_000):
            load = _Load(home.bootstrap)
            before = inventory(home.bootstrap)
            wait_until(lambda load=load, n=enough: len(load.acknowledged) > n, "some thousand are stored")  # type: ignore[misc]
            home.kill()
            load.end()
            owner = OTHER[owner]
            home.start(owner)
            found = inventory(home.bootstrap)
            for partition in range(2):
                known = before.partitions["load", partition].records
                stored = [record for record in found.partitions["load", partition].records if not record.is_control]
                assert stored[: len(known)] == known
                assert [record.offset for record in stored] == list(range(len(stored)))
                values = {record.offset: record.value for record in stored}
                told = {at: value for (where, at), value in load.acknowledged.items() if where == partition}
                assert told.items() <= values.items(), f"{owner} lacks what was acknowledged"
                first_told = min(told)
                new = [record.value for record in stored if record.offset >= first_told]
                start = load.sent[partition].index(new[0] or b"")
                assert new == load.sent[partition][start : start + len(new)]
        home.stop()
        assert verified(home.log_dirs) == ""
