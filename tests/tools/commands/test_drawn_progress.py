"""The progress of long work is drawn on a terminal, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from pykbroker.tools.commands import drawn_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture, because pytest sets its own standard error between a fixture and its test."""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return screen


@pytest.mark.slow
def test_a_bar_shows_how_much_is_done_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with drawn_progress.bar("moved", 4) as tell:
        tell(3)
    drawn = screen.getvalue()
    assert "moved" in drawn
    assert "75%" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is erased


def test_a_counter_shows_records_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with drawn_progress.counter() as tell:
        tell(1200, 34_000)
    assert "1,200 records, 34,000 bytes" in screen.getvalue()


def test_nothing_is_drawn_where_a_person_types(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdin", Terminal())
    with drawn_progress.counter() as tell:
        tell(1, 1)
    assert screen.getvalue() == ""


def test_nothing_is_drawn_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    for drawn in (drawn_progress.bar("moved", 1), drawn_progress.counter()):
        with drawn:
            pass
    assert file.getvalue() == ""
