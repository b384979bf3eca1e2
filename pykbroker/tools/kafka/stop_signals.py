"""Turns SIGTERM and SIGINT into a request to end, so that a tool closes its clients first."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


class StopSignals:
    """Use `with StopSignals() as stopped: while not stopped: ...`. SIGTERM and SIGINT end the loop, not the process."""

    def __init__(self, on_stop: Callable[[], None] | None = None) -> None:
        """`on_stop` is called in the signal handler."""
        self.number: int | None = None
        self._on_stop = on_stop

    def __bool__(self) -> bool:
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status, like that of a JVM after a signal."""
        return 0 if self.number is None else 128 + self.number

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = number
        if self._on_stop is not None:
            self._on_stop()
