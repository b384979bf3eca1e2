"""Every tool at a standard output that cannot be written: a closed pipe ends it without a word, and a full disk with
one line. The consoles print the line of Apache Kafka's tools in both cases, which end with 0."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO

import pytest

from pykbroker.testing import Broker
from pykbroker.tools.kafka.__main__ import TOOLS, main

LINE = "standard output cannot be written: No space left on device\n"
OF_CONSOLES = "Unable to write to standard out, closing consumer.\nProcessed a total of 1 messages\n"

#: A command line of each tool that prints something. The address is added to its end, or is {at}.
WORDS = {
    "topics": "--list",
    "acls": "--list",
    "configs": "--describe --entity-type brokers --entity-name 1",
    "console-consumer": "--topic t --from-beginning --max-messages 1",
    "consumer-groups": "--list --state",
    "share-groups": "--list --state",
    "console-share-consumer": "--topic t --group console --max-messages 1",
    "groups": "--list",
    "producer-perf-test": "--topic other --num-records 10 --record-size 10 --throughput -1",
    "consumer-perf-test": "--topic t --num-records 1",
    "share-consumer-perf-test": "--topic t --num-records 1 --timeout 1",
    "verifiable-producer": "--topic other --max-messages 1",
    "verifiable-consumer": "--topic t --group-id verifiable --max-messages 1 --reset-policy earliest",
    "verifiable-share-consumer": "--topic t --group-id g --max-messages 0",
    "e2e-latency": "--topic other --num-records 1 --producer-acks 1 --record-size 10",
    "client-metrics": "--describe --name no",
    "broker-api-versions": "",
    "get-offsets": "--topic t",
    "metadata-quorum": "{at} describe --status",
    "cluster": "cluster-id {at}",
    "features": "{at} describe",
    "leader-election": "--election-type preferred --topic t --partition 0",
    "reassign-partitions": "--list",
    "log-dirs": "--describe",
    "delete-records": "--offset-json-file plan.json",
    "transactions": "{at} list",
}
#: tools that print nothing on standard output without a terminal
SILENT = {"console-producer"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        for topic in ("t", "other"):
            broker.create_topic(topic, partitions=1)
        broker.produce("t", b"one", partition=0)
        reset = ["--add-config", "share.auto.offset.reset=earliest", "--alter", "--entity-type", "groups"]
        for group in ("console", "head-of-verifiable-share-consumer"):
            assert main(["configs", *at(broker), *reset, "--entity-name", group]) == 0
        yield broker


def at(broker: Broker) -> list[str]:
    return ["--bootstrap-server", broker.bootstrap_servers]


@contextmanager
def closed_pipe() -> Iterator[IO[str]]:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file:
        yield file


def test_every_tool_is_asked() -> None:
    assert WORDS.keys() | SILENT == TOOLS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("tool", WORDS)
@pytest.mark.parametrize("lost", ["closed", "full"])
def test_an_output_that_is_lost(
    broker: Broker,
    tool: str,
    lost: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"partitions": [{"topic": "t", "partition": 0, "offset": 0}], "version": 1}
    Path("plan.json").write_text(json.dumps(plan))
    words = WORDS[tool]
    capsys.readouterr()
    with closed_pipe() if lost == "closed" else open("/dev/full", "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        status = main(
            [tool, *(words if "{at}" in words else f"{words} {{at}}").format(at=" ".join(at(broker))).split()]
        )
        assert sys.stdout is file
    said = capsys.readouterr().err
    if tool in ("console-consumer", "console-share-consumer"):
        assert (status, said) == (0, OF_CONSOLES)
    else:
        assert (status, said) == (1, LINE if lost == "full" else "")


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["verifiable-producer", "verifiable-consumer", "verifiable-share-consumer"])
def test_the_reader_of_events_leaves_after_the_first(
    broker: Broker, tool: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*at(broker), "--topic", "t"]
    if tool != "verifiable-producer":
        words += ["--group-id", f"head-of-{tool}"]
    capfd.readouterr()
    reading, writing = os.pipe()
    ended = []
    with os.fdopen(writing, "w") as file, os.fdopen(reading, "rb", buffering=0) as events:
        monkeypatch.setattr(sys, "stdout", file)

        def leave(*_: object) -> None:
            events.read(1)
            events.close()
            ended.append(True)

        # The tool prints its first event, and its consumer or producer is used only afterwards.
        module = import_module(f"pykbroker.tools.kafka.{tool.replace('-', '_')}")
        printed = module.print_event

        def print_event(name: str, **fields: object) -> None:
            printed(name, **fields)
            if not ended:
                leave()

        monkeypatch.setattr(module, "print_event", print_event)
        assert main([tool, *words]) == 1
    assert capfd.readouterr().err == ""
