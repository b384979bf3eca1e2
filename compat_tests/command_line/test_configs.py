"""`pykbroker configs`."""

from __future__ import annotations

import pytest

from compat_tests.command_line.asked import CommandLine
from testkit.clients import wait_until


def values(line: CommandLine, *words: str) -> dict[str, tuple[str | None, str]]:
    """Return key -> its value, and the source of the value."""
    return {row["key"]: (row["value"], row["source"]) for row in line.json("configs", "describe", *words)}


def wait_for(line: CommandLine, key: str, value: tuple[str, str] | None, *words: str) -> None:
    wait_until(lambda: values(line, *words).get(key) == value, f"{key} of {' '.join(words)} is {value}")


def test_of_a_topic(line: CommandLine, name: str) -> None:
    assert line("topics", "create", name).status == 0
    wait_until(lambda: name in [row["topic"] for row in line.json("topics", "list")], "the topic is known")
    done = line.json(
        "configs", "alter", "topic", name, "--set", "retention.ms=60000", "--append", "cleanup.policy=compact"
    )
    assert done == {
        "kind": "topic",
        "name": name,
        "set": {"retention.ms": "60000"},
        "append": {"cleanup.policy": "compact"},
        "subtract": {},
        "deleted": [],
    }
    wait_for(line, "retention.ms", ("60000", "dynamic_topic_config"), "topic", name)
    assert values(line, "topic", name)["cleanup.policy"] == ("delete,compact", "dynamic_topic_config")
    (row,) = [row for row in line.json("configs", "describe", "topic", name) if row["key"] == "retention.ms"]
    assert row == {
        "key": "retention.ms",
        "value": "60000",
        "source": "dynamic_topic_config",
        "read_only": False,
        "sensitive": False,
    }
    assert "segment.bytes" not in values(line, "topic", name)
    assert values(line, "topic", name, "--all")["segment.bytes"] == ("1073741824", "default_config")
    altered = line("configs", "alter", "topic", name, "--delete", "retention.ms", "--subtract", "cleanup.policy=delete")
    assert (altered.out, altered.err) == (f"Altered 2 configurations of topic {name}.\n", "")
    wait_for(line, "retention.ms", None, "topic", name)
    assert values(line, "topic", name)["cleanup.policy"] == ("compact", "dynamic_topic_config")
    titles = line("configs", "describe", "topic", name).out.splitlines()[0]
    assert titles.split() == ["KEY", "VALUE", "SOURCE", "READ-ONLY", "SENSITIVE"]


def test_of_brokers(line: CommandLine) -> None:
    assert line("configs", "alter", "broker", "--set", "log.cleaner.backoff.ms=14000").out == (
        "Altered 1 configuration of all brokers.\n"
    )
    wait_for(line, "log.cleaner.backoff.ms", ("14000", "dynamic_default_broker_config"), "broker")
    wait_for(line, "log.cleaner.backoff.ms", ("14000", "dynamic_default_broker_config"), "broker", "1")
    assert line("configs", "alter", "broker", "1", "--set", "log.cleaner.backoff.ms=13000").status == 0
    wait_for(line, "log.cleaner.backoff.ms", ("13000", "dynamic_broker_config"), "broker", "1")
    for words in (("1",), ()):
        assert line("configs", "alter", "broker", *words, "--delete", "log.cleaner.backoff.ms").status == 0
    wait_for(line, "log.cleaner.backoff.ms", None, "broker", "1")
    assert values(line, "broker", "1")["node.id"] == ("1", "static_broker_config")


def test_of_groups_and_client_metrics(line: CommandLine, name: str) -> None:
    assert line("configs", "alter", "group", name, "--set", "consumer.session.timeout.ms=50000").status == 0
    wait_for(line, "consumer.session.timeout.ms", ("50000", "dynamic_group_config"), "group", name)
    assert line("configs", "alter", "client-metrics", name, "--set", "interval.ms=60000").status == 0
    # The broker applies it a moment after the controller has answered.
    wait_until(lambda: line("configs", "describe", "client-metrics", name).status == 0, "the subscription is known")
    wait_for(line, "interval.ms", ("60000", "dynamic_client_metrics_config"), "client-metrics", name)


def test_what_is_refused_is_one_line(line: CommandLine, name: str) -> None:
    assert line("topics", "create", name).status == 0
    wait_until(lambda: name in [row["topic"] for row in line.json("topics", "list")], "the topic is known")
    near = f"There is no topic '{name}x': did you mean '{name}'?"
    assert line("configs", "describe", "topic", name + "x").failure == near
    assert line("configs", "alter", "topic", name + "x", "--set", "retention.ms=1").failure == near
    unknown = line("configs", "alter", "topic", name, "--set", "retention.mss=1").failure
    assert unknown == "Unknown topic config name: retention.mss: did you mean retention.ms?"
    assert "(INVALID_CONFIG)" in line("configs", "alter", "topic", name, "--set", "retention.ms=x").failure
    assert line("configs", "describe", "broker", "7").failure == "There is no broker '7': there are 1"
    read_only = line("configs", "alter", "broker", "1", "--set", "node.id=3").failure
    assert read_only.startswith("Cannot update these configs dynamically")
    assert "There is no client metrics subscription" in line("configs", "describe", "client-metrics", "none").failure


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe", "topic-s", "t"), "Invalid value for 'KIND': 'topic-s' is not one of 'topic', 'broker'"),
        (("describe", "topic"), "A topic has a name: `configs … topic NAME`."),
        (("alter", "topic", "t"), "Say what to alter: --set, --delete, --append or --subtract."),
        (("alter", "topic", "t", "--set", "x"), "--set takes KEY=VALUE, not 'x'"),
        (("alter", "topic", "t", "--st", "x=y"), "No such option '--st'. Did you mean '--set'?"),
    ],
)
def test_wrong_words_are_one_line(line: CommandLine, words: tuple[str, ...], said: str) -> None:
    assert line("configs", *words).failure.startswith(said)
