"""Tables on a terminal of 80 columns: every kind of row that a command prints, with long names and great numbers."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import io
import re
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

import pykbroker.tools.commands
from pykbroker.tools.commands.output import Output, Table, column
from pykbroker.tools.commands.table_layout import CellKind, LaidColumn, lines_of_table, shortened, wrapped

WIDTH: Final = 80
FOLDER: Final = Path(pykbroker.tools.commands.__file__).parent
NAME: Final = "production.payments.settlements-that-were-refused.v2-with-a-very-long-name"
NUMBERS: Final = {"usual": 4_294_967_296, "greatest": 9_223_372_036_854_775_807}
FRACTIONS: Final = {"usual": 39_001.9, "greatest": 9_223_372_036_854.75}


def printed_kinds() -> Iterator[tuple[str, str]]:
    """Yield module and class of each kind of row that a command gives to `Table` or to `Output.rows`."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Name):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in ("Table", "rows") and node.args[0].id[0].isupper():
                yield path.stem, node.args[0].id


KINDS: Final = sorted(set(printed_kinds()))


def filled(of: Any, size: str, place: int) -> Any:
    """Return a long value of a type; numbers of different places are different."""
    if of is bool:
        return True
    if of is int:
        return NUMBERS[size] - place
    if of is float:
        return FRACTIONS[size] - place
    if of is str:
        return NAME
    origin, inner = typing.get_origin(of), typing.get_args(of)
    if origin in (types.UnionType, typing.Union):
        return filled(next(one for one in inner if one is not type(None)), size, place)
    if origin in (tuple, list):
        if inner[0] is int:
            return tuple(range(10_001, 10_013))
        return tuple(filled(inner[0], size, place) for _ in range(6))
    if origin in (dict, Mapping):
        return {filled(inner[0], size, place): filled(inner[1], size, place)}
    raise AssertionError(f"no long value of {of}")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("NO_COLOR", raising=False)


def on_terminal(*tables: Table) -> str:
    """Return the text of the tables on a terminal."""
    with contextlib.redirect_stdout(Terminal()) as shown:
        Output(is_json=False).tables(None, *tables)
    return shown.getvalue()


def is_in_one_line(text: str, lines: list[str]) -> bool:
    """Return True if a text is in a line, as a whole or around an ellipsis."""
    if any(text in line for line in lines):
        return True
    cells = (cell for line in lines for cell in re.split(r"\s{2,}", line) if "…" in cell)
    return any(text.startswith(cell.partition("…")[0]) and text.endswith(cell.partition("…")[2]) for cell in cells)


@pytest.mark.parametrize("size", list(NUMBERS))
@pytest.mark.parametrize(("module", "name"), KINDS)
def test_no_number_and_no_word_is_divided_at_80_columns(module: str, name: str, size: str) -> None:
    kind = getattr(importlib.import_module(f"pykbroker.tools.commands.{module}"), name)
    types_of = typing.get_type_hints(kind)
    row = kind(
        **{
            each.name: filled(types_of[each.name], size, place)
            for place, each in enumerate(dataclasses.fields(kind), start=1)
            if each.init
        }
    )
    heading = f"{NAME} (of a kind), {NUMBERS[size]} offsets, {NAME}"
    lines = on_terminal(Table(kind, [row, row], heading), Table(kind, [row], is_object=True)).splitlines()
    shown = [each for each in dataclasses.fields(kind) if each.metadata.get("title") != ""]
    for each in shown:
        value = getattr(row, each.name)
        if type(value) in (int, float):
            assert sum(str(value) in line for line in lines) == 3, f"{each.name} is divided"
        elif isinstance(value, str):
            assert is_in_one_line(value, lines), f"{each.name} is divided"
        elif isinstance(value, tuple):
            assert is_in_one_line(",".join(map(str, value)), lines) or all(
                any(str(one) in line for line in lines) for one in value
            ), f"{each.name} is divided"
        for word in re.split(r" |(?<=-)", each.metadata.get("title") or each.name.replace("_", " ").upper()):
            assert any(word in line for line in lines), f"the title of {each.name} is divided"
    # Only a word that is longer than the terminal, with the key before it, may leave the terminal.
    for line in lines:
        assert len(line) <= WIDTH or NAME in line, f"{len(line)} columns: {line}"


