"""kafka-console-producer and kafka-console-consumer: each reads the records of the other's producer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from compat_tests.node import Node
from compat_tests.our_tools.both import CLASSES, BothTools, ours
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.tool_server import run_shared
from compat_tests.topics import Topics
from testkit.clients import ALL_COMPRESSIONS, wait_until

LINES = "h1:v1,h2:v2\tk1\tone\nh:\tNULL\ttwo\nNULL\tk3\tNULL\nh:\tk4\tsnow ❄\r\nNULL\tk5\t\n"
WRITE = [
    "--reader-property", "parse.key=true",
    "--reader-property", "parse.headers=true",
    "--reader-property", "null.marker=NULL",
]  # fmt: skip
EVERYTHING = [
    word
    for part in ("key", "headers", "offset", "partition", "epoch", "timestamp", "delivery")
    for word in ("--formatter-property", f"print.{part}=true")
]


def test_both_producers_write_the_same_records(broker: Node, topics: Topics) -> None:
    first, second = topics.create(), topics.create()
    at = ["--bootstrap-server", broker.bootstrap, "--topic"]
    run_shared(CLASSES["console-producer"], [*at, first, *WRITE], stdin=LINES)
    done = ours("console-producer", [*at, second, *WRITE], stdin=LINES)
    assert (done.status, done.err) == (0, "")
    theirs, mine = (
        [(r.key, r.value, tuple(r.headers)) for r in ConfluentClient().consume(broker.bootstrap, topic)]
        for topic in (first, second)
    )
    assert len(mine) == 5
    assert mine == theirs


@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_both_consumers_print_what_our_producer_wrote(both: BothTools, topics: Topics, compression: str) -> None:
    topic = topics.create()
    at = ["--bootstrap-server", both.bootstrap, "--topic", topic]
    assert ours("console-producer", [*at, "--compression-codec", compression, *WRITE], stdin=LINES).status == 0
    read = both.agree(
        "console-consumer", "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "5",
        *EVERYTHING,
    )  # fmt: skip
    assert read.out.splitlines()[0].endswith("\th1:v1,h2:v2\tk1\tone")
    assert read.err == "Processed a total of 5 messages"


def test_offsets_limits_and_times(both: BothTools, topics: Topics) -> None:
    topic = topics.create()
    at = ["--bootstrap-server", both.bootstrap, "--topic", topic]
    numbers = "".join(f"{number}\n" for number in range(1500))
    assert ours("console-producer", at, stdin=numbers).status == 0
    one = ["--topic", topic, "--partition", "0"]
    assert both.agree("console-consumer", *one, "--offset", "1490", "--max-messages", "3").out == "1490\n1491\n1492\n"
    rest = both.agree("console-consumer", *one, "--offset", "1498", "--timeout-ms", "1000")
    assert rest.out == "1498\n1499\n"
    assert rest.status == 0
    assert both.agree("console-consumer", *one, "--timeout-ms", "300").out == ""
    found = ours("console-consumer", [*at, "--from-beginning", "--max-messages", "1500"])
    assert sorted(map(int, found.out.split())) == list(range(1500))
    assert found.err == "Processed a total of 1500 messages\n"
    strange = ["--formatter-property", "key.separator=|", "--formatter-property", "line.separator=;",
               "--formatter-property", "print.key=true", "--formatter-property", "null.literal=-"]  # fmt: skip
    shown = both.agree("console-consumer", *one, "--offset", "0", "--max-messages", "2", *strange)
    assert shown.out == "-|0;-|1;"
    keys = ["--formatter-property", "print.key=true", "--formatter-property", "print.value=false"]
    both.agree("console-consumer", *one, "--offset", "0", "--max-messages", "2", *keys)


def test_a_group_goes_on_where_it_was(both: BothTools, topics: Topics) -> None:
    topic = topics.create()
    at = ["--bootstrap-server", both.bootstrap, "--topic", topic]
    assert ours("console-producer", at, stdin="a\nb\nc\nd\n").status == 0
    group = ["--group", f"g-{topic}", "--from-beginning", "--max-messages"]
    assert ours("console-consumer", [*at, *group, "1"]).out == "a\n"
    # The printed records are committed, not all fetched ones. The first of both reads b, the second c.
    assert both.agree("console-consumer", "--topic", topic, *group, "1", change=[lambda text: ""]).status == 0
    assert ours("console-consumer", [*at, *group, "1"]).out == "d\n"


def test_what_the_python_client_cannot_send_is_said(broker: Node, topic: str) -> None:
    at = ["--bootstrap-server", broker.bootstrap, "--topic", topic, *WRITE]
    for line, words in (("h:NULL\tk\tv\n", "header without a value"), ("NULL\tNULL\tNULL\n", "without key and value")):
        done = ours("console-producer", at, stdin=line)
        assert done.status == 1
        assert words in done.err
        assert done.err.count("\n") == 1


def test_a_signal_ends_the_consumer_in_order(both: BothTools, topics: Topics) -> None:
    topic = topics.create()
    at = ["--bootstrap-server", both.bootstrap, "--topic", topic]
    assert ours("console-producer", at, stdin="a\n").status == 0
    command = [sys.executable, "-m", "pykbroker.tools.kafka", "console-consumer", *at, "--from-beginning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        wait_until(lambda: process.poll() is not None, "the consumer has ended")
    assert said.endswith(b"Processed a total of 1 messages\n")
    assert process.returncode == 143


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--topic a --include b",
        "--topic a --offset 3",
        "--include a --partition 3",
        "--topic a --partition 0 --offset x",
        "--topic a --partition 0 --from-beginning --offset 0",
        "--topic a --partition 0 --group x",
        "--topic a --from-beginning --command-property auto.offset.reset=latest",
        "--topic a --none-such",
    ],
)
def test_what_the_consumer_refuses(both: BothTools, words: str) -> None:
    assert both.agree("console-consumer", *words.split()).status == 1


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--topic a --none-such",
        "--topic a --batch-size x",
        "--topic a --property x=y --reader-property z=y",
        "--topic a --producer-property x=y --command-property z=y",
    ],
)
def test_what_the_producer_refuses(both: BothTools, words: str) -> None:
    assert both.agree("console-producer", *words.split()).status == 1
