"""Runs a section of a page as a user does: its blocks of `sh` and `python`, one line after the other.

A line that ends with a comment about a terminal continues in the background. A line that starts nodes is waited for,
and stops the nodes that an earlier line has started (Ctrl-C). Lines that make an environment are left out, because the
tests have one. Other blocks are outputs of commands, and are not compared.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from testkit.clients import wait_until
from testkit.needs import ROOT

_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IN_A_TERMINAL = re.compile(r"#.*\bterminal$")
_READY = re.compile(r"^pykbroker is ready: (\S+)\n", re.MULTILINE)
_ENVIRONMENT = ("python3 -m venv ", "pip install ")
#: For a command that takes seconds, on a busy machine.
PATIENCE_S = 300.0


def blocks(page: str, heading: str) -> Iterator[tuple[str, str]]:
    """Yield language and text of each block between a heading and the next one."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for match in _BLOCK.finditer(section):
        yield match[1], match[2]


class Walk:
    """`with Walk(folder, {"/tmp/data": ...}) as walk: walk.through("page.md", "Ten minutes")`.

    `instead`: text on the page -> its replacement here; with `--port 0` commands need the addresses of the nodes.
    `before_python`: a wait that the page asks the user for. `environment`: further variables of all programs. `said`:
    the output of each line.
    """

    def __init__(
        self,
        folder: Path,
        instead: Mapping[str, str],
        before_python: Callable[[], object] = lambda: None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._instead = instead
        self._before_python = before_python
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            # Packages that pip would install from the checkout, and that the environment of the tests lacks.
            "PYTHONPATH": os.pathsep.join(str(ROOT / path) for path in ("spark/segments", "wire", "log")),
            "PYSPARK_PYTHON": sys.executable,
            "MPLBACKEND": "agg",
            **(environment or {}),
        }
        self._background: dict[str, subprocess.Popen[bytes]] = {}
        self.said: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._background:
            self._end(next(iter(self._background)))

    def through(self, page: str, heading: str) -> None:
        for language, text in blocks(page, heading):
            for old, new in self._instead.items():
                text = text.replace(old, new)
            if language == "python":
                self._before_python()
                self._run([sys.executable, "-c", text], text)
                continue
            for line in text.splitlines():
                if not line.startswith(_ENVIRONMENT):
                    self._line(line)

    def _line(self, line: str) -> None:
        if not _IN_A_TERMINAL.search(line):
            self._run(["bash", "-euo", "pipefail", "-c", line], line)
            return
        kind = " ".join(line.split()[:2])
        if kind in self._background:
            self._end(kind)
        log = self.folder / f"{kind.replace(' ', '-')}.log"
        with log.open("wb") as file:
            # In a session of its own, so that Ctrl-C reaches it and its children.
            self._background[kind] = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        if kind == "pykbroker start":
            wait_until(lambda: self._is_ready(kind, log), f"{line} is ready", timeout_s=PATIENCE_S)

    def _is_ready(self, kind: str, log: Path) -> bool:
        said = log.read_text(errors="replace")
        assert self._background[kind].poll() is None, said
        ready = _READY.search(said)
        if ready is not None:
            self._environment["PYKBROKER_BOOTSTRAP_SERVER"] = ready[1]
        return ready is not None

    def _end(self, kind: str) -> None:
        process = self._background.pop(kind)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _run(self, command: list[str], text: str) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{textwrap.shorten(text, 300)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        self.said[text] = done.stdout + done.stderr
