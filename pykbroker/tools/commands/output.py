"""The output of a command: a table for a person, one JSON document for a program.

Responsible for both shapes and for the option that chooses. Rows are frozen dataclasses: their fields are the columns
of a table and the keys of JSON. Programs depend on these names, so they do not change.

Invariant: output to a pipe is plain, in columns that are never wrapped; only a terminal gets colours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import wraps
from typing import Any, Final

import click

_TITLE: Final = "title"
_GAP: Final = "  "


def column(title: str, **settings: Any) -> Any:
    """Return a field whose column has this title instead of the field's name. A field with an empty title is only in
    JSON."""
    return field(metadata={_TITLE: title}, **settings)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind; `heading` is printed above them on a line of its own."""

    kind: type
    rows: Sequence[object]
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """`out.rows(TopicRow, rows)`, `out.tables(value, Table(...), ...)` or `out.done("Created topic t.", value)`."""

    is_json: bool

    def rows(self, kind: type, rows: Sequence[object]) -> None:
        """Print a table, or a list of objects as JSON."""
        self.tables(list(rows), Table(kind, rows))

    def tables(self, value: object, *tables: Table) -> None:
        """Print the tables with an empty line between two, or `value` as JSON."""
        if self.is_json:
            self.document(value)
            return
        for place, table in enumerate(tables):
            if place:
                click.echo()
            _print_table(table)

    def done(self, said: str, value: object) -> None:
        """Print the result of a command: a sentence, or `value` as JSON."""
        if self.is_json:
            self.document(value)
        else:
            click.echo(said)

    @staticmethod
    def document(value: object) -> None:
        click.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o table|json` to a command; its function gets it as `out`, an Output."""

    @wraps(function)
    def with_output(output: str, **words: Any) -> Any:
        return function(out=Output(output == "json"), **words)

    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        help="A table for a person (default), or JSON for a program.",
    )(with_output)


def _plain(value: object) -> object:
    """Return the value in a form that JSON can write."""
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value) and not isinstance(value, type):
        return _plain({each.name: getattr(value, each.name) for each in fields(value)})
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return value


def _print_table(table: Table) -> None:
    columns = [each for each in fields(table.kind) if each.metadata.get(_TITLE) != ""]
    titles = [_title(each) for each in columns]
    values = [[getattr(row, each.name) for each in columns] for row in table.rows]
    are_numbers = [
        bool(values) and all(type(row[place]) in (int, float, type(None)) for row in values)
        for place in range(len(columns))
    ]
    lines = [[_cell(value) for value in row] for row in values]
    if sys.stdout.isatty():
        _print_rich(table.heading, titles, are_numbers, lines)
        return
    if table.heading:
        click.echo(table.heading)
    widths = [max(len(line[place]) for line in [titles, *lines]) for place in range(len(titles))]
    for line in [titles, *lines]:
        cells = [
            f"{cell:>{width}}" if is_number else f"{cell:<{width}}"
            for cell, width, is_number in zip(line, widths, are_numbers, strict=True)
        ]
        click.echo(_GAP.join(cells).rstrip())


def _print_rich(heading: str, titles: list[str], are_numbers: list[bool], lines: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, header_style="bold", title=heading or None, title_justify="left")
    for title, is_number in zip(titles, are_numbers, strict=True):
        drawn.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for line in lines:
        # A `Text`, because brackets in a plain string would be markup of rich.
        drawn.add_row(*map(Text, line))
    Console().print(drawn)


def _title(each: Field[Any]) -> str:
    return str(each.metadata.get(_TITLE) or each.name.replace("_", " ").upper())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one}" for key, one in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_cell, value)) or "-"
    return str(value)
