"""Turns SIGTERM and SIGINT into a request to end, so that a tool closes its clients first."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


class StopSignals:
    """Use `with StopSignals() as stopped: while not stopped: ...`. SIGTERM and SIGINT end the loop, not the process. A
    second signal does what it did before the block, because the end of the loop may have to wait for a broker."""

    def __init__(self, on_stop: Callable[[], None] | None = None) -> None:
        """`on_stop` is called in the signal handler."""
        self.number: int | None = None
        self._on_stop = [] if on_stop is None else [on_stop]

    def __bool__(self) -> bool:
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status, like that of a JVM after a signal."""
        return 0 if self.number is None else 128 + self.number

    def also(self, on_stop: Callable[[], None]) -> None:
        """Call `on_stop` in the signal handler too, or now if a signal has come."""
        self._on_stop.append(on_stop)
        if self:
            on_stop()

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self:
            self._restore()
            signal.raise_signal(number)
            return
        self.number = number
        for each in self._on_stop:
            each()
