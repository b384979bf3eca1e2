"""Containers of the image under test: the `docker` program starts, inspects and removes them."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

#: A bound for hanging containers, not a measure.
PATIENCE_S = 180.0
#: The rest between two questions to the engine. Each is a process of its own, and some start one in the container: more
#: of them would take the time that the container needs.
EVERY_S = 0.25
SERVES = "Kafka Server started"


def docker(*words: str, check: bool = True, patience: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=patience, check=False)
    assert not check or done.returncode == 0, f"docker {' '.join(words)}: {done.stderr or done.stdout}"
    return done


def fresh_name() -> str:
    return f"pykbroker-test-{uuid.uuid4().hex[:12]}"


class Container:
    """A container of `docker run -d`; `close` removes it with its anonymous volumes."""

    def __init__(self, image: str, options: list[str], command: list[str]) -> None:
        self.name = fresh_name()
        try:
            docker("run", "-d", "--name", self.name, *options, image, *command)
        except BaseException:
            self.close()  # perhaps created, but not started
            raise

    def inspect(self, template: str) -> str:
        return docker("inspect", "-f", template, self.name).stdout.strip()

    def log(self) -> str:
        """Return both streams, in the order in which the container wrote them."""
        return subprocess.run(
            ["docker", "logs", self.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        ).stdout

    def wait_for(self, text: str, count: int = 1) -> str:
        """Wait until the log has `text` `count` times, and return the log."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            log = self.log()
            if log.count(text) >= count:
                return log
            running = self.inspect("{{.State.Running}}") == "true"
            # It may have written the text, and ended, since the last look.
            log = log if running else self.log()
            if log.count(text) >= count:
                return log
            assert running, f"ended with {self.inspect('{{.State.ExitCode}}')}:\n{log}"
            assert time.monotonic() < deadline, f"{text!r} is not there after {PATIENCE_S} s:\n{log}"
            time.sleep(EVERY_S)

    def wait_for_end(self) -> int:
        return int(docker("wait", self.name).stdout)

    def healthy(self) -> None:
        """Wait until the engine's own probe succeeds."""
        deadline = time.monotonic() + PATIENCE_S
        while (status := self.inspect("{{.State.Health.Status}}")) != "healthy":
            assert time.monotonic() < deadline, f"{status}: {self.inspect('{{json .State.Health.Log}}')}\n{self.log()}"
            time.sleep(EVERY_S)

    def seconds_to_ready(self) -> float:
        """Return the time from the start of the container to the line of a serving node, in its last run."""
        log = docker("logs", "-t", self.name).stdout
        ready = [line.split()[0] for line in log.splitlines() if SERVES in line][-1]
        return (_time(ready) - _time(self.inspect("{{.State.StartedAt}}"))).total_seconds()

    def processor_seconds(self) -> float:
        """Return the processor time of the first process and its ended children so far."""
        fields = self.run("cat", "/proc/1/stat").stdout.rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")

    def run(self, *words: str, check: bool = True, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        return docker("exec", *(() if user is None else ("-u", user)), self.name, *words, check=check)

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run("pykbroker", "health", "-o", "json", check=False).stdout)
        return answer

    def close(self) -> None:
        docker("rm", "-fv", self.name, check=False)


def _time(text: str) -> datetime:
    """Parse 2026-11-23T07:07:46.163061674Z, to the microsecond."""
    return datetime.fromisoformat(text.rstrip("Z")[:26])


def settings(variables: Mapping[str, str]) -> list[str]:
    return [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
