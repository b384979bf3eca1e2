"""kafka-reassign-partitions, theirs and ours, on one node: their output, and the files that they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat_tests.our_tools.both import BothTools
from compat_tests.topics import Topics


def plan(path: Path, *moves: tuple[str, int, list[int]], log_dirs: list[str] | None = None) -> str:
    directories = {} if log_dirs is None else {"log_dirs": log_dirs}
    partitions = [
        {"topic": topic, "partition": number, "replicas": replicas, **directories} for topic, number, replicas in moves
    ]
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


def test_throttles_are_set_and_taken_away(both: BothTools, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    at = ["--reassignment-json-file", plan(tmp_path / "plan.json", (topic, 0, [1]), (topic, 1, [1]))]
    throttles = ["--throttle", "7000000", "--replica-alter-log-dirs-throttle", "8000000"]
    started = both.agree("reassign-partitions", "--execute", *at, *throttles)
    assert "The inter-broker throttle limit was set to 7000000 B/s" in started.out
    shown = [
        both.agree("configs", "--describe", "--entity-type", kind, "--entity-name", name).out
        for kind, name in (("topics", topic), ("brokers", "1"))
    ]
    assert "leader.replication.throttled.replicas=0:1,1:1 " in shown[0]
    assert "follower.replication.throttled.rate=7000000 " in shown[1]
    both.agree("reassign-partitions", "--verify", *at)
    for kind, name in (("topics", topic), ("brokers", "1")):
        left = both.agree("configs", "--describe", "--entity-type", kind, "--entity-name", name).out
        assert "throttled" not in left


def test_replicas_are_moved_between_directories(both: BothTools, topics: Topics, tmp_path: Path) -> None:
    """One directory is enough to compare requests and output; `compat_tests/three_nodes` has moves."""
    topic = topics.create()
    at = "--reassignment-json-file"
    started = both.agree("reassign-partitions", "--execute", at, plan(tmp_path / "any.json", (topic, 0, [1])))
    (current,) = json.loads(started.out.splitlines()[2])["partitions"]
    file = plan(tmp_path / "there.json", (topic, 0, [1]), log_dirs=current["log_dirs"])
    limits = ["--replica-alter-log-dirs-throttle", "9000000", "--timeout", "60000"]
    moved = both.agree("reassign-partitions", "--execute", at, file, *limits)
    assert f"Successfully started moving log directory to {current['log_dirs'][0]} for replica {topic}-0" in moved.out
    assert "completed successfully" in both.agree("reassign-partitions", "--verify", at, file).out
    both.agree("reassign-partitions", "--cancel", at, file)
    elsewhere = plan(tmp_path / "elsewhere.json", (topic, 0, [1]), log_dirs=["/none/such"])
    first_lines = [lambda text: "\n".join(text.splitlines()[:7])]
    assert both.agree("reassign-partitions", "--execute", at, elsewhere, change=first_lines).status == 1
    assert "is not being moved from log dir" in both.agree("reassign-partitions", "--verify", at, elsewhere).out


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
    for number, replicas in enumerate(([7], [], [1, 1])):
        file = plan(tmp_path / f"{number}.json", (topic, 0, replicas))
        assert both.agree("reassign-partitions", "--execute", "--reassignment-json-file", file,
                          change=[lambda text: text.partition("\n")[0]]).status == 1  # fmt: skip
