"""One node's home (server.properties, log directories, ports), used in turn by Apache Kafka and pykbroker.

Both read the same file and the same directories; only one runs at a time.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from compat_tests.node import format_directories
from compat_tests.tool_server import run_shared
from testkit import needs
from testkit.oracle.kafka import BROKER_JVM, SINGLE_NODE, broker_command
from testkit.ports import steady_port

Owner = Literal["kafka", "pykbroker"]
READY = {"kafka": b"Kafka Server started", "pykbroker": b"pykbroker is ready"}
START_TIMEOUT_S = 180


class Home:
    """Use as a context. Call `format`, then `start`; after `stop` or `kill` the next owner may `start`."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        log_dirs: Sequence[str] = ("data",),
        checkout: Path | None = None,
    ) -> None:
        """`checkout`: run the pykbroker of an earlier release from this checkout."""
        self.path = Path(tempfile.mkdtemp(prefix="handover-"))
        self.log_dirs = [self.path / name for name in log_dirs]
        self.port = steady_port()
        self.bootstrap = f"localhost:{self.port}"
        self.owner: Owner | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._python = _python_of(checkout)
        self.properties = self.path / "server.properties"
        self.configure(config or {})
        atexit.register(self.close)

    def configure(self, config: Mapping[str, str]) -> None:
        """Set the properties of the next start, besides those that both sides need."""
        controller = f"localhost:{self.port + 1}"
        values = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://localhost:{self.port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://localhost:{self.port}",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": ",".join(map(str, self.log_dirs)),
            # A life waits until a log start is in its checkpoint. By default that is half a minute after the start.
            "log.initial.task.delay.ms": "1000",
            "log.flush.start.offset.checkpoint.interval.ms": "1000",
            **config,
        }
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log_file(self, owner: Owner) -> Path:
        return self.path / f"{owner}.log"

    def format(self, by: Owner, *args: str) -> None:
        """Format with the owner's own tool, by default without further arguments."""
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "x")
        if by == "kafka":
            words = ["format", f"--cluster-id={cluster_id}", "-c", str(self.properties), "--standalone", *args]
            run_shared("kafka.tools.StorageTool", words)
        else:
            words = [str(self.properties), f"--cluster-id={cluster_id}", *args]
            format_directories(needs.node_command(), *words, env=self._python)

    def start(self, owner: Owner) -> None:
        """Start an owner; returns when clients can connect."""
        assert self._process is None, f"{self.owner} is at home"
        if owner == "kafka":
            info = [f"-Dorg.slf4j.simpleLogger.log.{name}=info" for name in ("kafka", "org.apache.kafka")]
            command = broker_command([*BROKER_JVM, *info])
        else:
            command = [*needs.node_command(), "start"]
        log_file = self.log_file(owner)
        before = log_file.stat().st_size if log_file.exists() else 0
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.path,
                env=self._python,
            )
        self.owner = owner
        deadline = time.monotonic() + START_TIMEOUT_S
        while READY[owner] not in log_file.read_bytes()[before:]:
            if self._process.poll() is not None:
                raise RuntimeError(f"{owner} ended with {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{owner} was not ready after {START_TIMEOUT_S} s:\n{self.tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop with a controlled shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, like a crash."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(60)
                raise AssertionError(f"{self.owner} did not stop:\n{self.tail()}") from None
        self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.path, ignore_errors=True)
        atexit.unregister(self.close)

    def tail(self, lines: int = 60) -> str:
        assert self.owner is not None
        return "\n".join(self.log_file(self.owner).read_text(errors="replace").splitlines()[-lines:])

    def said(self, owner: Owner) -> str:
        """Return the whole log of an owner."""
        path = self.log_file(owner)
        return path.read_text(errors="replace") if path.exists() else ""


def _python_of(checkout: Path | None) -> dict[str, str] | None:
    """Return the environment in which `python -m pykbroker` is that of a checkout."""
    if checkout is None:
        return None
    roots = [checkout, *(checkout / name for name in ("wire", "log", "raft"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
