"""A Spark of its own. A master and its workers run as processes on loopback, and programs are submitted to it.

When a worker is killed, all that it has started (its executors and their Python) is killed too, as when its machine
fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from compat_tests.spark.session import QUICK, short_lived
from testkit.clients import wait_until
from testkit.ports import steady_port

HOST = "127.0.0.1"
#: The limit for something that happens in JVMs that have to start first, on a machine that does other work too.
PATIENCE_S = 600.0


def _environment() -> dict[str, str]:
    """Return the environment without the checkout, with the Python of the tests. A program has only what it is
    submitted with."""
    import pyspark

    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return clean | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": short_lived(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


class Process:
    """A program in a process session of its own, with its log in a file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                cwd=log.parent,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def runs(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """Return the exit code of a program that ends by itself."""
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            said = self.said()[-5000:]
            raise AssertionError(f"the program runs after {PATIENCE_S} s and has said:\n{said}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the process and to everything that it has started."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        if self.runs():
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        for child in children:
            if child.is_running():
                child.kill()
        psutil.wait_procs(children, 30)


@dataclass(frozen=True, slots=True)
class Submission:
    """The files that `spark-submit` sends along, and the resources of the cluster that a program gets."""

    wheels: Sequence[Path]
    packages: str = ""
    settings: Mapping[str, str] | None = None

    def options(self) -> list[str]:
        """Return the session's options that are the same for all tests, which make it small and quick to start."""
        words = ["--driver-memory", "768m", "--executor-memory", "768m"]
        words += ["--py-files", ",".join(map(str, self.wheels))]
        if self.packages:
            words += ["--packages", self.packages]
        small = {
            **QUICK,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.extraJavaOptions": short_lived(),
            "spark.executor.extraJavaOptions": short_lived(),
            **(self.settings or {}),
        }
        return words + [word for key, value in small.items() for word in ("--conf", f"{key}={value}")]


class Standalone:
    """`with Standalone(folder) as spark: spark.submit(...)`runs a master, and two workers with a core each."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = steady_port()
        self._started = 0
        self._processes: list[Process] = []
        #: The workers that were not killed, by name.
        self.workers: dict[str, Process] = {}

    def __enter__(self) -> Self:
        try:
            web = str(self._port + 1)
            self._spark("deploy.master.Master", "master", "--port", str(self._port), "--webui-port", web)
            for _ in range(2):
                self.start_worker()
            wait_until(lambda: len(self.living()) == 2, "two workers have registered", timeout_s=PATIENCE_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._processes:
            self._processes.pop().kill()

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def _spark(self, name: str, log: str, *words: str) -> Process:
        home = Path(_environment()["SPARK_HOME"])
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.{name}", "--host", HOST, *words]
        process = Process(command, self._home / f"{log}.log")
        self._processes.append(process)
        return process

    def start_worker(self) -> str:
        """Start a worker. Return its name, which is also the name of its folder and its log."""
        self._started += 1
        name = f"worker-{self._started}"
        words = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self._home / name), self.url]
        self.workers[name] = self._spark("deploy.worker.Worker", name, *words)
        return name

    def kill_worker(self, name: str) -> None:
        """Send SIGKILL to the worker and its executors. The master finds out by itself."""
        worker = self.workers.pop(name)
        worker.kill()
        self._processes.remove(worker)

    def state(self) -> Any:
        """Return the state that the master reports, or None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port + 1}/json/", timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None

    def living(self) -> list[Any]:
        """Return the workers that the master knows and does not miss; dead workers keep their cores in its list."""
        return [each for each in (self.state() or {"workers": []})["workers"] if each["state"] == "ALIVE"]

    def submit(self, program: Path, *words: str, submission: Submission) -> Process:
        """Start `spark-submit --py-files WHEELS program words` as a process, whose log has its output."""
        home = Path(_environment()["SPARK_HOME"])
        command = [str(home / "bin" / "spark-submit"), "--master", self.url, *submission.options(), str(program)]
        process = Process([*command, *words], self._home / f"{program.stem}-{len(self._processes)}.log")
        self._processes.append(process)
        return process
