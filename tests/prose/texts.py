"""Where prose stands: docstrings, comments, the literals of logs and errors, and paragraphs of pages."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.parsed import parsed

_LOG_METHODS: Final = {"debug", "info", "warning", "error", "critical", "exception"}
#: Comments that are for a program, and lines that divide a file.
_NO_PROSE: Final = re.compile(r"#\s*(noqa|type:|fmt:|pragma|mypy:|--|!|===|shellcheck)|#[:\s]*$|#[^.]*?->")
_FENCE: Final = re.compile(r"^ *(```|~~~)")
_LIST_ITEM: Final = re.compile(r"^\s*([*+-]|\d+[.)])\s+")


class Kind(Enum):
    DOCSTRING = "docstring"
    COMMENT = "comment"
    MESSAGE = "message"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Prose:
    """One paragraph, in one line."""

    path: str
    line: int
    kind: Kind
    text: str
    #: the first paragraph of a docstring
    is_head: bool = False


def of_source(path: Path, name: str) -> Iterator[Prose]:
    """The prose of a Python file. `name`: its path as findings give it."""
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstring(node, name)
            yield from _of_fields(node, name)
        elif isinstance(node, ast.Call):
            yield from _message(node, name)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _text(node.exc, node.exc.args, name)
    yield from _comments(path.read_text(encoding="utf-8"), name)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Prose]:
    text = ast.get_docstring(node)
    if text is None:
        return
    line = node.body[0].lineno
    for number, (offset, paragraph) in enumerate(_paragraphs(text)):
        yield Prose(name, line + offset, Kind.DOCSTRING, paragraph, is_head=number == 0)


def _of_fields(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Prose]:
    """Strings after an assignment describe what was assigned."""
    for before, after in pairwise(node.body):
        if (
            isinstance(before, ast.Assign | ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            text = after.value.value
            for offset, paragraph in _paragraphs(text if isinstance(node, ast.Module) else inspect.cleandoc(text)):
                yield Prose(name, after.lineno + offset, Kind.COMMENT, paragraph)


def _message(node: ast.Call, name: str) -> Iterator[Prose]:
    """The text of a log line."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in _LOG_METHODS:
        yield from _text(node, node.args[:1], name)


def _text(node: ast.Call, arguments: list[ast.expr], name: str) -> Iterator[Prose]:
    """The first of these arguments that is a text of several words."""
    for argument in arguments:
        text = _literal(argument)
        if " " in text:
            yield Prose(name, node.lineno, Kind.MESSAGE, " ".join(text.split()))
            return


def _literal(node: ast.expr) -> str:
    """A text in which a value stands as a word; empty for what is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) for part in node.values)
    return "X" if isinstance(node, ast.FormattedValue) else ""


def _comments(source: str, name: str) -> Iterator[Prose]:
    """Comments of consecutive lines are one."""
    begun, last, lines = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row = token.start[0]
        text = token.string
        stands_alone = token.line.lstrip().startswith("#")
        if lines and (row != last + 1 or not stands_alone or text.startswith("#:")):
            yield Prose(name, begun, Kind.COMMENT, " ".join(lines))
            lines = []
        if _NO_PROSE.match(text):
            continue
        if not lines:
            begun = row
        lines.append(text.lstrip("#: ").partition("# noqa")[0].strip())
        last = row
    if lines:
        yield Prose(name, begun, Kind.COMMENT, " ".join(lines))


def of_page(path: Path, name: str) -> Iterator[Prose]:
    """The paragraphs and the items of lists of a page: no code, no tables, no headings, nothing generated."""
    text = path.read_text(encoding="utf-8")
    if "Do not edit. -->" in text[:300]:
        return
    kept, in_code = [], False
    for line in text.split("\n"):
        if _FENCE.match(line):
            in_code = not in_code
            kept.append("")
        elif in_code or line.lstrip().startswith(("|", "#", "<", "![", ">")):
            kept.append("")
        else:
            kept.append(line)
    for offset, paragraph in _paragraphs("\n".join(kept)):
        yield Prose(name, 1 + offset, Kind.PAGE, paragraph)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each with its first line's offset. An item of a list is a paragraph; code that stands apart is none."""
    begun, lines = 0, list[str]()
    for offset, line in enumerate([*text.split("\n"), ""]):
        ends = not line.strip() or _LIST_ITEM.match(line) is not None
        if ends and lines:
            yield begun, " ".join(lines)
            lines = []
        if not line.strip() or (not lines and line.startswith("    ") and _LIST_ITEM.match(line) is None):
            continue
        if not lines:
            begun = offset
        lines.append(_LIST_ITEM.sub("", line).strip())
