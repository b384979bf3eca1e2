"""kafka-transactions, theirs and ours, with a transaction that stays open."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer

from compat_tests.our_tools.both import BothTools, ours, sorted_lines
from compat_tests.topics import Topics


@pytest.fixture(scope="module")
def open_in(both: BothTools, topics: Topics) -> str:
    """A topic in whose one partition a transaction of its name is open, from offset 0 on."""
    topic = topics.create()
    producer = Producer(
        {
            "bootstrap.servers": both.bootstrap,
            "transactional.id": topic,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(60) == 0
    # The transaction stays open without its producer.
    return topic


def without_durations(text: str) -> str:
    """Mask how long a transaction has been open, because each tool asks at its own time."""
    return re.sub(r"(?<=\t)(1[6-9]\d{11}\s*\t)\d+ *(?=\t)", r"\1‹time›", text)


def without_blanks(text: str) -> str:
    return re.sub(r" +\t", "\t", text)


def test_an_open_transaction_is_shown_and_ended(both: BothTools, open_in: str) -> None:
    assert open_in in both.agree("transactions", "list", change=[sorted_lines]).out
    both.agree("transactions", "list", "--duration-filter", "3600000", change=[sorted_lines])
    described = both.agree(
        "transactions", "describe", "--transactional-id", open_in, change=[without_durations, without_blanks]
    )
    assert f"{open_in}-0" in described.out
    assert "Ongoing" in described.out
    place = ["--topic", open_in, "--partition", "0"]
    producers = both.agree("transactions", "describe-producers", *place)
    assert producers.out.splitlines()[1].split()[-1] == "0"
    both.agree("transactions", "describe-producers", *place, "--broker-id", "1")
    # It does not hang, because the coordinator has it, whatever its age.
    both.agree("transactions", "find-hanging", "--topic", open_in, "--max-transaction-timeout", "0")
    assert both.agree("transactions", "abort", *place, "--start-offset", "77").status == 1
    at = ["--bootstrap-server", both.bootstrap]
    assert ours("transactions", [*at, "forceTerminateTransaction", "--transactionalId", open_in]).status == 0
    shown = ours("transactions", [*at, "describe", "--transactional-id", open_in]).out
    assert "Ongoing" not in shown
    both.agree("transactions", "describe", "--transactional-id", open_in, change=[without_blanks])
    both.agree("transactions", "describe-producers", *place)


def test_a_transaction_is_aborted_by_its_offset(both: BothTools, topics: Topics) -> None:
    topic = topics.create()
    producer = Producer({"bootstrap.servers": both.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(60) == 0
    at = ["--bootstrap-server", both.bootstrap]
    place = ["--topic", topic, "--partition", "0"]
    done = ours("transactions", [*at, "abort", *place, "--start-offset", "0"])
    assert (done.status, done.out, done.err) == (0, "", "")
    shown = both.agree("transactions", "describe-producers", *place)
    assert shown.out.splitlines()[1].split()[-1] == "None"


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "describe --transactional-id none-such",
        "find-hanging",
        "find-hanging --broker-id 1 --partition 0",
        "abort --topic a --partition 0",
        "abort --topic a --partition 0 --producer-id 5",
    ],
)
def test_what_is_not_there_is_said_in_the_same_words(both: BothTools, words: str) -> None:
    both.agree("transactions", *words.split(), change=[sorted_lines])
