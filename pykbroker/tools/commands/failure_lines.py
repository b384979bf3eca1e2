"""Lines about many failures of one command, with a limit: the same reason often fails them all."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

from pykbroker.entry import failures

MOST: Final = 10


class FailureLines:
    """`with FailureLines("records failed") as lines: lines.say(line)`. The first lines are written to standard error,
    and the end of the block writes the number of the others. `say` may be called from any thread."""

    def __init__(self, what: str) -> None:
        """`what`: what happened to those that are only counted, after their number and `more`."""
        self._what = what
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._count > MOST:
            failures.say(f"{self._count - MOST} more {self._what}")

    def say(self, line: str) -> None:
        with self._lock:
            self._count += 1
            if self._count <= MOST:
                failures.say(line)
