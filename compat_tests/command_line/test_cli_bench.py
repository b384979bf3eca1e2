"""`pykbroker bench`: each load runs as requested and reports its result. The tests require no rate."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.command_line.asked import CommandLine
from compat_tests.topics import Topics


@pytest.fixture
def topic(line: CommandLine) -> str:
    return Topics(line.bootstrap).create(partitions=3)


def check_times(told: dict[str, Any]) -> None:
    times = [told[name] for name in ("p50_ms", "p95_ms", "p99_ms", "p99_9_ms", "max_ms")]
    assert times == sorted(times)
    assert 0 < told["mean_ms"] <= told["max_ms"]


def test_what_is_produced_is_consumed(line: CommandLine, topic: str) -> None:
    told = line.json("bench", "produce", topic, "-n", "3001", "--size", "50", "--producers", "2", "-z", "lz4")
    assert (told["work"], told["records"], told["failed"]) == ("produce", 3001, 0)
    check_times(told)
    # The seconds are rounded to the millisecond, which matters if they are few.
    rounded = 0.0005 / told["seconds"]
    assert told["records_per_second"] == pytest.approx(3001 / told["seconds"], rel=0.01 + rounded)
    assert told["megabytes_per_second"] == pytest.approx(3001 * 50 / told["seconds"] / 1e6, rel=0.1, abs=0.001)
    values = line("consume", topic, "-f", r"%S\n").out.split()
    assert values == ["50"] * 3001
    read = line.json("bench", "consume", topic, "-n", "2000", "--consumers", "2")
    assert (read["work"], read["records"], read["failed"], read["p50_ms"]) == ("consume", 2000, 0, None)
    whole = line.json("bench", "consume", topic, "--consumers", "9")
    assert whole["records"] == 3001


def test_the_example_of_the_help_works_on_a_fresh_node(line: CommandLine, name: str) -> None:
    """Both kinds of nodes create topics for producers, as is the default."""
    made = line("bench", "produce", name, "-n", "10", "-o", "json")
    assert (made.status, made.err) == (0, f"The cluster has created topic {name}.\n")
    assert line.json("bench", "produce", name, "-n", "10")["records"] == 10
    assert line.json("bench", "consume", name, "-n", "20")["records"] == 20


def test_end_to_end(line: CommandLine, topic: str) -> None:
    # Records from before do not count.
    assert line("produce", topic, stdin="of another\n").status == 0
    told = line.json("bench", "end-to-end", topic, "-n", "200", "--rate", "400", "--patience", "100")
    assert (told["work"], told["records"], told["failed"]) == ("end-to-end", 200, 0)
    check_times(told)
    # 200 records at 400 a second are due within half a second, so no load can end sooner.
    assert told["seconds"] >= 0.49
    table = line("bench", "produce", topic, "-n", "10", "--rate", "1000", "--acks", "1").out.splitlines()
    assert table[0].split()[:3] == ["RECORDS", "FAILED", "SECONDS"]
    assert table[1].split()[:2] == ["10", "0"]
    assert table[2].startswith("- latency: from the moment a record was due to its acknowledgement")


def test_records_that_fail_are_said(line: CommandLine) -> None:
    small = Topics(line.bootstrap).create(config={"max.message.bytes": "500"})
    said = line("bench", "produce", small, "-n", "3", "--size", "1000")
    assert said.status == 1
    assert "3 records failed: " in said.failure


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("consume ‹t›-nothing-like-it", 1, "nothing-like-it': `pykbroker bench produce"),
        ("consume ‹t›x", 1, "x': did you mean '"),
        ("produce a/b", 1, "INVALID_TOPIC_EXCEPTION"),
        ("consume ‹t›", 1, "has no records: `pykbroker bench produce"),
        ("produce ‹t› -n 0", 2, "Invalid value for '-n'"),
        ("produce ‹t› --rate 0", 2, "Invalid value for '--rate'"),
        ("produce ‹t› -z brotli", 2, "Invalid value for '-z'"),
        ("produce ‹t› -n 1 -X acks=some", 1, "acks"),
    ],
)
def test_what_is_refused(line: CommandLine, topic: str, words: str, status: int, said: str) -> None:
    found = line("bench", *words.replace("‹t›", topic).split())
    assert found.status == status, found
    assert said in found.failure
