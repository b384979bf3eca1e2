"""Nodes as separate processes: the command line, its one address line, its log."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pykbroker.__main__ import main
from testkit.acting import note

#: A machine that has much else to do may take a minute for what takes a second.
_PATIENCE_SECONDS = 120.0
READY = "pykbroker is ready: "
ROOT = Path(__file__).parents[2]
_PATH = os.pathsep.join(str(ROOT / part) for part in ("", "wire", "log", "raft"))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pykbroker", *arguments]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": _PATH, **(extra or {})}


def run(
    *arguments: str, env: Mapping[str, str] | None = None, timeout: float = _PATIENCE_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run one command from start to end."""
    return subprocess.run(
        command(*arguments), env=environment(env), capture_output=True, text=True, timeout=timeout, check=False
    )


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command in this process. One of its own takes half a second or more, most of it for imports."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        status = main(arguments)
    return subprocess.CompletedProcess(command(*arguments), status, out.getvalue(), errors.getvalue())


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in note(properties).items()), encoding="latin-1")
    return path


def format_combined(home: Path, own: Mapping[str, object]) -> Path:
    """Format a node of both roles that is alone in its cluster. Return the path of its properties."""
    properties = write_properties(
        home / "server.properties",
        {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:0",
            **own,
        },
    )
    formatted = run_here("format", str(properties), "--standalone")
    assert formatted.returncode == 0, formatted.stderr
    return properties


class Process:
    """`pykbroker start ...`; it is stopped when the block ends, with or without an error."""

    def __init__(
        self, log: Path, *arguments: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> None:
        """`prefix`: a command that becomes this one, as nsenter does."""
        self.log = log
        self.address = ""
        #: the line of --ready-json
        self.told: Any = None
        self.lines: list[str] = []
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*prefix, *command("start", *arguments)], env=environment(env), stdout=subprocess.PIPE, stderr=file
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    def ready(self, timeout: float = _PATIENCE_SECONDS) -> Self:
        """Wait for the address line."""
        out = self._process.stdout
        assert out is not None
        deadline = time.monotonic() + timeout
        while not self.address:
            readable, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"not ready after {timeout} s:\n{self.tail()}"
            line = out.readline().decode()
            assert line, f"ended with {self._process.wait()} before it was ready:\n{self.tail()}"
            self.lines.append(line.rstrip("\n"))
            if line.startswith(READY):
                self.address = line[len(READY) :].strip()
            elif line.startswith("{"):
                self.told = json.loads(line)
                self.address = self.told["bootstrap_servers"]
        return self

    def interrupt(self, number: int = signal.SIGINT, timeout: float = _PATIENCE_SECONDS) -> int:
        """Send a signal and wait for the end; return the exit status."""
        self._process.send_signal(number)
        status = self._process.wait(timeout)
        assert self._process.stdout is not None
        self.lines += self._process.stdout.read().decode().splitlines()
        return status

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def wait(self, timeout: float = _PATIENCE_SECONDS) -> int:
        return self._process.wait(timeout)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
