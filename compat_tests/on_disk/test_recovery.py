"""A node that is killed with much to recover: partitions become available one by one, and clients simply wait.

Stock clients run all the time: Apache Kafka's own verifiable producer and consumer, and librdkafka. None of them may
get an error, lose a record or read one twice.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from compat_tests.conftest import FreshBroker
from compat_tests.node import Node
from compat_tests.topics import Topics
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from testkit import needs
from testkit.clients import PATIENCE_S, wait_until
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import tool_command
from testkit.ports import steady_port
from testkit.programs import Worker

PARTITIONS = 10
VALUE_BYTES = 1000
NOT_LEADER_OR_FOLLOWER = 6
TOOLS = "org.apache.kafka.tools"
# One log after the other, so that intermediate states are visible.
CONFIG = {"num.recovery.threads.per.data.dir": "1"}


def fill(node: Node, topic: str, megabytes: int) -> int:
    """Write records to all partitions; returns their number."""
    failed: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 200_000, "log_level": 0}
    )
    value = os.urandom(VALUE_BYTES)
    count = megabytes * 1_000_000 // VALUE_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed
    return count


def errors(wire: Wire, topic: str) -> list[int]:
    """Return the error of ListOffsets for each partition."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
    answer = wire.call(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]), 7)
    found = sorted(answer.topics[0].partitions, key=lambda partition: partition.partition_index)
    return [partition.error_code for partition in found]


def come_back(node: Node, topic: str) -> list[set[int]]:
    """Ask until every partition serves; returns the sets of serving partitions, in the order of time."""
    wire = Wire(node.bootstrap)
    seen: list[set[int]] = []

    deadline = time.monotonic() + 300
    while not seen or len(seen[-1]) < PARTITIONS:
        assert time.monotonic() < deadline, seen
        found = errors(wire, topic)
        assert set(found) <= {0, NOT_LEADER_OR_FOLLOWER}
        served = {index for index, error in enumerate(found) if not error}
        if not seen or seen[-1] != served:
            seen.append(served)
    wire.close()
    return seen


@pytest.mark.parametrize(
    "megabytes", [50, pytest.param(1000, marks=[pytest.mark.long(amount="1 GB"), pytest.mark.timeout(900)])]
)
def test_partitions_come_back_one_by_one_while_clients_wait(
    fresh_broker: FreshBroker, against: str, megabytes: int, tmp_path: Path
) -> None:
    node = fresh_broker(CONFIG, port=steady_port())
    topics = Topics(node.bootstrap)
    topic, verified = topics.create(partitions=PARTITIONS), topics.create(partitions=2)
    count = fill(node, topic, megabytes)
    reader = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": f"group-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}

    def poll() -> int:
        for message in reader.consume(1000, 0.2):
            error = message.error()
            # A broken connection is no error for an application that waits.
            assert error is None or error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN, error
            if error is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                read[partition].append(offset)
        return sum(map(len, read.values()))

    to_write = 3000
    # With its defaults the verifiable producer never retries, unlike any application that waits.
    patient = tmp_path / "producer.properties"
    patient.write_text("retries=2147483647\n")
    writer = Worker(
        "writer",
        tool_command(
            f"{TOOLS}.VerifiableProducer",
            [
                "--bootstrap-server", node.bootstrap, "--topic", verified, "--max-messages", str(to_write),
                "--throughput", "500", "--acks", "-1", "--command-config", str(patient),
            ],
        ),
        tmp_path / "writer.log",
        lambda event: None,
    )  # fmt: skip
    member = Worker(
        "member",
        tool_command(
            f"{TOOLS}.VerifiableConsumer",
            [
                "--bootstrap-server", node.bootstrap, "--topic", verified, "--group-id", f"group-{verified}",
                "--max-messages", str(to_write), "--reset-policy", "earliest",
            ],
        ),
        tmp_path / "member.log",
        lambda event: None,
    )  # fmt: skip

    def named(worker: Worker, name: str) -> int:
        return sum(event["name"] == name for event in list(worker.events))

    try:
        wait_until(lambda: named(writer, "producer_send_success") > 500, "the verifiable producer is at work")
        wait_until(lambda: named(member, "records_consumed") > 0, "the verifiable consumer is at work")
        wait_until(lambda: poll() > count // 10, "librdkafka reads")
        node.kill()
        # Whatever was flushed in the meantime, all of it has to be read again.
        (node.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        node.start()
        seen = come_back(node, topic)
        wait_until(lambda: poll() == count, "librdkafka has read everything", timeout_s=300)
        assert writer.wait(240) == 0, writer.tail()
        assert member.wait(240) == 0, member.tail()
    finally:
        reader.close()
        for worker in (writer, member):
            if worker.alive():
                worker.kill()
    assert all(offsets == list(range(len(offsets))) for offsets in read.values())
    assert named(writer, "producer_send_error") == 0
    assert named(writer, "producer_send_success") == to_write
    if against == "pykbroker":
        # Never fewer than before, and some served while others did not.
        assert all(before < after for before, after in pairwise(seen)), seen
        assert any(0 < len(served) < PARTITIONS for served in seen), seen
        log = node.tail(2000)
        assert re.search(r"Recovering the logs in \S+, which was not shut down cleanly: \d+ logs", log)
        assert len(set(re.findall(rf"Partition ({topic}-\d+): checked \d+ batches", log))) == PARTITIONS


def test_a_terminal_shows_a_bar_and_a_file_does_not(fresh_broker: FreshBroker, against: str) -> None:
    if against != "pykbroker":
        pytest.skip("Apache Kafka has no bar")
    node = fresh_broker(CONFIG)
    fill(node, Topics(node.bootstrap).create(partitions=PARTITIONS), 30)
    node.kill()
    command = [*needs.node_command(), "start", "--port", "0", "--data-dir", str(node.data_dir)]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    screen = b""
    try:
        while b"Recovered the logs" not in screen:
            screen += os.read(ours, 1 << 16)
        # Nothing of it is left under the log.
        while screen.rfind(b"Recovering logs [") > screen.rfind(b"\r\x1b[K"):
            screen += os.read(ours, 1 << 16)
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours)
    assert b"\r\x1b[KRecovering logs [" in screen
    # The test's own nodes write their log to a file.
    node.start()
    assert "Recovering logs [" not in node.tail(2000)
