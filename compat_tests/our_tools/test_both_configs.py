"""kafka-configs, theirs and ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.our_tools.both import BothTools, sorted_lines, two_names


def test_a_topic(both: BothTools, tmp_path: Path) -> None:
    names = two_names()
    both.agree("topics", "--create", "--topic", "‹t›", names=names)
    both.wait_for_topics(names, 1)
    at = ["--topic", "‹t›"]
    done = both.agree("configs", "--alter", *at, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]",
                      names=names)  # fmt: skip
    assert done.out == "Completed updating config for topic ‹t›.\n"
    described = both.agree("configs", "--describe", *at, names=names)
    assert "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000" in described.out
    both.agree("configs", "--describe", "--entity-type", "topics", "--entity-name", "‹t›", names=names)
    both.agree("configs", "--describe", *at, "--all", names=names)
    file = tmp_path / "more.properties"
    file.write_text("segment.ms=70000\n")
    both.agree(
        "configs", "--alter", *at, "--add-config-file", str(file), "--delete-config", "retention.ms", names=names
    )
    left = both.agree("configs", "--describe", *at, names=names)
    assert "retention.ms" not in left.out
    assert "segment.ms=70000" in left.out
    assert both.agree("configs", "--alter", *at, "--delete-config", "none.such", names=names).status == 0
    for wrong in ("none.such=1", "retention.ms=x", "retention.ms"):
        assert both.agree("configs", "--alter", *at, "--add-config", wrong, names=names).status == 1


def test_every_topic_is_described(both: BothTools) -> None:
    both.agree("configs", "--describe", "--entity-type", "topics", change=[sorted_lines])


def test_a_broker_and_the_default_of_brokers(both: BothTools) -> None:
    try:
        both.agree("configs", "--alter", "--broker", "1", "--add-config", "log.cleaner.threads=2")
        assert "log.cleaner.threads=2" in both.agree("configs", "--describe", "--broker", "1").out
        both.agree("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config",
                   "log.retention.ms=100000000")  # fmt: skip
        assert "log.retention.ms" in both.agree("configs", "--describe", "--broker-defaults").out
        both.agree("configs", "--describe", "--entity-type", "brokers")
    finally:
        both.agree("configs", "--alter", "--broker", "1", "--delete-config", "log.cleaner.threads")
        both.agree("configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms")
    assert both.agree("configs", "--describe", "--broker", "1").out == "Dynamic configs for broker 1 are:\n"
    both.agree("configs", "--describe", "--broker", "1", "--all")


def test_a_group(both: BothTools) -> None:
    names = two_names("g")
    added = ["--add-config", "consumer.session.timeout.ms=50000"]
    both.agree("configs", "--alter", "--group", "‹g›", *added, names=names)
    assert "=50000 " in both.agree("configs", "--describe", "--group", "‹g›", names=names).out
    both.agree("configs", "--alter", "--group", "‹g›", "--delete-config", "consumer.session.timeout.ms", names=names)


def test_quotas_and_credentials(both: BothTools) -> None:
    """If the node does not serve them, both report that in the same words."""
    names = {**two_names("u"), **two_names("c")}
    both.agree("configs", "--alter", "--user", "‹u›", "--client", "‹c›", "--add-config", "producer_byte_rate=1000",
               names=names)  # fmt: skip
    both.agree("configs", "--describe", "--user", "‹u›", "--client", "‹c›", names=names)
    both.agree("configs", "--alter", "--user", "‹u›", "--client", "‹c›", "--delete-config", "producer_byte_rate",
               names=names)  # fmt: skip
    both.agree("configs", "--alter", "--user", "‹u›", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=s]",
               names=names)  # fmt: skip
    both.agree("configs", "--describe", "--user", "‹u›", names=names)
    both.agree("configs", "--alter", "--user", "‹u›", "--delete-config", "SCRAM-SHA-256", names=names)
    both.agree("configs", "--describe", "--entity-type", "ips")


def test_scram_credentials(both: BothTools) -> None:
    names = two_names("u")

    def agree(words: str) -> str:
        return both.agree("configs", *words.split(), names=names).out

    agree("--alter --entity-type users --entity-name ‹u› --add-config SCRAM-SHA-256=[iterations=8192,password=pä,ss]")
    agree("--alter --user ‹u› --add-config SCRAM-SHA-512=[password=t]")
    both_mechanisms = "are SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    assert both_mechanisms in agree("--describe --entity-type users --entity-name ‹u›")
    both.agree("configs", "--describe", "--entity-type", "users", change=[sorted_lines])
    agree("--alter --user ‹u› --delete-config SCRAM-SHA-256")
    assert both_mechanisms not in agree("--describe --user ‹u›")
    # A second time there is nothing to delete.
    assert "Completed" not in agree("--alter --user ‹u› --delete-config SCRAM-SHA-256")
    agree("--alter --user ‹u› --delete-config SCRAM-SHA-512")
    assert agree("--describe --user ‹u›") == ""


@pytest.mark.parametrize(
    "words",
    [
        "--user u --add-config SCRAM-SHA-256=[iterations=10,password=s]",
        "--user u --add-config SCRAM-SHA-256=[iterations=20000,password=s]",
        "--user u --add-config SCRAM-SHA-256=[iterations=x,password=s]",
        "--user u --add-config SCRAM-SHA-256=[iterations=4096]",
        "--user u --add-config SCRAM-SHA-256=[password=]",
        "--user u --add-config SCRAM-SHA-256=[password=a],SCRAM-SHA-512=[password=a]",
        "--user u --add-config SCRAM-SHA-256=x",
        "--user u --add-config SCRAM-SHA-1=[password=a]",
        "--user-defaults --add-config SCRAM-SHA-256=[password=a]",
        "--user u --client c --add-config SCRAM-SHA-256=[password=a]",
        "--user u --add-config SCRAM-SHA-256=[password=a],producer_byte_rate=10",
        "--user u --add-config SCRAM-SHA-256=[password=a] --delete-config SCRAM-SHA-256",
        "--user u --delete-config SCRAM-SHA-256,producer_byte_rate",
        "--user u --delete-config SCRAM-SHA-1,a",
        "--user none-such --delete-config SCRAM-SHA-256",
        "--user u --client c --delete-config SCRAM-SHA-256,SCRAM-SHA-512",
        "--client c --add-config a=b",
        "--ip 1.2.3.4 --add-config a=b",
        "--ip 1.2.3.4 --delete-config a",
    ],
)
def test_credentials_and_quotas_that_are_refused(both: BothTools, words: str) -> None:
    both.agree("configs", "--alter", *words.split())


@pytest.mark.parametrize(
    "words",
    [
        "--describe",
        "--describe --topic none-such",
        "--describe --broker 7",
        "--describe --broker x",
        "--describe --client-metrics none-such",
        "--describe --entity-type none",
        "--describe --entity-name x",
        "--describe --topic x --broker 1",
        "--describe --topic x --entity-default",
        "--alter --topic x",
        "--alter --describe --topic x",
        "--alter --entity-type topics --add-config a=b",
        "--alter --topic none-such --add-config retention.ms=1",
        "--none-such",
        "--version",
    ],
)
def test_what_is_refused(both: BothTools, words: str) -> None:
    both.agree("configs", *words.split())


def test_without_a_server(both: BothTools) -> None:
    assert both.agree("configs", "--describe", "--topic", "x", where=False).status == 1


def test_client_metrics(both: BothTools) -> None:
    names = two_names("m")
    at = ["--name", "‹m›"]
    chosen = ["--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", "--interval", "5000"]
    both.agree("client-metrics", "--alter", *at, *chosen, "--match", "client_id=a,client_source_port=1", names=names)
    described = both.agree("client-metrics", "--describe", *at, names=names, change=[sorted_lines])
    assert "  interval.ms=5000" in described.out
    both.agree("client-metrics", "--alter", *at, "--interval", "", names=names)
    assert "5000" not in both.agree("client-metrics", "--describe", *at, names=names, change=[sorted_lines]).out
    assert both.agree("client-metrics", "--alter", *at, "--match", "bad=1", names=names).status == 1
    # Each list has the resource of the other tool too.
    both.agree("client-metrics", "--list", change=[sorted_lines])
    both.agree("client-metrics", "--delete", *at, names=names)
    assert "doesn't exist" in both.agree("client-metrics", "--describe", *at, names=names).out
    for wrong in (
        ["--alter"],
        ["--alter", *at, "--interval", "x"],
        ["--delete"],
        ["--list", *at],
        ["--list", "--describe"],
    ):
        assert both.agree("client-metrics", *wrong, names=names).status == 1
