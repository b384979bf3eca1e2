"""`pykbroker reassign` on one node: plans, throttles, refusals. compat_tests/three_nodes has moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compat_tests.command_line.asked import CommandLine
from compat_tests.node import make_node
from compat_tests.our_tools.both import ours
from compat_tests.topics import Topics


@pytest.fixture
def topic(line: CommandLine) -> str:
    return Topics(line.bootstrap).create(partitions=2)


def throttles(line: CommandLine, topic: str) -> str:
    at = ["--bootstrap-server", line.bootstrap, "--describe", "--entity-type"]
    return (
        ours("configs", [*at, "topics", "--entity-name", topic]).out
        + ours("configs", [*at, "brokers", "--entity-name", "1"]).out
    )


def test_a_plan_from_its_proposal_to_its_end(line: CommandLine, topic: str, tmp_path: Path) -> None:
    proposed = line("reassign", "generate", topic, "--brokers", "1", "-o", "json")
    assert (proposed.status, proposed.err) == (0, "")
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(proposed.out)
    told = json.loads(proposed.out)
    assert [(one["topic"], one["partition"], one["replicas"]) for one in told["partitions"]] == [
        (topic, 0, [1]),
        (topic, 1, [1]),
    ]
    words = ["reassign", "execute", str(plan), "--throttle", "7000000", "--throttle-directories", "8000000"]
    rows = line.json(*words, "--rollback", str(back))
    assert rows[1] == {"topic": topic, "partition": 1, "now": [1], "wanted": [1], "state": "completed"}
    assert "leader.replication.throttled.replicas=0:1,1:1 " in throttles(line, topic)
    assert "follower.replication.throttled.rate=7000000 " in throttles(line, topic)
    assert line("reassign", "verify", str(plan), "--preserve-throttles").status == 0
    assert "throttled" in throttles(line, topic)
    table = line("reassign", "verify", str(plan))
    assert (table.status, table.err) == (0, "")
    assert table.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "NOW", "WANTED", "STATE"]
    assert "throttled" not in throttles(line, topic)
    assert line("reassign", "cancel", str(plan)).status == 0
    assert line("reassign", "execute", str(plan), "--throttle", "7000000", "--wait").status == 0
    assert "throttled" not in throttles(line, topic)
    # Kafka's tool, with which ours is compared, accepts both files; the one of the current state has directories.
    assert json.loads(back.read_text())["partitions"][0]["log_dirs"][0].startswith("/")
    for file in (plan, back):
        words = ["--bootstrap-server", line.bootstrap, "--verify", "--reassignment-json-file", str(file)]
        assert ours("reassign-partitions", words).status == 0
    assert line("reassign", "execute", str(back)).status == 0


@pytest.mark.parametrize("kind", ["pykbroker", "apache-kafka"])
def test_a_replica_moves_to_another_directory(kind: str, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]
    node = make_node(kind, {"log.dirs": ",".join(folders)})
    try:
        line = CommandLine(node.start().bootstrap)
        topic = Topics(line.bootstrap).create()
        assert line("produce", topic, stdin="one\n").status == 0
        here, there = sorted(folders, key=lambda folder: not Path(folder, f"{topic}-0").is_dir())
        plan = tmp_path / "plan.json"
        move = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [there]}
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        done = line("reassign", "execute", str(plan), "--wait")
        assert (done.status, done.err) == (0, "")
        assert (Path(here, f"{topic}-0").is_dir(), Path(there, f"{topic}-0").is_dir()) == (False, True)
        assert line("reassign", "verify", str(plan)).status == 0
        assert line("consume", topic).out == "one\n"
    finally:
        node.close()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ('{"version":1,"partitions":[{"topic":"‹t›","partition":0,"replicas":[7]}]}', "Unknown broker id 7"),
        ('{"version":1,"partitions":[{"topic":"‹t›","partition":0,"replicas":[]}]}', "cannot be empty"),
        ('{"version":1,"partitions":[{"topic":"‹t›","partition":9,"replicas":[1]}]}', "Unable to find partition"),
        ('{"version":1,"partitions":[]}', "cannot be empty"),
        ("{", ""),
    ],
)
def test_plans_that_are_refused(line: CommandLine, topic: str, tmp_path: Path, plan: str, said: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan.replace("‹t›", topic))
    found = line("reassign", "execute", str(file))
    assert found.status == 1
    assert said in found.failure


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("generate none-such --brokers 1", 1, "There is no topic 'none-such'"),
        ("generate ‹t› --brokers 7", 1, "Unknown broker id 7"),
        ("generate ‹t› --brokers 1,1", 2, "no list of different brokers"),
        ("generate ‹t> --brokers x", 2, "no list of different brokers"),
        ("generate ‹t›", 2, "Missing option '--brokers'"),
        ("execute /nowhere", 1, "/nowhere: No such file or directory"),
        ("execute /nowhere --throttle 0", 2, "Invalid value for '--throttle'"),
        ("verify", 2, "Missing argument"),
    ],
)
def test_what_is_refused(line: CommandLine, topic: str, words: str, status: int, said: str) -> None:
    found = line("reassign", *words.replace("‹t›", topic).split())
    assert found.status == status, found
    assert said in found.failure
