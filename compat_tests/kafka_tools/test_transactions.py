"""kafka-transactions: an open transaction is listed, described, found as hanging, and aborted."""

from __future__ import annotations

import contextlib

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from compat_tests.conftest import FreshBroker
from compat_tests.differential.scripts import asking
from compat_tests.differential.session import Session
from compat_tests.kafka_tools.conftest import Tools, table
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record

COMMAND = "TransactionsCommand"


def committed_values(broker: Node, topic: str) -> list[bytes | None]:
    """Return the values that a consumer of committed records reads, up to the end of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the end of the partition did not come"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value())
    finally:
        consumer.close()


def test_an_open_transaction_is_seen_and_aborted(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    name = f"transaction-{topic}"
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions()
    ConfluentClient().produce(broker.bootstrap, topic, [Record(None, b"before", (), NOW_MS, 0)])
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()

    (seen,) = [row for row in table(tools.run(COMMAND, "list")) if row["TransactionalId"] == name]
    assert seen["TransactionState"] == "Ongoing"
    assert name in tools.run(COMMAND, "list", "--duration-filter", "0").split()
    assert name not in tools.run(COMMAND, "list", "--duration-filter", "3600000").split()
    assert name in tools.run(COMMAND, "list", "--transactional-id-pattern", f"transaction-{topic[:-1]}.*").split()

    (described,) = table(tools.run(COMMAND, "describe", "--transactional-id", name))
    assert (described["TransactionalId"], described["TransactionState"]) == (name, "Ongoing")
    assert described["ProducerId"] == seen["ProducerId"]
    assert described["TopicPartitions"] == f"{topic}-0"
    assert described["TransactionTimeoutMs"] == "600000"

    producers = table(tools.run(COMMAND, "describe-producers", "--topic", topic, "--partition", "0"))
    (open_one,) = [row for row in producers if row["ProducerId"] == seen["ProducerId"]]
    assert open_one["CurrentTransactionStartOffset"] == "1"
    assert table(tools.run(COMMAND, "describe-producers", "--topic", topic, "--partition", "1")) == []

    # Its coordinator has it, so it does not hang, however long it takes.
    hanging = tools.run(COMMAND, "find-hanging", "--topic", topic, "--max-transaction-timeout", "-1")
    assert table(hanging) == []

    tools.run(COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", "1")
    producers = table(tools.run(COMMAND, "describe-producers", "--topic", topic, "--partition", "0"))
    (ended,) = [row for row in producers if row["ProducerId"] == seen["ProducerId"]]
    assert ended["CurrentTransactionStartOffset"] == "None"
    assert committed_values(broker, topic) == [b"before"]
    with contextlib.suppress(KafkaException):
        # The tool may have fenced it in between.
        producer.abort_transaction(10)
    said = tools.fail(COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", "1")
    assert "Could not find any open transactions" in said


def test_a_hanging_transaction_is_found_and_aborted(tools: Tools, fresh_broker: FreshBroker) -> None:
    """Without verification a batch may begin a transaction that its coordinator does not have (KIP-664)."""
    broker = fresh_broker({"transaction.partition.verification.enable": "false"})
    own = Tools(broker.bootstrap)
    session = Session("hanging", broker.bootstrap, {})
    try:
        topic, producer = asking.hanging(session, b"lost")
    finally:
        session.close()
    ConfluentClient().produce(broker.bootstrap, topic, [Record(None, b"behind", (), NOW_MS, 0)])

    (hanging,) = table(own.run(COMMAND, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "-1"))
    assert (hanging["Topic"], hanging["Partition"], hanging["ProducerId"]) == (topic, "0", str(producer.id))
    own.run(COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", hanging["StartOffset"])
    assert table(own.run(COMMAND, "find-hanging", "--topic", topic, "--max-transaction-timeout", "-1")) == []
    assert committed_values(broker, topic) == [b"behind"]
