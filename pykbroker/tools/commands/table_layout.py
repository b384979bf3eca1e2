"""The lines of a table for a terminal of a certain width. Pure: texts in, lines out.

A table that is too wide changes in this order until it fits:

1. Titles take two lines.
2. Times lose their fraction, then the date of today.
3. A column of nothing but `no` is left out, then a column that its table calls spare.
4. Texts get an ellipsis, the first column of texts last, because it names the row.
5. Each row becomes lines of a key and its value.

Invariant: a number or a time is never cut, different names of the first column stay different, and neither a number
nor a word is divided between two lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
_PLACES_TO_BREAK_TITLES: Final = re.compile(r"(?<=[ -])")
_NO_VALUE: Final = "-"
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):(\d\d)(?:\.\d+)?(?:\+00:00|Z)")


class CellKind(Enum):
    #: aligned right, and never shortened
    NUMBER = auto()
    #: values between commas, which are shortened after a comma
    LIST = auto()
    #: times of UTC in the form of ISO 8601, which may lose their fraction or their date
    TIME = auto()
    TEXT = auto()


@dataclass(frozen=True, slots=True)
class LaidColumn:
    title: str
    kind: CellKind
    cells: Sequence[str]
    #: The column is left out before a text of another column is cut.
    is_spare: bool = False


def is_time_column(cells: Sequence[str]) -> bool:
    """Return True if the cells are times of UTC. Some may have no value."""
    times = [cell for cell in cells if cell != _NO_VALUE]
    return bool(times) and all(_TIME.fullmatch(cell) for cell in times)


def lines_of_table(
    columns: Sequence[LaidColumn], width: int, bold: Callable[[str], str] = str, *, today: str = ""
) -> list[str]:
    """Return the lines of a table. `bold` marks a title or a key, and must not change its width. `today`: the date of
    UTC in the form of ISO 8601, which times of today may lose."""
    titles = [[column.title] for column in columns]
    widths = _natural(columns, titles)
    if _whole(widths) <= width:
        return _drawn(columns, titles, widths, bold)
    for kept in _simpler(columns, today):
        titles = [_two_lines(column) for column in kept]
        widths = _natural(kept, titles)
        if _whole(widths) <= width:
            return _drawn(kept, titles, widths, bold)
    widths = _narrowed(kept, titles, width)
    if _whole(widths) <= width:
        return _drawn(kept, titles, widths, bold)
    return lines_of_objects(columns, width, bold)


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


def shortened(texts: Sequence[str], width: int, kind: CellKind) -> list[str]:
    """Return the cells of a column in at most `width` columns of the terminal. Numbers and times are returned as they
    are. Texts lose a part that leaves different texts different, if the width has room for such a part."""
    if kind is CellKind.TEXT:
        cut = _cut_apart(texts, width)
        return [cut[text] for text in texts]
    if kind is CellKind.LIST:
        return [_list_cut(text, width) for text in texts]
    return list(texts)


def _list_cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    kept = ""
    for part in _PLACES_TO_BREAK.split(text):
        if cell_len(kept + part) >= width:
            break
        kept += part
    return kept + _ELLIPSIS if kept else _cut(text, width, _KEPT_END)


def _cut_apart(texts: Sequence[str], width: int) -> Mapping[str, str]:
    """Return each text with its cut form. The kept ends are those with which the most texts stay different."""
    different = dict.fromkeys(texts)
    best: dict[str, str] = {}
    most = -1
    for end in dict.fromkeys((_KEPT_END, width // 2, width * 3 // 4, width - 2)):
        found = {text: _cut(text, width, end) for text in different}
        count = len(set(found.values()))
        if count > most:
            best, most = found, count
        if count == len(different):
            break
    return best


def _cut(text: str, width: int, kept_end: int) -> str:
    if text.isascii():
        return text if len(text) <= width else text[: width - kept_end - 1].rstrip() + _ELLIPSIS + text[-kept_end:]
    if cell_len(text) <= width:
        return text
    end = _last(text, kept_end)
    return set_cell_size(text, width - cell_len(end) - 1).rstrip() + _ELLIPSIS + end


def _last(text: str, width: int) -> str:
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= width:
        start -= 1
    return text[start:]


def _simpler(columns: Sequence[LaidColumn], today: str) -> Iterator[list[LaidColumn]]:
    """Yield the columns, then each time with less in them, without a cut of a text."""
    kept = list(columns)
    yield kept
    for template in (r"\1T\2:\3Z", r"\1T\2Z"):
        kept = [_with_times(column, template, today) for column in kept]
        yield kept
    for is_left_out in (_says_nothing, lambda column: column.is_spare):
        for column in reversed(columns[1:]):
            if is_left_out(column):
                kept = [one for one in kept if one.title != column.title]
                yield kept


def _with_times(column: LaidColumn, template: str, today: str) -> LaidColumn:
    """Return the column with shorter times. Without the seconds, those of today have no date instead."""
    if column.kind is not CellKind.TIME:
        return column

    def short(cell: str) -> str:
        found = _TIME.fullmatch(cell)
        if found is None:
            return cell
        is_of_today = found[1] == today and r"\3" not in template
        return found.expand(r"\2:\3Z" if is_of_today else template)

    return replace(column, cells=[short(cell) for cell in column.cells])


def _says_nothing(column: LaidColumn) -> bool:
    return all(cell == "no" for cell in column.cells)


def _two_lines(column: LaidColumn) -> list[str]:
    """Return the title in the two lines that are the narrowest, or in one if it is no wider than the cells."""
    parts = _PLACES_TO_BREAK_TITLES.split(column.title)
    if len(parts) == 1 or cell_len(column.title) <= max(map(cell_len, column.cells), default=0):
        return [column.title]
    divided = [["".join(parts[:at]).rstrip(), "".join(parts[at:])] for at in range(1, len(parts))]
    return min(divided, key=lambda lines: max(map(cell_len, lines)))


def _natural(columns: Sequence[LaidColumn], titles: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(cell_len(text) for text in (*title, *column.cells)) for column, title in zip(columns, titles, strict=True)
    ]


def _narrowed(columns: Sequence[LaidColumn], titles: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the columns, with texts made narrower until the table fits or none can be.

    First the column that names the row keeps its width, and the cells of each other column stay different. Then it
    shares what is left with the others.
    """
    widths = _natural(columns, titles)
    name = next((place for place, column in enumerate(columns) if column.kind is CellKind.TEXT), None)
    shortest = [
        _shortest(column, title, natural) for column, title, natural in zip(columns, titles, widths, strict=True)
    ]
    apart = [_apart(column, *limits) for column, *limits in zip(columns, shortest, widths, strict=True)]
    whole_name = [widths[place] if place == name else least for place, least in enumerate(apart)]
    widths = _reduced(widths, whole_name, width)
    widths = _reduced(widths, apart, width)
    return _reduced(widths, [apart[place] if place == name else least for place, least in enumerate(shortest)], width)


