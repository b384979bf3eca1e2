"""The lines of a table for a terminal of a certain width. Pure: texts in, lines out.

A table that is too wide gets its titles in several lines, then shorter cells with an ellipsis. If that is not enough,
each row becomes lines of a key and its value.

Invariant: a number is never shortened, and neither a number nor a word is divided between two lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from rich.cells import cell_len, set_cell_size

GAP: Final = "  "
_ELLIPSIS: Final = "…"
#: A shortened cell has at least this width, because fewer characters say too little.
_LEAST: Final = 7
#: The end of a shortened text is kept, because long names often differ in their ends.
_KEPT_END: Final = 4
_PLACES_TO_BREAK: Final = re.compile(r"(?<=[, ])")


class CellKind(Enum):
    #: aligned right, and never shortened
    NUMBER = auto()
    #: values between commas, which are shortened after a comma
    LIST = auto()
    TEXT = auto()


@dataclass(frozen=True, slots=True)
class LaidColumn:
    title: str
    kind: CellKind
    cells: Sequence[str]


def lines_of_table(columns: Sequence[LaidColumn], width: int, bold: Callable[[str], str] = str) -> list[str]:
    """Return the lines of a table. `bold` marks a title or a key, and must not change its width."""
    titles = [[column.title] for column in columns]
    widths = [_natural(column, title) for column, title in zip(columns, titles, strict=True)]
    if _whole(widths) > width:
        titles = [column.title.split(" ") for column in columns]
        widths = _narrowed(columns, titles, width)
    if _whole(widths) > width:
        return lines_of_objects(columns, width, bold)
    height = max(map(len, titles), default=0)
    found = []
    for line in range(height):
        # Titles of fewer lines end in the last line, next to the cells.
        row = [title[line - height + len(title)] if line >= height - len(title) else "" for title in titles]
        found.append(_joined(columns, row, widths, bold))
    for number in range(max((len(column.cells) for column in columns), default=0)):
        row = [shortened(column.cells[number], each, column.kind) for column, each in zip(columns, widths, strict=True)]
        found.append(_joined(columns, row, widths, str))
    return found


def lines_of_objects(columns: Sequence[LaidColumn], width: int, bold: Callable[[str], str] = str) -> list[str]:
    """Return two columns for each row, the titles and the values, with an empty line between two rows."""
    keys = max((cell_len(column.title) for column in columns), default=0)
    found: list[str] = []
    for number in range(max((len(column.cells) for column in columns), default=0)):
        if number:
            found.append("")
        for column in columns:
            first, *rest = wrapped(column.cells[number], width - keys - len(GAP))
            found.append(bold(_padded(column.title, keys)) + GAP + first)
            found += [" " * keys + GAP + line for line in rest]
    return found


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines that end after a comma or a blank. A longer word is a line of its own."""
    found = [""]
    for part in _PLACES_TO_BREAK.split(text):
        if found[-1] and cell_len((found[-1] + part).rstrip()) > width:
            found.append("")
        found[-1] += part
    return [line.rstrip() for line in found]


def shortened(text: str, width: int, kind: CellKind) -> str:
    """Return the text in at most `width` columns of the terminal. A number is returned as it is."""
    if kind is CellKind.NUMBER or cell_len(text) <= width:
        return text
    if kind is CellKind.LIST:
        kept = ""
        for part in _PLACES_TO_BREAK.split(text):
            if cell_len(kept + part) >= width:
                break
            kept += part
        if kept:
            return kept + _ELLIPSIS
    end = _last(text, _KEPT_END)
    return set_cell_size(text, width - cell_len(end) - 1).rstrip() + _ELLIPSIS + end


def _last(text: str, width: int) -> str:
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= width:
        start -= 1
    return text[start:]


def _natural(column: LaidColumn, title: Sequence[str]) -> int:
    return max(cell_len(text) for text in (*title, *column.cells))


def _narrowed(columns: Sequence[LaidColumn], titles: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the columns, with the widest texts made narrower until the table fits or none can be."""
    widths = [_natural(column, title) for column, title in zip(columns, titles, strict=True)]
    leasts = [
        each if column.kind is CellKind.NUMBER else min(each, max(_LEAST, *map(cell_len, title), _first_item(column)))
        for column, title, each in zip(columns, titles, widths, strict=True)
    ]
    while _whole(widths) > width:
        places = [place for place, each in enumerate(widths) if each > leasts[place]]
        if not places:
            break
        widths[max(places, key=lambda place: widths[place])] -= 1
    return widths


def _first_item(column: LaidColumn) -> int:
    """Return the width that the first item of each list and an ellipsis take, so that no item is divided."""
    if column.kind is not CellKind.LIST:
        return 0
    return max((cell_len(_PLACES_TO_BREAK.split(cell)[0]) + 1 for cell in column.cells), default=0)


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(0, len(widths) - 1)


def _joined(
    columns: Sequence[LaidColumn], row: Sequence[str], widths: Sequence[int], bold: Callable[[str], str]
) -> str:
    cells = []
    for place, (column, text, width) in enumerate(zip(columns, row, widths, strict=True)):
        is_right = column.kind is CellKind.NUMBER
        is_last = place == len(columns) - 1
        cells.append(bold(text if is_last and not is_right else _padded(text, width, is_right=is_right)))
    return GAP.join(cells).rstrip()


def _padded(text: str, width: int, *, is_right: bool = False) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if is_right else text + blanks
