"""`pykbroker records` and `pykbroker leaders`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compat_tests.command_line.asked import CommandLine
from compat_tests.topics import Topics


@pytest.fixture
def topic(line: CommandLine) -> str:
    """A topic with ten records in partition 0, a minute apart, and four in partition 1."""
    name = Topics(line.bootstrap).create(partitions=2)
    records = [{"value": i, "partition": 0, "ts": 1_000_000_000_000 + 60_000 * i} for i in range(10)]
    records += [{"value": i, "partition": 1, "ts": 1_000_000_000_000} for i in range(4)]
    assert line("produce", name, "-J", stdin="\n".join(map(json.dumps, records))).status == 0
    return name


def beginnings(line: CommandLine, topic: str) -> list[int]:
    return [row["beginning"] for row in line.json("topics", "offsets", topic)]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("--before", "3"), [3, 3]),
        (("--before", "7", "-p", "0"), [7, 0]),
        (("--before", "-2"), [8, 2]),
        (("--before", "-5"), [5, 0]),
        (("--before", "@1000000120000"), [2, 4]),
        (("--before", "2001-09-09T01:48:40"), [2, 4]),
        (("--before", "end"), [10, 4]),
    ],
)
def test_records_are_deleted_before_an_offset_or_a_time(
    line: CommandLine, topic: str, words: tuple[str, ...], left: list[int]
) -> None:
    rows: list[dict[str, Any]] = line.json("records", "delete", topic, *words)
    assert [(row["topic"], row["beginning"]) for row in rows] == [(topic, left[row["partition"]]) for row in rows]
    assert beginnings(line, topic) == left


def test_a_partition_that_cannot_do_it_is_named(line: CommandLine, topic: str) -> None:
    said = line("records", "delete", topic, "--before", "6")
    assert said.out.splitlines()[1].split() == [topic, "0", "6"]
    assert said.failure.startswith(f"Nothing is deleted in {topic}-1: ")
    assert said.failure.endswith("(OFFSET_OUT_OF_RANGE)")
    assert beginnings(line, topic) == [6, 0]


def test_leaders_are_elected(line: CommandLine, topic: str) -> None:
    """With one broker every preferred replica leads already."""
    rows = [{"topic": topic, "partition": number, "outcome": "unchanged"} for number in (0, 1)]
    assert line.json("leaders", "elect", topic) == rows
    assert line.json("leaders", "elect", f"{topic}:1") == rows[1:]
    assert line("leaders", "elect", "--all-topics").status == 0
    assert line("leaders", "elect", f"{topic}:7").failure == f'The partitions "{topic}-7" do not exist'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("records", "delete", "t"), "Missing option '--before'."),
        (("records", "delete", "t", "--before", "stored"), "Invalid value for '--before': 'stored' deletes nothing"),
        (("records", "delete", "t", "--before", "soon"), "Invalid value for '--before': 'soon' is not beginning, end"),
        (("records", "delete", "nothing-like-it-at-all", "--before", "end"), "There is no topic 'nothing-like-it-at-"),
        (("leaders", "elect"), "Say which partitions: TOPIC or --all-topics."),
        (("leaders", "elect", "t", "--all-topics"), "Say which partitions: TOPIC or --all-topics."),
        (("leaders", "elect", "nothing-like-it-at-all"), "There is no topic 'nothing-like-it-at-all'"),
    ],
)
def test_wrong_words_are_one_line(line: CommandLine, words: tuple[str, ...], said: str) -> None:
    assert line(*words).failure.startswith(said)
