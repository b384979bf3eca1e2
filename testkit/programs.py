"""Programs that run during the test, report their work in lines of JSON, and are killed with SIGKILL.

This module judges nothing. Every process is ended by its own pid, at the latest by `Workers.close`.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testkit.clients import PATIENCE_S

Event = dict[str, Any]


class Worker:
    """One running program; a thread collects its output."""

    def __init__(self, name: str, command: Sequence[str], log: Path, on_event: Callable[[Event], None]) -> None:
        self.name = name
        self.events: list[Event] = []
        self._on_event = on_event
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, bufsize=1
            )
        self._reader = threading.Thread(target=self._read, name=f"reader of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # An unfinished line of a killed program is not an event.
            if line.startswith("{") and line.endswith("}\n"):
                event = json.loads(line)
                self.events.append(event)
                self._on_event(event)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL; everything that it printed before is an event when this returns."""
        self._process.kill()
        self.wait()

    def terminate(self) -> None:
        """Send SIGTERM, the request to end."""
        self._process.terminate()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        code = self._process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def tail(self, size: int = 3000) -> str:
        return self._log.read_text(errors="replace")[-size:]


class Slot:
    """A place where one worker after another runs the same command; a killed or ended one is restarted.

    A worker ends by itself only with `may_end`, or when the last thing it said has the text `excused`, by which a known
    defect of the client is recognized."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, *, may_end: bool = True, excused: str = ""
    ) -> None:
        self.name = name
        self.kills = 0
        self.ends: list[int] = []
        #: the events of all workers in this place
        self.events: list[Event] = []
        self._command = command
        self._folder = folder
        self._may_end = may_end
        self._excused = excused
        self.worker = self._start()

    def _start(self) -> Worker:
        return Worker(self.name, self._command, self._folder / f"{self.name}.log", self.events.append)

    def kill(self) -> None:
        self.worker.kill()
        self.kills += 1
        self.worker = self._start()

    def tend(self) -> None:
        """Restart a worker that has ended by itself: some end at the end of their input, some when an error is
        fatal."""
        if not self.worker.alive():
            code = self.worker.wait()
            self.ends.append(code)
            said = self.worker.tail()
            excused = bool(self._excused) and self._excused in said
            assert self._may_end or excused, f"{self.name} ended with {code}:\n{said}"
            assert len(self.ends) < 200, f"{self.name} ends again and again:\n{said}"
            self.worker = self._start()

    def close(self) -> None:
        if self.worker.alive():
            self.worker.kill()
