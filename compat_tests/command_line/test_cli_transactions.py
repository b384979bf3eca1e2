"""`pykbroker transactions`, with transactions that stay open."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from compat_tests.command_line.asked import CommandLine
from compat_tests.differential.scripts import asking
from compat_tests.differential.session import Session
from compat_tests.node import make_node
from compat_tests.topics import Topics
from testkit.clients import wait_until


@pytest.fixture
def topic(line: CommandLine, name: str) -> str:
    """A topic in whose partition 1 a transaction of the test's name is open, from offset 0 on."""
    topic = Topics(line.bootstrap).create(partitions=2)
    producer = Producer(
        {
            "bootstrap.servers": line.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(60) == 0
    # The transaction stays open without its producer.
    return topic


def state(line: CommandLine, name: str) -> str:
    (row,) = line.json("transactions", "describe", name)
    return str(row["state"])


def test_an_open_transaction_is_shown_and_ended_by_its_id(line: CommandLine, topic: str, name: str) -> None:
    (row,) = [one for one in line.json("transactions", "list") if one["transactional_id"] == name]
    assert (list(row), row["state"]) == (["transactional_id", "coordinator", "producer_id", "state"], "Ongoing")
    assert [one["transactional_id"] for one in line.json("transactions", "list", "--pattern", f"{name[:5]}.*")] == [
        name
    ]
    # Apache Kafka takes -1 for the start of a transaction that has never begun, so it lists such a one as old.
    older = line.json("transactions", "list", "--longer-than", "3600000")
    assert name not in [one["transactional_id"] for one in older]
    assert {one["state"] for one in older} <= {"Empty"}
    assert name in line("transactions", "list").out
    (told,) = line.json("transactions", "describe", name)
    assert (told["producer_id"], told["timeout_ms"], told["partitions"]) == (
        row["producer_id"],
        600_000,
        [f"{topic}-1"],
    )
    assert told["open_for_ms"] >= 0
    # It does not hang, because the coordinator has it, whatever its age.
    assert line.json("transactions", "find-hanging", "--topic", topic, "--quiet-for", "0") == []
    done = line.json("transactions", "abort", "--transactional-id", name)
    assert done == {"transactional_id": name}
    # Its producer got a new epoch after the abort.
    wait_until(lambda: state(line, name) == "Empty", "the transaction is aborted")
    (told,) = line.json("transactions", "describe", name)
    assert (told["started_ms"], told["open_for_ms"], told["partitions"]) == (None, None, [])


def test_a_transaction_is_aborted_by_its_place(line: CommandLine, topic: str, name: str) -> None:
    place = ["--topic", topic, "--partition", "1"]
    wrong = line("transactions", "abort", *place, "--start-offset", "7")
    assert wrong.failure == f"no transaction that begins at offset 7 is open in {topic}-1"
    said = line("transactions", "abort", *place, "--start-offset", "0")
    assert (said.status, said.out) == (0, f"Aborted the transaction at offset 0 of {topic}-1.\n")
    again = line("transactions", "abort", *place, "--start-offset", "0")
    assert again.failure == f"no transaction that begins at offset 0 is open in {topic}-1"
    assert line("consume", topic, "--isolation", "read_committed").out == ""
    assert line("transactions", "abort", "--transactional-id", name).status == 0


@pytest.mark.parametrize("kind", ["pykbroker", "apache-kafka"])
def test_a_transaction_that_hangs_is_found_and_aborted(kind: str) -> None:
    """Without verification a batch may begin a transaction that its coordinator does not have (KIP-664)."""
    node = make_node(kind, {"transaction.partition.verification.enable": "false"})
    try:
        line = CommandLine(node.start().bootstrap)
        session = Session("hanging", node.bootstrap, {})
        try:
            topic, producer = asking.hanging(session, b"lost")
        finally:
            session.close()
        (row,) = line.json("transactions", "find-hanging")
        assert (row["topic"], row["partition"], row["start_offset"]) == (topic, 0, 0)
        assert (row["producer_id"], row["coordinator_epoch"]) == (producer.id, -1)
        assert line("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0").status == 0
        assert line.json("transactions", "find-hanging", "--quiet-for", "0") == []
        assert line("consume", topic, "--isolation", "read_committed").out == ""
    finally:
        node.close()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("describe none-such", 1, "(TRANSACTIONAL_ID_NOT_FOUND)"),
        ("abort --transactional-id none-such", 1, "(TRANSACTIONAL_ID_NOT_FOUND)"),
        ("abort --transactional-id a --topic b", 2, "--transactional-id stands alone"),
        ("abort --topic a", 2, "--topic, --partition and --start-offset are needed"),
        ("abort --topic none-such --partition 0 --start-offset 0", 1, "(UNKNOWN_TOPIC_OR_PARTITION)"),
        ("find-hanging --partition 0", 2, "--partition needs --topic"),
        ("find-hanging --topic none-such", 1, "(UNKNOWN_TOPIC_OR_PARTITION)"),
        ("list --pattern (", 1, "INVALID_REGULAR_EXPRESSION"),
    ],
)
def test_what_is_refused(line: CommandLine, words: str, status: int, said: str) -> None:
    found = line("transactions", *words.split())
    assert found.status == status, found
    assert said in found.failure
