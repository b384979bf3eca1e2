"""The processes of a load, from their start to their results.

Responsible for starting them, for letting them begin together, and for ending them, however this process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from threading import Thread
from types import TracebackType
from typing import Any

from pykbroker.tools.bench.load_plan import LoadPlan, LoadTold
from pykbroker.tools.cluster.failure import AskFailed

#: The longest time in which a process may close its connections.
_END_SECONDS = 10

_Progress = Callable[[int], None]


class LoadRun:
    """`with LoadRun(plans) as run: run.begin(); told = run.told(progress)`. Raises AskFailed."""

    def __init__(self, plans: Sequence[LoadPlan]) -> None:
        self._processes = [_Process(plan) for plan in plans]

    def __enter__(self) -> LoadRun:
        try:
            for process in self._processes:
                process.wait_until_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def begin(self) -> None:
        for process in self._processes:
            process.begin()

    def told(self, progress: _Progress) -> list[LoadTold]:
        """Wait for all processes; `progress` is called from any thread with the number of records that are done."""
        threads = [Thread(target=process.follow, args=(lambda: progress(self._done()),)) for process in self._processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [process.result() for process in self._processes]

    def _done(self) -> int:
        return sum(process.done for process in self._processes)

    def _end(self) -> None:
        for process in self._processes:
            process.end()


class _Process:
    def __init__(self, plan: LoadPlan) -> None:
        self.done = 0
        self._told: LoadTold | None = None
        self._failure = ""
        self._process = subprocess.Popen(
            # -P, so that no module of the current directory is imported.
            [sys.executable, "-P", "-m", "pykbroker.tools.bench.load_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C must reach only this process, which then ends the new one.
            start_new_session=True,
        )
        self._write(json.dumps(plan.as_dict()))

    def wait_until_ready(self) -> None:
        while True:
            line = self._line()
            if line is None or "failed" in line:
                raise _failed((line or {}).get("failed", "a process of the load has ended"))
            if line.get("ready"):
                return

    def begin(self) -> None:
        self._write("go")

    def follow(self, tell: Callable[[], None]) -> None:
        while (line := self._line()) is not None:
            if "told" in line:
                self._told = LoadTold(**line["told"])
                self.done = self._told.records
                return
            if "failed" in line:
                self._failure = line["failed"]
                return
            self.done = line.get("done", self.done)
            tell()

    def result(self) -> LoadTold:
        if self._told is None:
            raise _failed(self._failure or "a process of the load has ended")
        return self._told

    def end(self) -> None:
        """End the process and close its pipes. It is killed if it has returned no result or does not end in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._told is None:
            self._process.kill()
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # The process has ended; its last line has the reason.
            pass

    def _line(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return None
        found: dict[str, Any] = json.loads(line)
        return found


def _failed(text: str) -> AskFailed:
    return AskFailed(text, "org.apache.kafka.common.errors.KafkaException")
