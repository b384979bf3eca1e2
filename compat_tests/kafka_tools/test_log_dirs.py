"""Apache Kafka's tools on a node with three log directories: LogDirsCommand and ReassignPartitionsCommand for a replica
that moves. The latter's --execute needs AlterPartitionReassignments first, which is not served.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.differential import nodes
from compat_tests.differential.scripts.directories import alter, made_in, paths, throttle, where
from compat_tests.differential.session import Session
from compat_tests.tool_server import run_shared

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def side(against: str) -> Iterator[nodes.Side]:
    kind = nodes.KINDS["directories"]
    with nodes.apache_kafka(kind) if against == "apache-kafka" else nodes.pykbroker(kind) as side:
        yield side


def described(side: nodes.Side, topic: str) -> dict[str, list[dict[str, Any]]]:
    tool = "org.apache.kafka.tools.LogDirsCommand"
    said = run_shared(tool, ["--bootstrap-server", side.address, "--describe", "--topic-list", topic]).out
    (node,) = json.loads(said[said.index("{") :])["brokers"]
    return {log_dir["logDir"]: log_dir["partitions"] for log_dir in node["logDirs"]}


def test_a_move_is_shown_and_verified(side: nodes.Side, tmp_path: Path) -> None:
    session = Session("tools", side.address, side.texts, "", False)
    first, second, third = paths(session)
    topic = made_in(session, "t", first, max_message_bytes="2000000")
    session.make_records(topic, [b"x" * 1_000_000] * 4)
    throttle(session, "1000")
    session.ask(alter(topic, second))
    session.until(lambda: len(where(session, topic)) == 2, "a copy is seen")
    shown = described(side, topic)
    assert [(one["partition"], one["isFuture"]) for one in shown[first]] == [(f"{topic}-0", False)]
    assert [(one["partition"], one["isFuture"]) for one in shown[second]] == [(f"{topic}-0", True)]
    assert shown[second][0]["offsetLag"] > 0
    assert shown[third] == []
    wanted = tmp_path / "wanted.json"
    moved = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [second]}
    wanted.write_text(json.dumps({"version": 1, "partitions": [moved]}))

    def verified() -> str:
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        words = ["--bootstrap-server", side.address, "--reassignment-json-file", str(wanted), "--verify"]
        return run_shared(tool, [*words, "--preserve-throttles"]).out

    assert f"Reassignment of replica {topic}-0-1 is still in progress." in verified()
    throttle(session, None)
    session.until(lambda: where(session, topic) == [[1, False, False]], "it has moved")
    assert f"Reassignment of replica {topic}-0-1 completed successfully." in verified()
    assert [one["isFuture"] for one in described(side, topic)[second]] == [False]
    session.close()
