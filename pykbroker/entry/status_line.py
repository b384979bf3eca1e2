"""The log on a terminal, with one line under it that says how far something is and is drawn again and again.

Only where standard error is a terminal; anywhere else the log lines say the same.
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

#: (bytes checked, bytes to check, logs left); None when there is nothing to recover
RecoveryProgress = Callable[[], tuple[int, int, int] | None]


class StatusLine(logging.StreamHandler[TextIO]):
    """A log handler, so that no log line gets into the status line."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._text = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = self._text
        self.show("")
        super().emit(record)
        self.show(text)

    def show(self, text: str) -> None:
        """An empty text takes the line away."""
        # The lock of a handler, which `emit` holds: another thread may be in the middle of a log line.
        assert self.lock is not None
        with self.lock:
            if text != self._text:
                self._text = text
                self.stream.write(_ERASE + text[: shutil.get_terminal_size().columns - 1])
                self.stream.flush()

    def follow_recovery(
        self, loop: asyncio.AbstractEventLoop, progress: RecoveryProgress, is_starting: Callable[[], bool]
    ) -> None:
        """Draw a bar until there is nothing to recover any more."""
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
