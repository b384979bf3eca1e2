"""The programs of docs/other-languages.md start a node, say where it serves and stop it, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from testkit import needs
from testkit.console import blocks, page, programs
from testkit.nodes.processes import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _only_pykbroker(against: str) -> None:
    if against == "apache-kafka":
        pytest.skip("the page starts pykbroker")


def command(language: str, file: Path) -> list[str]:
    """Return the command that runs a program of one file. Skip the test if the language is not installed."""
    if language == "go":
        return [needs.go((1, 20)), "run", str(file)]
    if language == "java":
        return [needs.java(), str(file)]
    return [needs.node(18), str(file)]


@pytest.mark.parametrize(("language", "name"), [("go", "main.go"), ("java", "Kafka.java"), ("javascript", "start.js")])
def test_a_program_starts_a_node_and_stops_it(language: str, name: str, tmp_path: Path) -> None:
    (source,) = [text for found, text in blocks(page("docs/other-languages.md")) if found == language]
    file = tmp_path / name
    file.write_text(source, encoding="utf-8")
    done = subprocess.run(
        command(language, file),
        cwd=tmp_path,
        env=environment({"PATH": f"{programs(tmp_path)}{os.pathsep}{os.environ['PATH']}", "GO111MODULE": "off"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"localhost:\d+\n", done.stdout)
    # The node's own last line: it stopped in order, because its standard input ended.
    assert "shut down completed" in done.stderr
