"""The log lines of nodes, and the errors of the loop, during a run.

An exception that was not caught, and a traceback in the log, are bugs whatever the network and the disks do: they fail
the run. With `tells`, every line of the log goes into the story, with the node and the time.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from types import TracebackType
from typing import Any

from pykbroker_worlds.simulated.loop import OWNER
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld

_LOGGERS = ("pykbroker", "pykbroker_raft", "pykbroker_log", "pykbroker_wire")


class LogWatch(logging.Handler):
    """Enter it to watch. `check` raises AssertionError if there was a traceback."""

    tells = False

    def __init__(self, world: SimWorld) -> None:
        super().__init__(logging.INFO if self.tells else logging.WARNING)
        self._world = world
        self._is_deaf = False
        self._found: list[str] = []
        self._before: list[tuple[logging.Logger, int, bool]] = []

    def __enter__(self) -> LogWatch:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            self._before.append((logger, logger.level, logger.propagate))
            logger.setLevel(self.level)
            logger.propagate = False
            logger.addHandler(self)
        self._world.loop.set_exception_handler(self._exception)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for logger, level, propagate in self._before:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate
        self._before.clear()
        super().close()

    def be_deaf(self) -> None:
        """Ignore the log from now on: the run is over, and its clean-up may log errors."""
        self._is_deaf = True

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_deaf:
            return
        owner = OWNER.get()
        name = owner.name if isinstance(owner, SimRuntime) else "harness"
        if self.tells:
            self._world.story.append((self._world.loop.time(), name, record.getMessage()))
        if record.exc_info is not None and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1]))
            self._found.append(f"{self._world.loop.time():.3f} {name}: {record.getMessage()}\n{text}")

    def _exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._is_deaf:
            return
        error = context.get("exception")
        text = "" if error is None else "".join(traceback.format_exception(error))
        self._found.append(f"{self._world.loop.time():.3f} {context.get('message')}\n{text}")

    def check(self) -> None:
        if self._found:
            raise AssertionError("exceptions escaped:\n" + "\n".join(self._found[:3]))
