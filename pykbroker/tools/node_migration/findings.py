"""A finding of the check: one line for the operator, with its level, its place and what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

_MOST_NAMES: Final = 5


class FindingLevel(Enum):
    #: the node must not move now
    STOP = "stop"
    #: the node can move, and the operator should know this first
    WARN = "warn"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class NodeFinding:
    level: FindingLevel
    what: str
    where: str
    to_do: str = ""


def stop(what: str, where: str, to_do: str) -> NodeFinding:
    return NodeFinding(FindingLevel.STOP, what, where, to_do)


def warn(what: str, where: str, to_do: str) -> NodeFinding:
    return NodeFinding(FindingLevel.WARN, what, where, to_do)


def ok(what: str, where: str, to_do: str = "") -> NodeFinding:
    return NodeFinding(FindingLevel.OK, what, where, to_do)


def some(names: Sequence[object], most: int = _MOST_NAMES) -> str:
    """Return the first names, and the number of the others. A line stays short however many names there are."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line not in self.lines:
            self.lines.append(line)


@contextmanager
def logged_warnings() -> Iterator[list[str]]:
    """Collect the warnings that the code of the start logs within this context, so that the check reports them as
    findings and not as lines of a log."""
    root, collector = logging.getLogger(), _Collector()
    before = root.handlers[:]
    root.handlers = [collector]
    try:
        yield collector.lines
    finally:
        root.handlers = before
