"""Seconds per folder at the end of a pytest run, so that a slow room shows before it hurts. Used by both conftests."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

NAME = "seconds-per-folder"


class SecondsPerFolder:
    """Adds up set-up, call and tear-down of every test under the folder of its file."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._tests: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = report.nodeid.partition("::")[0].rpartition("/")[0] or "."
        self._seconds[folder] += report.duration
        self._tests[folder] += report.when == "setup"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        terminalreporter.section("seconds per folder")
        for folder, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{seconds:8.1f} s  {self._tests[folder]:5d} tests  {folder}")


def register(config: pytest.Config) -> None:
    """Once per run, also when both conftests are loaded."""
    if not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(SecondsPerFolder(), NAME)
