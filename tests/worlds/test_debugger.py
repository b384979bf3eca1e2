"""A debugger in a marked test, with pytest in a terminal of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

#: pytest's own output is captured here, as by default.
IN_A_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
MODULE = """
import asyncio
import pytest

@pytest.mark.kafka_world(seeds=2)
async def test_it(kafka_world):
    async def service():
        await asyncio.sleep(2)
        answer = 41 + kafka_world.seed
        {stop}

    kafka_world.app("service", service)
    await kafka_world.sleep("5 s")
    {then}
"""


def converse(folder: Path, stop: str, then: str, arguments: Sequence[str], commands: Sequence[str]) -> str:
    """Run pytest in a terminal, answer each of its questions with the next command; return all that it showed."""
    (folder / "test_it.py").write_text(MODULE.format(stop=stop, then=then))
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *pytest_command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    shown, answered = b"", 0
    while piece := os.read(process.stdout.fileno(), 65_536):
        shown += piece
        while answered < min(shown.count(b"(Pdb) "), len(commands)):
            process.stdin.write(commands[answered].encode() + b"\n")
            process.stdin.flush()
            answered += 1
    process.stdin.close()
    process.stdout.close()
    process.wait()
    return shown.decode(errors="replace")


def test_a_breakpoint_stops_each_seed_and_a_person_may_think(tmp_path: Path) -> None:
    """Four seconds of real time pass between two commands, twice as long as a callback may take."""
    think = "import select; select.select([], [], [], 4)"
    commands = ["p 'found', answer", think, "p 'virtual', kafka_world.seconds() < 60", "c", "p 'found', answer", "c"]
    said = converse(tmp_path, "breakpoint()", "", [], commands)
    assert "('found', 41)" in said, said
    assert "('found', 42)" in said, said
    assert "('virtual', True)" in said, said
    assert "1 passed" in said, said


def test_pdb_is_entered_where_a_world_fails(tmp_path: Path) -> None:
    said = converse(tmp_path, "pass", "assert kafka_world.seed == 0", ["--pdb"], ["p 'seed', kafka_world.seed", "q"])
    assert "('seed', 1)" in said, said
    assert "1 failed" in said, said
    assert "seed 1 of 2" in said, said