def test_every_command_with_a_table_is_tried() -> None:
    modules = {module for module, _ in KINDS}
    assert {"topics", "groups", "configs", "users", "acls", "bench", "reassign", "balance", "quorum"} <= modules
    assert {"cluster", "transactions"} <= modules


def test_a_result_of_bench_is_two_short_columns() -> None:
    from pykbroker.tools.commands.bench import BenchRow

    row = BenchRow(100_000, 0, 2.564, 39_001.9, 3.719, 0.97, 4.2, 3.1, None, 9.0, 12.0, 15.25)
    lines = on_terminal(Table(BenchRow, [row], is_object=True)).splitlines()
    assert lines[:2] == ["RECORDS               100000", "FAILED                0"]
    assert "RECORDS PER SECOND    39001.9" in lines
    assert len(lines) == 12


def column_of(title: str, kind: CellKind, *cells: str) -> LaidColumn:
    return LaidColumn(title, kind, cells)


def test_a_table_that_fits_is_not_changed() -> None:
    columns = [column_of("WITHOUT LEADER", CellKind.NUMBER, "1"), column_of("NAME", CellKind.TEXT, "orders")]
    assert lines_of_table(columns, 22) == ["WITHOUT LEADER  NAME", "             1  orders"]


def test_titles_take_more_lines_before_cells_become_shorter() -> None:
    columns = [column_of("WITHOUT LEADER", CellKind.NUMBER, "1"), column_of("NAME", CellKind.TEXT, "orders")]
    assert lines_of_table(columns, 21) == ["WITHOUT", " LEADER  NAME", "      1  orders"]


def test_long_names_become_shorter_and_numbers_do_not() -> None:
    columns = [
        column_of("TOPIC", CellKind.TEXT, "orders-of-the-north-v1", "t"),
        column_of("END", CellKind.NUMBER, "4294967296", "0"),
    ]
    assert lines_of_table(columns, 24) == [
        "TOPIC                END",
        "orders-…h-v1  4294967296",
        "t                      0",
    ]


def test_a_list_is_shortened_after_a_comma() -> None:
    assert shortened(["10001,10002,10003"], 13, CellKind.LIST) == ["10001,10002,…"]
    assert shortened(["10001,10002,10003"], 12, CellKind.LIST) == ["10001,…"]
    assert shortened(["12345678"], 3, CellKind.NUMBER) == ["12345678"]


def test_titles_take_two_lines_at_most() -> None:
    columns = [
        column_of("BYTES OF ALL REPLICAS", CellKind.NUMBER, "1"),
        column_of("UNDER-REPLICATED", CellKind.NUMBER, "2"),
        column_of("TOPIC", CellKind.TEXT, "orders"),
    ]
    assert lines_of_table(columns, 32) == [
        "    BYTES OF      UNDER-",
        "ALL REPLICAS  REPLICATED  TOPIC",
        "           1           2  orders",
    ]


ORDERS: Final = "com.example.payments.orders-service.order-{}.v1"


def test_different_names_stay_different() -> None:
    names = [ORDERS.format(word) for word in ("created", "deleted", "updated")]
    columns = [column_of("TOPIC", CellKind.TEXT, *names), column_of("END", CellKind.NUMBER, "0", "1", "2")]
    for width in range(18, 52):
        cells = [line.split()[0] for line in lines_of_table(columns, width)[1:]]
        assert len(set(cells)) == 3, cells
    assert lines_of_table(columns, 30)[1] == "com.example.…r-created.v1    0"


def test_names_that_no_short_cell_tells_apart_are_lines_of_their_own() -> None:
    names = ["a" * 20 + middle + "b" * 20 for middle in "xyz"]
    columns = [column_of("TOPIC", CellKind.TEXT, *names), column_of("END", CellKind.NUMBER, "0", "1", "2")]
    lines = lines_of_table(columns, 20)
    assert [line.split()[1] for line in lines if line.startswith("TOPIC")] == names


def test_the_first_name_is_cut_last() -> None:
    columns = [
        column_of("TOPIC", CellKind.TEXT, ORDERS.format("created"), "t"),
        column_of("MEMBER", CellKind.TEXT, "orders-service-7d9c5b7f6d", "orders-service-7d9c5b0000"),
    ]
    assert lines_of_table(columns, 61)[1] == f"{ORDERS.format('created')}  or…7f6d"
    assert lines_of_table(columns, 40)[1] == "com.example.payments.order…d.v1  or…7f6d"


