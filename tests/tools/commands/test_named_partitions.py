"""Commands about some partitions of a topic: each partition that cannot do it is named, and no other one suffers."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker
from pykbroker.tools.cluster import leader_choice, topics
from pykbroker.tools.cluster.failure import failed
from pykbroker.tools.commands import consume
from pykbroker_wire.errors import ErrorCode

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def produce(broker: Broker, topic: str, folder: Path, partitions: list[int]) -> int:
    file = folder / f"{topic}.json"
    file.write_text("".join(json.dumps({"payload": "v", "partition": number}) + "\n" for number in partitions))
    return main(["produce", topic, "-J", "-l", str(file), "-b", broker.bootstrap_servers])


def test_each_partition_that_deletes_nothing_is_named(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("orders", partitions=3)
    assert produce(broker, "orders", tmp_path, [0] * 5 + [1] * 2) == 0
    capsys.readouterr()
    words = ["records", "delete", "orders", "--before", "4", "-b", broker.bootstrap_servers]
    named = [
        "pykbroker: Nothing is deleted in orders-1: it ends at 2 (OFFSET_OUT_OF_RANGE)",
        "pykbroker: Nothing is deleted in orders-2: it ends at 0 (OFFSET_OUT_OF_RANGE)",
    ]
    # A dry run shows the same, and deletes nothing, so it can be repeated.
    for _ in range(2):
        assert main([*words, "--dry-run"]) == 1
        out, err = capsys.readouterr()
        assert [line.split() for line in out.splitlines()[2:]] == [["orders", "0", "0", "4"]]
        assert err.splitlines() == named
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[1:]] == [["orders", "0", "4"]]
    assert err.splitlines() == named
    assert main([*words[:3], "--before", "end", *words[5:], "--dry-run"]) == 0
    assert [line.split()[2:] for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["4", "5"],
        ["0", "2"],
        ["0", "0"],
    ]


def test_json_with_partitions_that_the_topic_does_not_have(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("copy", partitions=1)
    assert produce(broker, "copy", tmp_path, [0, 2]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "pykbroker: record 2: topic copy has no partition 2: it has 1, from 0 on (UNKNOWN_TOPIC_OR_PARTITION)",
        "pykbroker: `-p -1` lets the producer choose partitions, whatever JSON says",
        "Sent 1 record (1 bytes) to copy, and 1 failed.",
    ]


def test_a_failed_election_prints_no_table(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("led", partitions=1)
    words = ["leaders", "elect", "led", "-b", broker.bootstrap_servers]
    with monkeypatch.context() as patched:
        failure = failed(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        patched.setattr(leader_choice, "elect", lambda *_: {("led", 0): failure})
        assert main(words) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["led", "0", "unchanged"]


def test_a_plan_for_one_partition_goes_through_a_pipe(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("moved", partitions=2)
    at = ("-b", broker.bootstrap_servers)
    generate = ["reassign", "generate", "moved:1", "--brokers", "1", *at]
    assert main(generate) == 0
    # Nothing has moved, so no row is completed.
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["moved", "1", "1", "1", "unchanged"]
    ]
    assert main([*generate, "-o", "json"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(capsys.readouterr().out))
    assert main(["reassign", "execute", "-", "--wait", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["moved", "1", "1", "1", "completed"]
    assert main(["reassign", "generate", "moved:7", "--brokers", "1", *at]) == 1
    assert capsys.readouterr().err == 'pykbroker: The partitions "moved-7" do not exist\n'


def test_a_read_of_a_partition_without_a_leader_ends_at_once(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("dead", partitions=2)
    monkeypatch.setattr(topics, "leaders", lambda _, names: {("dead", 0): 1, ("dead", 1): -1} if names else {})
    monkeypatch.setattr(consume, "_LEADER_SECONDS", 0.2)
    at = ("-b", broker.bootstrap_servers)
    for words in ((), ("-p", "1"), ("--group", "g")):
        assert main(["consume", "dead", *words, *at]) == 1
        assert capsys.readouterr().err == "pykbroker: dead-1 has no leader: see `pykbroker topics describe dead`\n"
    assert main(["consume", "dead", "-p", "0", *at]) == 0


def test_a_reset_of_a_share_group_speaks_of_its_start(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.create_topic("jobs", partitions=1)
    words = ["groups", "reset", "workers", "--share", "-b", broker.bootstrap_servers]
    assert main([*words, "--topic", "jobs:0,x", "--to-latest"]) == 1
    assert capsys.readouterr().err.strip() == "pykbroker: jobs:0,x names no partitions: 'x' is no number"
    assert main([*words, "--topic", "jobs", "--shift-by", "1"]) == 1
    said = "pykbroker: The group has no offset in jobs-0 yet, so there is nothing to shift"
    assert capsys.readouterr().err.strip() == said
    assert main([*words, "--topic", "jobs", "--to-latest"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["TOPIC", "PARTITION", "START", "NEW", "OFFSET"]
