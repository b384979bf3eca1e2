"""kafka-reassign-partitions, theirs and ours, on one node: what they say, and the files that they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat_tests.our_tools.both import BothTools
from compat_tests.topics import Topics


def plan(path: Path, *moves: tuple[str, int, list[int]]) -> str:
    partitions = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in moves]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_moves_to_where_the_replicas_are(both: BothTools, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    file = plan(tmp_path / "plan.json", (topic, 0, [1]), (topic, 1, [1]))
    at = ["--reassignment-json-file", file]
    started = both.agree("reassign-partitions", "--execute", *at)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started.out
    verified = both.agree("reassign-partitions", "--verify", *at)
    assert f"Reassignment of partition {topic}-1 is completed." in verified.out
    assert f"Clearing topic-level throttles on topic {topic}" in verified.out
    both.agree("reassign-partitions", "--verify", *at, "--preserve-throttles")
    both.agree("reassign-partitions", "--cancel", *at)
    assert both.agree("reassign-partitions", "--list").out == "No partition reassignments found.\n"
    moved = tmp_path / "topics.json"
    moved.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    both.agree("reassign-partitions", "--generate", "--topics-to-move-json-file", str(moved), "--broker-list", "1")


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--list --verify",
        "--verify",
        "--generate --broker-list 1",
        "--list --additional",
        "--none-such",
    ],
)
def test_what_is_refused(both: BothTools, words: str) -> None:
    both.agree_on_status("reassign-partitions", *words.split())


def test_plans_that_are_refused(both: BothTools, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    for number, moves in enumerate([[(topic, 0, [7])], [(topic, 0, [])], [(topic, 0, [1, 1])]]):
        file = plan(tmp_path / f"{number}.json", *moves)
        assert both.agree("reassign-partitions", "--execute", "--reassignment-json-file", file,
                          change=[lambda text: text.partition("\n")[0]]).status == 1  # fmt: skip
