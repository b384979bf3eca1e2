"""Fail a run in CI that skipped a test: a skip there means that CI did not have what it promises to have.

Active where the environment says `CI`; elsewhere a skip is a fair answer of a machine that lacks a program. Used by
both conftests. `EXPECTED` may hold five entries at most.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

NAME = "skips-fail-in-ci"
#: Beginning of a test's id -> why CI may skip it.
EXPECTED: Mapping[str, str] = {
    "tests/faults/test_machinery.py::test_packets": "without /dev/net/tun the fault runs leave the network out",
}
MOST_EXPECTED = 5
#: The reason of a test that `make quick` leaves out begins with this (tests/quick.py). That run does not require it.
LEFT_OUT = "left out of `make quick`: it needs the package "


class SkipsFail:
    """Collects what was skipped, and turns a green run red if `expected` does not name it."""

    def __init__(self, expected: Mapping[str, str]) -> None:
        assert len(expected) <= MOST_EXPECTED, "more exceptions than the project allows itself"
        self._expected = expected
        self._skipped: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        return [f"{nodeid} was skipped: {reason}" for nodeid, reason in sorted(self._skipped.items())]

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        if not any(report.nodeid.startswith(known) for known in self._expected):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not reason.startswith(LEFT_OUT):
                self._skipped[report.nodeid] = reason

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == 0:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._skipped:
            return
        terminalreporter.section("CI must not skip")
        for nodeid, reason in sorted(self._skipped.items()):
            terminalreporter.write_line(f"{nodeid}: {reason}")


def problems_of(config: pytest.Config) -> list[str]:
    """A line for each test that was skipped and may not be; none outside CI."""
    plugin = config.pluginmanager.get_plugin(NAME)
    return plugin.problems if isinstance(plugin, SkipsFail) else []


def register(config: pytest.Config) -> None:
    """Once per run, in the process that counts, and only in CI."""
    if os.environ.get("CI") and not hasattr(config, "workerinput") and not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(SkipsFail(EXPECTED), NAME)
