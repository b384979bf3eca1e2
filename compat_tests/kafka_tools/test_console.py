"""kafka-console-producer and kafka-console-consumer."""

from __future__ import annotations

import pytest

from compat_tests.kafka_tools.conftest import Tools
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import ALL_COMPRESSIONS

WRITE = [
    "--reader-property", "parse.key=true",
    "--reader-property", "parse.headers=true",
    "--reader-property", "null.marker=NULL",
]  # fmt: skip
READ = [
    "--from-beginning",
    "--timeout-ms", "30000",
    "--formatter-property", "print.partition=true",
    "--formatter-property", "print.offset=true",
    "--formatter-property", "print.headers=true",
    "--formatter-property", "print.key=true",
    "--formatter-property", "null.literal=NULL",
]  # fmt: skip


@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_what_the_producer_reads_from_stdin_is_stored(
    tools: Tools, broker: Node, topics: Topics, compression: str
) -> None:
    topic = topics.create()
    lines = "".join(f"n:{i},kind:test\tkey-{i}\tvalue {i}\n" for i in range(50)) + "why:gone\tkey-0\tNULL\n"
    tools.run("ConsoleProducer", "--topic", topic, "--compression-codec", compression, *WRITE, stdin=lines)
    read = ConfluentClient().consume(broker.bootstrap, topic)
    assert [(r.key, r.value, dict(r.headers)) for r in read] == [
        (b"key-%d" % i, b"value %d" % i, {"n": b"%d" % i, "kind": b"test"}) for i in range(50)
    ] + [(b"key-0", None, {"why": b"gone"})]


def test_the_consumer_prints_every_record(tools: Tools, topic: str) -> None:
    lines = "".join(f"n:{i}\tkey-{i}\tgrüße {i}\n" for i in range(20)) + "n:20\tkey-3\tNULL\n"
    tools.run("ConsoleProducer", "--topic", topic, *WRITE, stdin=lines)
    printed = tools.run("consumer.ConsoleConsumer", "--topic", topic, "--max-messages", "21", *READ)
    assert printed.splitlines() == [f"Partition:0\tOffset:{i}\tn:{i}\tkey-{i}\tgrüße {i}" for i in range(20)] + [
        "Partition:0\tOffset:20\tn:20\tkey-3\tNULL"
    ]


def test_the_consumer_starts_at_a_given_offset_of_a_partition(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    tools.run("ConsoleProducer", "--topic", topic, stdin="".join(f"{i}\n" for i in range(30)))
    stored = [r for r in ConfluentClient().consume(broker.bootstrap, topic) if r.value is not None]
    partition = stored[0].partition
    wanted = [r.value.decode() for r in stored if r.partition == partition and r.value][3:]
    printed = tools.run(
        "consumer.ConsoleConsumer", "--topic", topic, "--partition", str(partition), "--offset", "3",
        "--max-messages", str(len(wanted)), "--timeout-ms", "30000",
    )  # fmt: skip
    assert printed.splitlines() == wanted


def test_a_topic_is_created_by_producing_to_it(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.name()
    tools.run("ConsoleProducer", "--topic", topic, stdin="first\nsecond\n")
    assert [r.value for r in ConfluentClient().consume(broker.bootstrap, topic)] == [b"first", b"second"]
