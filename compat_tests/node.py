"""The node under test as a process: pykbroker, or Apache Kafka, which judges the tests themselves.

Both are used through `Node`, so a test does not depend on the kind.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from testkit import needs
from testkit.clients import PATIENCE_S
from testkit.nodes.processes import run_here
from testkit.oracle.kafka import ApacheKafka
from testkit.ports import steady_port

ADDRESS = re.compile(rb"([A-Za-z0-9_.-]+|\[[0-9a-fA-F:]+\]):(\d{2,5})\b")


def format_directories(command: Sequence[str], *words: str, env: Mapping[str, str] | None = None) -> None:
    """Run `format` of a pykbroker, by the beginning of its commands. Without `env` this process runs its own pykbroker,
    because another process takes half a second, most of it for imports."""
    if env is None and list(command) == needs.node_command(sys.executable):
        formatted = run_here("format", *words)
        assert formatted.returncode == 0, formatted.stderr
    else:
        subprocess.run([*command, "format", *words], check=True, capture_output=True, timeout=PATIENCE_S, env=env)


class Reached(Protocol):
    """A broker or a cluster that clients can reach."""

    @property
    def bootstrap(self) -> str: ...


class Node(Reached, Protocol):
    """A running broker. `stop` and `kill` keep the data and the port; `start` uses both again."""

    @property
    def data_dir(self) -> Path: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> Node: ...
    def stop(self) -> int | None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...
    def tail(self, lines: int = 60) -> str: ...


class Pykbroker:
    """A node of `python -m pykbroker start` on a directory of its own."""

    def __init__(self, config: Mapping[str, str] | None = None, *, port: int | None = None) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="pykbroker-"))
        self.data_dir = self._home / "data"
        self.log_file = self._home / "server.log"
        self._said = self._home / "address"
        self.bootstrap = ""
        self._config = dict(config or {})
        # Not a port that the system gives to connections, so that the node finds it free when it starts again.
        self._port = port or steady_port()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self, timeout: float = PATIENCE_S) -> Pykbroker:
        self.launch()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.is_ready():
                return self
            time.sleep(0.01)
        said = self.tail()
        self.close()
        raise TimeoutError(f"pykbroker printed no address within {timeout} s:\n{said}")

    def launch(self) -> None:
        """Begin to start; `is_ready` returns whether it is done."""
        command = [
            *needs.node_command(),
            "start",
            "--port",
            str(self._port),
            "--data-dir",
            str(self.data_dir),
        ]
        for key, value in self._config.items():
            command += ["--set", f"{key}={value}"]
        with self.log_file.open("ab") as log, self._said.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=_environment(),
            )

    def is_ready(self) -> bool:
        """Return True if it has printed its address. Raises RuntimeError if it has ended instead."""
        line = self._said.read_bytes()
        found = ADDRESS.findall(line)
        if found and line.endswith(b"\n"):
            host, port = found[-1]
            self._port = int(port)
            self.bootstrap = f"{host.decode()}:{self._port}"
            return True
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"pykbroker ended with {self._process.returncode}:\n{self.tail()}")
        return False

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and do not wait."""
        if self._process is not None:
            self._process.terminate()

    def stop(self, timeout: float = PATIENCE_S) -> int | None:
        """Send SIGTERM; returns the exit code."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.terminate()
        code = self._process.wait(timeout)
        self._process = None
        return code

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE_S)
        self._process = None

    def abort(self) -> None:
        """End it with a dump of the stack of each of its threads in its log."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait(PATIENCE_S)
        self._process = None

    def close(self) -> None:
        self.kill()
        if not os.environ.get("PYKBROKER_COMPAT_KEEP"):
            shutil.rmtree(self._home, ignore_errors=True)
        atexit.unregister(self.close)

    def tail(self, lines: int = 60) -> str:
        if not self.log_file.exists():
            return "(no log)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


def _environment() -> dict[str, str]:
    """Return variables with which bytecode is kept, even if the machine disables it: a start then takes a third of the
    CPU."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(needs.CACHE / "bytecode"), "PYTHONFAULTHANDLER": "1"}


def make_node(against: str, config: Mapping[str, str] | None = None, *, port: int | None = None) -> Node:
    """Return a node of the kind under test, not started yet."""
    if against == "apache-kafka":
        return ApacheKafka(config, port=port)
    return Pykbroker(config, port=port)


def make_killable_node(against: str, config: Mapping[str, str]) -> Node:
    """Return a node that is killed often. It keeps its port."""
    port = steady_port()
    if against == "apache-kafka":
        # Apache Kafka 4.3.1 with eligible leader replicas and one replica: after some SIGKILLs its partitions
        # permanently stay without a leader. These tests do not need the feature. pykbroker has it, as by default.
        without = ["--feature", "eligible.leader.replicas.version=0"]
        # A killed broker waits until its own last session is over.
        quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
        return ApacheKafka({**config, **quick}, port=port, format_args=without)
    return Pykbroker(config, port=port)
