"""The lines that a node logs while its only disk is full and clients of every kind continue to send requests."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from compat_tests.topics import Topics
from testkit.clients import wait_until
from testkit.nodes.processes import Process, format_combined
from testkit.small_disk import small_disk

SECONDS = 120
#: One line a minute for each reason, the first one at once.
MOST_LINES = SECONDS // 60 + 1
TOPIC = "filled"
#: The parts that differ between lines of one reason, namely numbers and ids of members.
_NUMBER = re.compile(r"\d+|(?<=member )\S+")
_STAMP = re.compile(r"^\[[^\]]*\] ")

Stopping = Callable[[], bool]


def kinds(lines: list[str]) -> Counter[str]:
    """Count each line, whatever numbers it contains."""
    return Counter(_NUMBER.sub("N", _STAMP.sub("", line)) for line in lines)


def client(address: str) -> dict[str, str | int]:
    return {"bootstrap.servers": address, "log_level": 0}


def write(address: str, topic: str, size: int, stopping: Stopping) -> None:
    producer = Producer(client(address))
    while not stopping():
        # The client itself reports that a topic cannot be created.
        with suppress(BufferError, KafkaException):
            producer.produce(topic, bytes(size))
        producer.poll(0.02)
    producer.purge()


def read(address: str, protocol: str, stopping: Stopping) -> None:
    """Connect again and again. Each member asks for its coordinator, whose topic cannot be created."""
    while not stopping():
        consumer = Consumer({**client(address), "group.id": f"readers-{protocol}", "group.protocol": protocol})
        consumer.subscribe([TOPIC])
        consumer.consume(100, 2)
        with suppress(KafkaException, RuntimeError):
            consumer.commit(asynchronous=True)
        consumer.close()


def transact(address: str, stopping: Stopping) -> None:
    while not stopping():
        producer = Producer({**client(address), "transactional.id": "one"})
        with suppress(KafkaException):
            producer.init_transactions(5)
            while not stopping():
                producer.begin_transaction()
                producer.produce(TOPIC, b"in a transaction")
                producer.commit_transaction(5)
                time.sleep(0.1)


@contextmanager
def at_work(*work: Callable[[Stopping], None]) -> Iterator[None]:
    """Run each function in a thread of its own while the block runs."""
    over = threading.Event()
    threads = [threading.Thread(target=each, args=(over.is_set,), daemon=True) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.long(amount="two minutes of a full disk")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_full_first", [True, False], ids=["before coordinators", "after coordinators"])
def test_a_full_disk_is_told_once_a_minute(tmp_path: Path, is_full_first: bool) -> None:
    """If `is_full_first`, the topics of the coordinators do not exist yet, and can no longer be created."""
    with small_disk(tmp_path / "small", "24m") as disk:
        properties = format_combined(
            tmp_path, {"log.dirs": disk / "data", "offsets.topic.num.partitions": 5, "log.cleaner.backoff.ms": 500}
        )
        with Process(tmp_path / "log", str(properties)).ready() as process:
            address = process.address
            Topics(address).create(name=TOPIC)

            def is_full() -> bool:
                return "the disk is full" in process.log.read_text()

            readers = (
                lambda stopping: read(address, "classic", stopping),
                lambda stopping: read(address, "consumer", stopping),
                lambda stopping: transact(address, stopping),
            )
            writers = (
                lambda stopping: write(address, TOPIC, 100_000, stopping),
                lambda stopping: write(address, TOPIC, 10, stopping),
            )
            first, then = (writers, readers) if is_full_first else (readers, writers)
            with at_work(*first):
                if is_full_first:
                    wait_until(is_full, "the disk is full")
                else:
                    wait_until(lambda: "__transaction_state" in process.log.read_text(), "the coordinators have topics")
                with at_work(*then, lambda stopping: write(address, "new", 10, stopping)):
                    wait_until(is_full, "the disk is full")
                    at = len(process.log.read_text())
                    time.sleep(SECONDS)
                    lines = process.log.read_text()[at:].splitlines()
            assert process.interrupt() == 0
        counts = kinds(lines)
        print("\n".join(f"{count:4} {line[:200]}" for line, count in counts.most_common(15)))
        assert {line: count for line, count in counts.items() if count > MOST_LINES} == {}
