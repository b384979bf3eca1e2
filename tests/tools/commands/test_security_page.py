"""The first section of docs/security.md is run as it is written, on ports of the test's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.nodes.nodes import eventually
from testkit.nodes.processes import environment
from testkit.ports import steady_port

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_START = "pykbroker start "


def section() -> str:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## Ten minutes")
    return rest.partition("\n## ")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program `pykbroker` of this code."""
    program = tmp_path / "bin" / "pykbroker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pykbroker "$@"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_ten_minutes(folder: Path) -> None:
    first, second = steady_port(), steady_port()
    text = section().replace("9092", str(first)).replace("9093", str(second))
    variables = {
        **environment(),
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "PYKBROKER_BOOTSTRAP_SERVER": f"localhost:{first}",
    }
    log = folder / "node.log"
    started: subprocess.Popen[bytes] | None = None
    ran = 0
    try:
        for language, block in _BLOCK.findall(text):
            if language == "properties":
                name = block.splitlines()[0].removeprefix("# ")
                (folder / name).write_text(block, encoding="utf-8")
                continue
            assert language == "console"
            for command, printed in _COMMAND.findall(block):
                ran += 1
                if command.startswith(_START):
                    with log.open("wb") as out:
                        started = subprocess.Popen(
                            command.split(), cwd=folder, env=variables, stdout=out, stderr=subprocess.STDOUT,
                            executable=folder / "bin" / "pykbroker",
                        )  # fmt: skip
                    wait_for(started, log, "Kafka Server started")
                    continue
                done = subprocess.run(
                    ["bash", "-c", command], cwd=folder, env=variables, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                )  # fmt: skip
                told = done.stdout if printed else ""
                assert told == printed, f"{command}\n{done.stdout}\n{log.read_text() if log.exists() else ''}"
                assert done.returncode == (1 if printed.startswith("pykbroker: ") else 0), (command, done.stdout)
    finally:
        if started is not None:
            started.terminate()
            assert started.wait(60) == 0
    assert ran == 9
    for secret in ("change-me", "alice-secret"):
        assert secret not in log.read_text()


def wait_for(started: subprocess.Popen[bytes], log: Path, line: str) -> None:
    """Wait until the log has a line."""
    eventually("the node serves", lambda: started.poll() is not None or line in log.read_text())
    assert started.poll() is None, log.read_text()
