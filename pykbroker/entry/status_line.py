"""The log on a terminal, with one line under it that shows progress and is redrawn repeatedly.

It is used only if standard error is a terminal; elsewhere the log lines show the progress.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from typing import TextIO

_EVERY_SECONDS = 0.1
_BAR_WIDTH = 30
_ERASE = "\r\x1b[K"
_MIB = 1 << 20

#: (bytes checked, bytes to check, logs left), or None if there is nothing to recover
RecoveryProgress = Callable[[], tuple[int, int, int] | None]


class StatusLine(logging.StreamHandler[TextIO]):
    """A log handler that also draws the status line, so that it writes no log line into it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._text = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = self._text
        self.show("")
        super().emit(record)
        self.show(text)

    def show(self, text: str) -> None:
        """Show a text in the status line; an empty text removes the line."""
        # `emit` also holds the handler's lock: without it another thread could be in the middle of a log line.
        assert self.lock is not None
        with self.lock:
            if text != self._text:
                self._text = text
                self.stream.write(_ERASE + text[: shutil.get_terminal_size().columns - 1])
                self.stream.flush()

    def follow_recovery(
        self, loop: asyncio.AbstractEventLoop, progress: RecoveryProgress, is_starting: Callable[[], bool]
    ) -> None:
        """Draw a bar until there is nothing left to recover."""
        found = progress()
        self.show("" if found is None else bar(*found))
        if found is not None or is_starting():
            loop.call_later(_EVERY_SECONDS, self.follow_recovery, loop, progress, is_starting)


def bar(checked: int, total: int, logs_left: int) -> str:
    share = checked / total if total else 1.0
    done = int(share * _BAR_WIDTH)
    return (
        f"Recovering logs [{'#' * done}{'.' * (_BAR_WIDTH - done)}] {share:4.0%}, "
        f"{checked / _MIB:.0f} of {total / _MIB:.0f} MiB, {logs_left} left"
    )
