"""The output of a command: a table for a person, one JSON document for a program.

Responsible for both shapes and for the option that chooses. Rows are frozen dataclasses: their fields are the columns
of a table and the keys of JSON. Programs depend on these names, so they do not change.

Invariant: output to a pipe is plain, one row a line, in columns that are never wrapped. Only a terminal gets colours,
and tables that fit its width (table_layout.py).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from pykbroker.entry.failures import one_line

if TYPE_CHECKING:
    from pykbroker.tools.commands.table_layout import CellKind

_TITLE: Final = "title"
_SPARE: Final = "spare"
_GAP: Final = "  "
_WITHOUT_TERMINAL: Final = (80, 24)


def column(title: str, *, is_spare: bool = False, **settings: Any) -> Any:
    """Return a field whose column has this title instead of the field's name. A field with an empty title is only in
    JSON. A terminal that is too narrow gets no spare column."""
    return field(metadata={_TITLE: title, _SPARE: is_spare}, **settings)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind; `heading` is printed above them, in lines of its own."""

    kind: type
    rows: Sequence[object]
    heading: str = ""
    #: The one row is an object, which a terminal shows as lines of a key and its value.
    is_object: bool = False


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
        import json

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
        _print_to_terminal(table, columns, are_numbers, lines)
        return
    if table.heading:
        click.echo(one_line(table.heading))
    widths = [max(len(line[place]) for line in [titles, *lines]) for place in range(len(titles))]
    for line in [titles, *lines]:
        cells = [
            f"{cell:>{width}}" if is_number else f"{cell:<{width}}"
            for cell, width, is_number in zip(line, widths, are_numbers, strict=True)
        ]
        click.echo(_GAP.join(cells).rstrip())


def _print_to_terminal(
    table: Table, of_fields: Sequence[Field[Any]], are_numbers: Sequence[bool], lines: Sequence[Sequence[str]]
) -> None:
    from pykbroker.tools.commands.table_layout import LaidColumn, lines_of_objects, lines_of_table, wrapped

    columns = []
    for place, (each, is_number) in enumerate(zip(of_fields, are_numbers, strict=True)):
        cells = [line[place] for line in lines]
        columns.append(LaidColumn(_title(each), _kind(cells, is_number), cells, bool(each.metadata.get(_SPARE))))
    width = shutil.get_terminal_size(_WITHOUT_TERMINAL).columns
    found = wrapped(one_line(table.heading), width) if table.heading else []
    if table.is_object:
        found += lines_of_objects(columns, width, _bold)
    else:
        found += lines_of_table(columns, width, _bold, today=datetime.now(UTC).date().isoformat())
    click.echo("\n".join(found))


def _kind(cells: Sequence[str], is_number: bool) -> CellKind:
    from pykbroker.tools.commands.table_layout import CellKind, is_time_column

    if is_number:
        return CellKind.NUMBER
    if is_time_column(cells):
        return CellKind.TIME
    return CellKind.LIST if any("," in cell for cell in cells) else CellKind.TEXT


def _bold(text: str) -> str:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return click.style(text, bold=True)


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
    return one_line(str(value))