def test_a_time_is_never_cut() -> None:
    name = column_of("NAME", CellKind.TEXT, "a" * 30, "b" * 30)
    cells = ("2026-11-27T20:02:43.123+00:00", "2026-11-26T07:08:09.000+00:00")
    columns = [column_of("LAST FETCH", CellKind.TIME, *cells), name]
    today = "2026-11-27"

    def times(width: int) -> list[str]:
        return [line.split()[0] for line in lines_of_table(columns, width, today=today)[-2:]]

    assert times(61) == list(cells)
    assert times(60) == ["2026-11-27T20:02:43Z", "2026-11-26T07:08:09Z"]
    assert times(51) == ["20:02:43Z", "2026-11-26T07:08Z"]
    assert times(30) == ["20:02:43Z", "2026-11-26T07:08Z"]


def test_a_column_of_no_and_a_spare_one_go_before_a_text_is_cut() -> None:
    columns = [
        column_of("TOPIC", CellKind.TEXT, "orders-of-the-north"),
        LaidColumn("HOST", CellKind.TEXT, ["/127.0.0.1"], is_spare=True),
        column_of("INTERNAL", CellKind.TEXT, "no"),
    ]
    assert lines_of_table(columns, 41)[1] == "orders-of-the-north  /127.0.0.1  no"
    assert lines_of_table(columns, 40) == ["TOPIC                HOST", "orders-of-the-north  /127.0.0.1"]
    assert lines_of_table(columns, 30) == ["TOPIC", "orders-of-the-north"]
    internal = [columns[0], column_of("INTERNAL", CellKind.TEXT, "yes")]
    assert lines_of_table(internal, 25)[1] == "orders-of-…orth  yes"


def test_rows_become_keys_and_values_if_nothing_else_fits() -> None:
    columns = [column_of("FROM", CellKind.NUMBER, "4294967296", "7"), column_of("TO", CellKind.NUMBER, "-", "9")]
    assert lines_of_table(columns, 12) == [
        "FROM  4294967296", "TO    -", "", "FROM  7", "TO    9"
    ]  # fmt: skip


def test_wide_characters_take_two_columns() -> None:
    columns = [column_of("NAME", CellKind.TEXT, "注文" * 4, "b"), column_of("N", CellKind.NUMBER, "1", "2")]
    titles, first, second = lines_of_table(columns, 13)
    assert (titles, second) == ("NAME        N", "b           2")
    assert first == "注文 …注文  1" or first.endswith("  1")
    assert len(first) < 13


def test_lines_end_after_commas_and_blanks() -> None:
    assert wrapped("retention.ms=1, cleanup.policy=compact", 20) == ["retention.ms=1,", "cleanup.policy=compact"]
    assert wrapped("1,2,3", 4) == ["1,2,", "3"]
    assert wrapped("", 4) == [""]


def test_a_terminal_gets_the_times_of_today_without_their_date() -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    row = FetchRow(1, "voter", 2601, now, now, "SyeY5KUiSq-nNqBCBMJ-Rg-and-more")
    line = on_terminal(Table(FetchRow, [row])).splitlines()[-1]
    shown = f"{now[11:19]}Z"
    assert line == f" 1  voter    2601  {shown}  {shown}  SyeY5KUiSq-nNqBCBMJ-Rg-and-more"


@dataclasses.dataclass(frozen=True, slots=True)
class FetchRow:
    id: int
    role: str
    end_offset: int
    last_fetch: str
    last_caught_up: str
    directory: str


@dataclasses.dataclass(frozen=True, slots=True)
class AnyName:
    """A row whose name may have any character, as groups have."""

    name: str
    lag: int | None = column("LAG")


def test_a_name_cannot_make_a_second_line_or_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(AnyName, [AnyName("a\nb\x1b[2J", 1)])
    assert on_terminal(table).splitlines()[1:] == [r"a\nb\x1b[2J    1"]
    Output(is_json=False).tables(None, table)
    assert capsys.readouterr().out.splitlines()[1:] == [r"a\nb\x1b[2J    1"]


def test_no_colour_if_the_environment_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(AnyName, [AnyName("a", 1)])
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1mNAME" in on_terminal(table)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1m" not in on_terminal(table)
