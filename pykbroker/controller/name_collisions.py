"""Topics whose names differ only in `.` and `_`, because their metrics would have one name; pure.

Not responsible for refusing such a topic (topics.py).
"""

from __future__ import annotations

from collections.abc import Set


def _is_ambiguous(name: str) -> bool:
    return "_" in name or "." in name


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


class NameCollisions:
    """The names with `_` or `.` of the topics that exist. Metric names have `_` in place of `.`."""

    __slots__ = ("_by_metric_name",)

    def __init__(self) -> None:
        self._by_metric_name: dict[str, set[str]] = {}

    def of(self, name: str) -> Set[str]:
        """Return the topics that would share metric names with a topic of this name, which may be one of them."""
        return self._by_metric_name.get(_metric_name(name), frozenset()) if _is_ambiguous(name) else frozenset()

    def add(self, name: str) -> None:
        if _is_ambiguous(name):
            self._by_metric_name.setdefault(_metric_name(name), set()).add(name)

    def remove(self, name: str) -> None:
        if _is_ambiguous(name):
            unified = _metric_name(name)
            names = self._by_metric_name.get(unified, set())
            names.discard(name)
            if not names:
                self._by_metric_name.pop(unified, None)

    def clear(self) -> None:
        self._by_metric_name.clear()
