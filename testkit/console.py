"""Run the commands and the Python of a page as a reader does, on a node of its own, and compare the output.

A block `console` has commands after `$ `, each with its output. The last command of a block `fails` ends with another
status than 0, and prints the rest of the block to standard output and standard error together. A block `python` is a
program, and a block without a language that follows it is the output of the program. A block `python` that begins with
`# name.py` is a file, which is written and not run. `localhost:9092` on a page is the node of the test. The output on a
page may have `…` for any text within a line, and a line `[…]` for any lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testkit.nodes.processes import ROOT, Process, environment
from testkit.plugin_runs import run_pytest

ADDRESS = "localhost:9092"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\w+\.py)\n")
_PATIENCE_S = 120.0


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield language and text of each block of a page."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield match[1], match[2]


@dataclass
class Step:
    """One command or one program, and its output on the page. `prints` is None if the page has no output for it."""

    command: str
    prints: str | None
    is_python: bool = False
    fails: bool = False


def steps(page: Path) -> list[Step]:
    """Return what a page does, in its order."""
    found: list[Step] = []
    after_python = False
    for language, text in blocks(page):
        if language in ("console", "fails"):
            # A line that ends with a backslash goes on in the next one.
            for line in re.sub(r"\\\n\s*", "", text).splitlines():
                if line.startswith("$ "):
                    found.append(Step(line.removeprefix("$ "), ""))
                else:
                    found[-1].prints = f"{found[-1].prints}{line}\n"
            found[-1].fails = language == "fails"
        elif language == "python":
            found.append(Step(text, None, is_python=True))
        elif not language and after_python:
            found[-1].prints = text
        after_python = language == "python"
    return found


def matches(printed: str, expected: str) -> bool:
    """Return True if a command printed what the page says, where blanks at the end of a line do not count."""
    pattern = ""
    for line in expected.rstrip().splitlines():
        if line == "[…]":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(map(re.escape, line.rstrip().split("…"))) + r"\s*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n" if printed.strip() else "") is not None


class Reader:
    """`with Reader(folder) as reader: reader.does(step)`: a person with a node that was just started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._node = Process(folder / "server.log", "--port", "0", "--data-dir", str(folder / "data"))

    def __enter__(self) -> Self:
        self._node.__enter__()
        self._node.ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._node.__exit__(kind, error, trace)

    def through(self, steps: Iterable[Step]) -> None:
        """Do one step after the other."""
        for step in steps:
            self.does(step)

    def does(self, step: Step) -> None:
        """Run a step and compare what it prints. Raises AssertionError if it fails or prints something else."""
        text = self._here(step.command)
        if step.is_python and (named := _NAMED.match(text)):
            (self._folder / named[1]).write_text(text, encoding="utf-8")
            return
        if step.is_python and "def test_" in text:
            home = self._folder / "tests"
            home.mkdir(exist_ok=True)
            tested = run_pytest(home, text)
            assert tested.returncode == 0, tested.stdout
            return
        command = [sys.executable, "-c", text] if step.is_python else ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=environment(
                {
                    "PYKBROKER_BOOTSTRAP_SERVER": self._node.address,
                    "PATH": f"{programs(self._folder)}{os.pathsep}{os.environ['PATH']}",
                }
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if step.fails else subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert (done.returncode != 0) == step.fails, f"{text}: {done.stdout}{done.stderr}"
        if step.prints is not None:
            expected = self._here(step.prints)
            assert matches(done.stdout, expected), f"{text}\nprinted\n{done.stdout}\nand the page says\n{expected}"

    def _here(self, text: str) -> str:
        """Return what a text of the page means here."""
        port = self._node.address.rpartition(":")[2]
        return text.replace(ADDRESS, self._node.address).replace("--port 9092", f"--port {port}")


def programs(folder: Path) -> Path:
    """Make a folder with `pykbroker` and `python` of this environment, where the package need not be installed."""
    home = folder / "bin"
    if not home.exists():
        home.mkdir()
        for name, words in {"pykbroker": "-m pykbroker ", "python": "", "python3": ""}.items():
            (home / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            (home / name).chmod(0o755)
    return home


def page(name: str) -> Path:
    """Return the path of a page, by its name from the root of the repository."""
    return ROOT / name
