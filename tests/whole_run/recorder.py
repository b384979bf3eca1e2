"""A plugin of pytest (`-p tests.whole_run.recorder`) that writes the session's `Outcome` into a file.

The environment names the file (`VARIABLE`).

It records in the process that collects the reports, which is the only one without xdist.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from testkit import skips, timing
from tests.whole_run.outcome import Failure, Outcome

VARIABLE: Final = "PYKBROKER_OUTCOME"
#: The bytes of pytest's text about one failure that are kept: its beginning and its end.
_KEPT: Final = 20_000


class Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcome = Outcome(exit_status=int(pytest.ExitCode.INTERNAL_ERROR))
        self._began = time.monotonic()
        self._spent: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = self._outcome
        if report.failed:
            outcome.failures.append(failure_of(report))
        elif report.skipped:
            outcome.skipped += 1
        elif report.when == "call":
            outcome.passed += 1
        spent = self._spent[report.nodeid.partition("::")[0]]
        spent[0] += report.when == "setup"
        spent[1] += report.duration
        spent[2] += timing.cpu_seconds_of(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcome.problems.append(f"{report.nodeid} cannot be collected")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        outcome = self._outcome
        outcome.exit_status = int(session.exitstatus)
        outcome.seconds = time.monotonic() - self._began
        outcome.problems += skips.problems_of(session.config)
        outcome.files = {
            file: (int(tests), round(seconds, 2), round(cpu, 2)) for file, (tests, seconds, cpu) in self._spent.items()
        }
        outcome.write(self._file)


def failure_of(report: pytest.TestReport) -> Failure:
    """Return the stored part of a failed report. A worker that crashed has only a line of text."""
    text = "\n".join([report.longreprtext, *(body for _, body in report.sections)])
    crash = getattr(report.longrepr, "reprcrash", None)
    statements = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith(">")]
    return Failure(
        nodeid=report.nodeid,
        when=str(report.when),
        message=crash.message[:_KEPT] if crash is not None else str(report.longrepr)[:_KEPT],
        statement=statements[-1] if statements else "",
        text=text if len(text) <= 2 * _KEPT else f"{text[:_KEPT]}\n[...]\n{text[-_KEPT:]}",
    )


def pytest_configure(config: pytest.Config) -> None:
    if (file := os.environ.get(VARIABLE)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(file)))
