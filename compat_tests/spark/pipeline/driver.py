"""The pipeline as a process that a test kills, and what is visible of it from outside (its checkpoints, lake and
topics).

Nothing here reaches into the process. The files that are left show that a kill has come between the write of a sink and
the commit of the checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.lake.commits import BATCH, decode
from testkit.needs import ROOT

#: Time between two looks at the files; the moment that a test waits for is some milliseconds long.
LOOK_S = 0.003
#: The same for something that stays.
SLOW_LOOK_S = 0.1


def newest(folder: Path) -> int:
    """Return the last batch that has a file in the folder, or -1 if there is none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return newest_of(names)


def newest_of(names: Iterable[str]) -> int:
    """Return the last batch among names of files, or -1 if there is none."""
    return max((int(name) for name in names if name.isdigit()), default=-1)


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query."""

    path: Path

    @property
    def planned(self) -> int:
        return newest(self.path / "offsets")

    @property
    def committed(self) -> int:
        return newest(self.path / "commits")

    @property
    def query_id(self) -> str:
        return str(json.loads((self.path / "metadata").read_text())["id"])


class Driver:
    """A program of `jobs/` in a process session of its own, so that the driver's Python and its JVM die together, as
    with a machine."""

    def __init__(self, home: Path, config: Path, job: str = "all", name: str = "driver") -> None:
        self._home = home
        self.log = home / f"{name}.log"
        self._config = config
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [sys.executable, str(ROOT / f"spark/jobs/{self._job}.py"), "--config", str(self._config), *options]
        # Far from UTC, with summer time, because nothing may depend on the time zone of the driver.
        env = {**os.environ, "PYTHONPATH": str(ROOT / "spark"), "TZ": "America/New_York"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    def run_to_the_end(self, *options: str, timeout_s: float, code: int = 0) -> None:
        self.start(*options)
        assert self._process is not None
        try:
            found = self._process.wait(timeout_s)
        finally:
            self.kill()
        assert found == code, f"ended with {found}:\n{self.tail()}"

    def stop(self, *, timeout_s: float) -> None:
        """Send SIGTERM to its Python, which ends the work that is in progress."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(timeout_s) == 0, self.tail()
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to everything that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            children = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(30)
        for child in children:  # Spark's Python workers have a process group of their own
            if child.is_running():
                child.kill()
        psutil.wait_procs(children, 30)

    def wait_for(
        self, happens: Callable[[], bool], what: str, *, timeout_s: float, look_s: float = SLOW_LOOK_S
    ) -> None:
        """Look every `look_s`. Raises AssertionError if the driver has ended, or if nothing happens."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while not happens():
            assert self._process.poll() is None, f"ended with {self._process.returncode}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{self.tail()}"
            time.sleep(look_s)

    def tail(self, lines: int = 80) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class LakeBetween:
    """Finds a batch in the lake whose commit is not in the checkpoint. It finds each batch once, because after a kill
    at such a moment the next driver starts at the same moment."""

    def __init__(self, lake: Path, checkpoint: Checkpoint) -> None:
        self._log = lake / "_delta_log"
        self._checkpoint = checkpoint
        self._next = 0
        self._written = -1
        self.found: list[int] = []

    def __call__(self) -> bool:
        if self._last_written() <= self._checkpoint.committed or self._written in self.found:
            return False
        self.found.append(self._written)
        return True

    def is_true(self) -> bool:
        """Return True if what was found last still holds; the test asks when the driver is dead."""
        return self.found[-1] > self._checkpoint.committed

    def _last_written(self) -> int:
        """Return the last batch in the table's log."""
        while True:
            try:
                commit = decode(self._next, (self._log / f"{self._next:020d}.json").read_text())
            except FileNotFoundError:
                return self._written
            self._next += 1
            if commit.note and commit.note.kind == BATCH and commit.note.state.position:
                self._written = commit.note.state.position.batch


class TopicBetween:
    """Finds that a topic has grown since a batch was planned whose commit is not in the checkpoint. It finds each batch
    once."""

    def __init__(self, bootstrap: str, topic: str, checkpoint: Checkpoint) -> None:
        self._partition = TopicPartition(topic, 0)
        self._checkpoint = checkpoint
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks", "log_level": 1})
        self._before: tuple[int, int] | None = None  # the batch under way, and the topic's end when it was first seen
        self.found: list[int] = []

    def close(self) -> None:
        self._consumer.close()

    def __call__(self) -> bool:
        batch = self._checkpoint.planned
        if batch <= self._checkpoint.committed or batch in self.found:
            return False
        try:
            end = self._consumer.get_watermark_offsets(self._partition, timeout=5)[1]
        except KafkaException:
            return False  # the broker is away
        if self._before is None or self._before[0] != batch:
            self._before = (batch, end)
        if end > self._before[1] and batch > self._checkpoint.committed:
            self.found.append(batch)
            return True
        return False

    def is_true(self) -> bool:
        """Return True if what was found last still holds; the test asks when the driver is dead."""
        return self.found[-1] > self._checkpoint.committed


def write_config(path: Path, tables: Mapping[str, Mapping[str, object]], **top: object) -> Path:
    """Write a TOML file; the scalars of JSON are also those of TOML."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in top.items()]
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items())]
    path.write_text("\n".join(lines) + "\n")
    return path
