"""CPU seconds and seconds of time per folder at the end of a pytest run. Used by both conftests.

CPU seconds count the processes that a test started, also those that still run, so that a figure means the same on a
busy machine. They do not count what a daemon does for a test: containers of Docker belong to its daemon.
`tests/whole_run/timings.py` compares the figures of a whole run with what each folder may use.
"""

from __future__ import annotations

import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from _pytest.reports import TestReport

NAME = "seconds-per-folder"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU time of this process and its descendants, including those that ended and were waited for."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + _of_descendants(os.getpid())


def _of_descendants(pid: int) -> float:
    """Return the CPU time of the living descendants of a process, 0 if the system has no /proc."""
    total = 0.0
    for child in _children(pid):
        try:
            # After the name, which may contain blanks: state is field 3, utime to cstime are fields 14 to 17.
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / _TICKS + _of_descendants(child)
    return total


def _children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            continue


@dataclass(slots=True)
class Spent:
    """The time that the tests of one folder have used."""

    tests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def cpu_seconds_of(report: TestReport) -> float:
    """Return the CPU time of the phase of a report, 0 if the worker crashed before it could report it."""
    return float(getattr(report, "cpu_seconds", 0.0))


class SecondsPerFolder:
    """Adds up set-up, call and tear-down of every test under the folder of its file."""

    def __init__(self) -> None:
        self._folders: dict[str, Spent] = defaultdict(Spent)
        self._before = 0.0

    def pytest_collection_finish(self) -> None:
        """Leave out the time of importing and collecting, which belongs to no test."""
        self._before = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Put the CPU time of this phase into the report, in the process that runs the test."""
        report: TestReport = yield  # type: ignore[assignment]
        now = cpu_seconds()
        # The CPU time of a process that ended and was not waited for is lost, so the difference may be negative.
        report.cpu_seconds = max(0.0, now - self._before)  # type: ignore[attr-defined]
        self._before = now
        return report  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: TestReport) -> None:
        folder = report.nodeid.partition("::")[0].rpartition("/")[0] or "."
        spent = self._folders[folder]
        spent.seconds += report.duration
        spent.cpu_seconds += cpu_seconds_of(report)
        spent.tests += report.when == "setup"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._folders:
            return
        terminalreporter.section("seconds per folder")
        for folder, spent in sorted(self._folders.items(), key=lambda item: -item[1].seconds):
            terminalreporter.write_line(
                f"{spent.seconds:8.1f} s  {spent.cpu_seconds:8.1f} s of CPU  {spent.tests:5d} tests  {folder}"
            )


def register(config: pytest.Config) -> None:
    """Once per run, also when both conftests are loaded."""
    if not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(SecondsPerFolder(), NAME)
