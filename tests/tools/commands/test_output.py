"""Tables and JSON of rows."""

from __future__ import annotations

import json
import os
import pty
import sys
from dataclasses import dataclass
from enum import Enum

import pytest

from pykbroker.tools.commands.output import Output, Table, column


class Colour(Enum):
    RED = 1


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    size_bytes: int
    lag: int | None
    is_there: bool = column("THERE")
    colour: Colour = Colour.RED
    numbers: tuple[int, ...] = ()
    hidden: str = column("", default="h")


ROWS = [Row("ä" * 3, 5, None, True), Row("[b]", 1234, 7, False, numbers=(1, 2))]


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False).rows(Row, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "NAME  SIZE BYTES  LAG  THERE  COLOUR  NUMBERS",
        "äää            5    -  yes    red     -",
        "[b]         1234    7  no     red     1,2",
    ]
    Output(is_json=False).rows(Row, [])
    assert capsys.readouterr().out == "NAME  SIZE BYTES  LAG  THERE  COLOUR  NUMBERS\n"


def test_several_tables(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False).tables({}, Table(Row, ROWS[:1], "first"), Table(Row, ROWS[1:]))
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[0], lines[3]) == (6, "first", "")


def test_nothing_is_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    Output(is_json=False).rows(Row, [Row("x" * 300, 1, None, True)])
    titles, line = capsys.readouterr().out.splitlines()
    assert line.startswith("x" * 300 + "  ")
    assert "\x1b" not in titles


def test_json_has_the_names_of_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).rows(Row, ROWS[1:])
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "[b]",
            "size_bytes": 1234,
            "lag": 7,
            "is_there": False,
            "colour": "red",
            "numbers": [1, 2],
            "hidden": "h",
        }
    ]
    Output(is_json=True).done("Done.", {"a": ROWS[0]})
    assert json.loads(capsys.readouterr().out)["a"]["name"] == "äää"
    Output(is_json=False).done("Done.", {})
    assert capsys.readouterr().out == "Done.\n"


def test_a_terminal_gets_every_character_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with brackets is not markup."""
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        Output(is_json=False).tables(None, Table(Row, ROWS, "over it"))
        terminal.flush()
        drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert "over it" in drawn
    assert "[b]" in drawn
    assert "\x1b[1mNAME" in drawn
