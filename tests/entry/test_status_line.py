"""The line under the log on a terminal. A real terminal and a real recovery: compat_tests/on_disk/test_recovery.py."""

from __future__ import annotations

import io
import logging
import re

from pykbroker.entry.status_line import StatusLine, bar
from tests.coordinator.fakes import Loop, as_loop


def on_screen(written: str) -> list[str]:
    """Return the lines that a terminal shows."""
    lines = [""]
    for part in re.split(r"(\r\x1b\[K|\n)", written):
        if part == "\n":
            lines.append("")
        elif part.startswith("\r"):
            lines[-1] = ""
        else:
            lines[-1] += part
    return lines


def test_log_lines_stay_above_it() -> None:
    stream = io.StringIO()
    status = StatusLine(stream)
    record = logging.LogRecord("x", logging.INFO, "", 0, "a line", (), None)
    status.emit(record)
    status.show("10 %")
    status.emit(record)
    status.show("20 %")
    assert on_screen(stream.getvalue()) == ["a line", "a line", "20 %"]
    status.show("")
    status.emit(record)
    assert on_screen(stream.getvalue()) == ["a line", "a line", "a line", ""]


def test_it_follows_until_there_is_nothing_to_recover() -> None:
    loop, stream = Loop(), io.StringIO()
    found: list[tuple[int, int, int] | None] = [None, (0, 4 << 20, 2), (3 << 20, 4 << 20, 1), None, (0, 1, 1)]
    starting = True
    StatusLine(stream).follow_recovery(as_loop(loop), lambda: found.pop(0), lambda: starting)
    for expected in ("", bar(0, 4 << 20, 2), bar(3 << 20, 4 << 20, 1)):
        assert on_screen(stream.getvalue())[-1] == expected[:79]
        starting = False
        loop.advance(0.1)
    loop.advance(1)
    assert on_screen(stream.getvalue()) == [""]
    assert len(found) == 1


def test_the_bar() -> None:
    assert bar(3 << 20, 4 << 20, 1) == f"Recovering logs [{'#' * 22}{'.' * 8}]  75%, 3 of 4 MiB, 1 left"
    assert " 0%" in bar(0, 1, 1)
    assert "100%" in bar(0, 0, 0)