def _reduced(widths: Sequence[int], leasts: Sequence[int], width: int) -> list[int]:
    """Return the widths with the widest made narrower, down to the leasts, until the table fits."""
    found = list(widths)
    while _whole(found) > width:
        places = [place for place, each in enumerate(found) if each > leasts[place]]
        if not places:
            break
        found[max(places, key=lambda place: found[place])] -= 1
    return found


def _shortest(column: LaidColumn, title: Sequence[str], natural: int) -> int:
    """Return the least width of a column, with or without equal cells."""
    if column.kind in (CellKind.NUMBER, CellKind.TIME):
        return natural
    return min(natural, max(_LEAST, *map(cell_len, title), _first_item(column)))


def _apart(column: LaidColumn, least: int, natural: int) -> int:
    """Return the least width from `least` to `natural` in which different cells stay different."""
    if column.kind is not CellKind.TEXT:
        return least
    different = len(set(column.cells))

    def is_apart(width: int) -> bool:
        return len(set(_cut_apart(column.cells, width).values())) == different

    return least + bisect_left(range(least, natural), True, key=is_apart)


def _first_item(column: LaidColumn) -> int:
    """Return the width that the first item of each list and an ellipsis take, so that no item is divided."""
    if column.kind is not CellKind.LIST:
        return 0
    return max((cell_len(_PLACES_TO_BREAK.split(cell)[0]) + 1 for cell in column.cells), default=0)


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(0, len(widths) - 1)


def _drawn(
    columns: Sequence[LaidColumn],
    titles: Sequence[Sequence[str]],
    widths: Sequence[int],
    bold: Callable[[str], str],
) -> list[str]:
    height = max(map(len, titles), default=0)
    # Titles of fewer lines end in the last line, next to the cells.
    rows = [["" for _ in range(height - len(title))] + list(title) for title in titles]
    found = [_joined(columns, row, widths, bold) for row in zip(*rows, strict=True)]
    cells = [shortened(column.cells, each, column.kind) for column, each in zip(columns, widths, strict=True)]
    return found + [_joined(columns, row, widths, str) for row in zip(*cells, strict=True)]


def _joined(
    columns: Sequence[LaidColumn], row: Sequence[str], widths: Sequence[int], bold: Callable[[str], str]
) -> str:
    last = max((place for place, text in enumerate(row) if text), default=-1)
    cells = []
    for place, (column, text, width) in enumerate(zip(columns, row, widths, strict=True)):
        if place > last:
            break
        is_right = column.kind is CellKind.NUMBER
        cells.append(bold(text if place == last and not is_right else _padded(text, width, is_right=is_right)))
    return GAP.join(cells).rstrip()


def _padded(text: str, width: int, *, is_right: bool = False) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if is_right else text + blanks
