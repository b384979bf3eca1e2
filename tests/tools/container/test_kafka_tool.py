"""The script for the names of Kafka's tools in the image, and its arguments."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pykbroker.tools.kafka.__main__ import TOOLS

DOCKER = Path(__file__).parents[3] / "docker"
SCRIPT = DOCKER / "scripts" / "bin" / "kafka-tool"


def called(tmp_path: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    link = tmp_path / name
    link.symlink_to(SCRIPT)
    return subprocess.run(["bash", str(link), *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kafka-streams-groups", "streams groups (KIP-1071) are not served"),
        ("connect-distributed.sh", "it has no Kafka Connect"),
        ("zookeeper-shell", "there is no ZooKeeper"),
    ],
)
def test_a_tool_that_is_not_there_says_so(tmp_path: Path, name: str, reason: str) -> None:
    ended = called(tmp_path, name, "--help")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"{name}: this image has no such tool: {reason}\n")


def test_a_class_that_nothing_stands_for(tmp_path: Path) -> None:
    ended = called(tmp_path, "kafka-run-class.sh", "-name", "x", "kafka.tools.JmxTool", "--one-time")
    assert ended.returncode == 1
    assert ended.stderr == (
        "kafka-run-class.sh: this image has no such tool: there is no JVM, and nothing stands in for the class "
        "kafka.tools.JmxTool\n"
    )
    assert called(tmp_path, "kafka-run-class").stderr.startswith("USAGE: kafka-run-class ")


def test_each_tool_has_its_name_and_its_class_in_the_image() -> None:
    installed = re.search(r"for name in (acls .*?); do", (DOCKER / "install.sh").read_text(), re.S)
    assert installed is not None
    assert set(TOOLS) <= set(installed[1].replace("\\\n", " ").split())
    by_class = set(re.findall(r"^    \w+\) name=([\w-]+) ;;", SCRIPT.read_text(), re.M))
    assert by_class == {*TOOLS, "server-start", "storage", "dump-log"}
