"""kafka-topics, theirs and ours."""

from __future__ import annotations

import re

import pytest

from compat_tests.our_tools.both import BothTools, two_names
from compat_tests.topics import Topics


def configs_in_order(text: str) -> str:
    return re.sub(r"(?<=Configs: ).*", lambda found: ",".join(sorted(found[0].split(","))), text)


def words_of_the_controller(text: str) -> str:
    return re.sub(r"(?<=Unable to replicate the partition 3 time\(s\): ).*", "‹words›", text)


def test_a_topic_from_its_creation_to_its_end(both: BothTools) -> None:
    names = two_names()
    created = both.agree(
        "topics", "--create", "--topic", "‹t›", "--partitions", "2", "--config", "retention.ms=1000",
        "--config", "cleanup.policy=compact,delete", names=names,
    )  # fmt: skip
    assert created.out == "Created topic ‹t›.\n"
    both.wait_for_topics(names, 2)
    again = both.agree("topics", "--create", "--topic", "‹t›", names=names)
    assert again.status == 1
    assert "TopicExistsException: Topic '‹t›' already exists." in again.err
    assert both.agree("topics", "--create", "--topic", "‹t›", "--if-not-exists", names=names).status == 0
    described = both.agree("topics", "--describe", "--topic", "‹t›", names=names, change=[configs_in_order])
    assert described.out.startswith("Topic: ‹t›\tTopicId: ‹id›\tPartitionCount: 2\tReplicationFactor: 1\t")
    assert both.agree("topics", "--alter", "--topic", "‹t›", "--partitions", "3", names=names).out == ""
    both.wait_for_topics(names, 3)
    refused = both.agree("topics", "--alter", "--topic", "‹t›", "--partitions", "2", names=names)
    assert "InvalidPartitionsException" in refused.err
    more = both.agree("topics", "--describe", "--topic", "‹t›", names=names, change=[configs_in_order])
    assert more.out.count("Partition: ") == 3
    for report in ("unavailable-partitions", "at-min-isr-partitions", "under-min-isr-partitions"):
        both.agree("topics", "--describe", "--topic", "‹t›", f"--{report}", names=names)
    both.agree("topics", "--describe", "--topic", "‹t›", "--topics-with-overrides", names=names,
               change=[configs_in_order])  # fmt: skip
    assert both.agree("topics", "--delete", "--topic", "‹t›", names=names).status == 0
    both.wait_for_topics(names, 0)
    gone = both.agree("topics", "--delete", "--topic", "‹t›", names=names)
    assert gone.out == "Error while executing topic command : Topic '‹t›' does not exist as expected\n"
    assert both.agree("topics", "--delete", "--topic", "‹t›", "--if-exists", names=names).status == 0


def test_lists(both: BothTools, topics: Topics) -> None:
    first = topics.create()
    second = topics.create()
    assert {first, second} <= set(both.agree("topics", "--list").out.split())
    assert both.agree("topics", "--list", "--topic", f"{first},{second}").out.split() == sorted([first, second])
    assert both.agree("topics", "--list", "--topic", f"{first}.*").out == first + "\n"
    both.agree("topics", "--list", "--exclude-internal")


@pytest.mark.parametrize(
    "words",
    [
        "--describe --topic none-such",
        "--describe --topic none-such --if-exists",
        "--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
        "--alter --topic none-such --partitions 2",
        "--alter --topic none-such --partitions 2 --if-exists",
        "--alter --topic x",
        "--create",
        "--create --list",
        "--create --topic x --partitions 0",
        "--create --topic x --partitions y",
        "--create --topic x --replication-factor 0",
        "--create --topic x --config none.such=1",
        "--create --topic x --config retention.ms=y",
        "--create --topic x --config retention.ms",
        "--create --topic x@y",
        "--create --topic x --replica-assignment 1:1",
        "--create --topic x --replica-assignment 1 --partitions 1",
        "--list --topic x --topic y",
        "--list --partitions 3",
        "--list --command-config /none/such",
        "--descri",
        "--zookeeper localhost:2181 --list",
        "--delete-config x --list",
        "list",
        "--version",
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(both: BothTools, words: str) -> None:
    both.agree("topics", *words.split())


def test_without_a_server(both: BothTools) -> None:
    assert both.agree("topics", "--list", where=False).err == "--bootstrap-server must be specified"
    assert both.agree("topics", where=False).status == 1
    assert both.agree("topics", "--bootstrap-server", where=False).status == 1
