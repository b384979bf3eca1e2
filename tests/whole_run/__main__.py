"""`python -m tests.whole_run`: tests/, compat_tests/, the second chance, and one closing line of pytest's kind.

Arguments after `--` go to both sessions of pytest. The environment of each session has a mark, by which processes that
it leaves running are found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.whole_run import known, leaks, recorder, timings
from tests.whole_run.forgiving import closing_line, first_verdict, flaky_lines, told_causes
from tests.whole_run.outcome import Outcome

#: Both sessions wait for half of their time, for nodes, JVMs and timeouts, so four workers keep two cores busy. Unit
#: tests share nothing; testkit/dealing.py distributes the compat tests.
SESSIONS: Final[Mapping[str, Sequence[str]]] = {
    "tests": ["-m", "not long", "-n", "4", "--dist", "worksteal"],
    "compat_tests": ["-m", "not long", "-n", "4"],
}
#: After this line `.ci/run` repeats the output of the tests, after the lint.
CAUSES: Final = " what failed ".center(110, "=")


class WholeRun:
    """Sessions of pytest below `root`, one after the other. `options`: arguments of pytest for all of them."""

    def __init__(self, root: Path, options: Sequence[str], folder: Path) -> None:
        self._root = root
        self._options = options
        self._folder = folder
        self.outcomes: dict[str, Outcome] = {}

    def session(self, name: str, arguments: Sequence[str]) -> Outcome:
        """Run pytest once in a separate process. A session that ended without an outcome has failed."""
        file, mark = self._folder / f"{name}.json", uuid.uuid4().hex
        command = [sys.executable, "-m", "pytest", "-p", "tests.whole_run.recorder", *self._options, *arguments]
        environment = {**os.environ, recorder.VARIABLE: str(file), leaks.VARIABLE: mark}
        # With this variable each node under test would compile its modules again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        ended = subprocess.run(command, cwd=self._root, env=environment, stdin=subprocess.DEVNULL)
        outcome = Outcome.read(file) if file.exists() else Outcome(exit_status=0)
        outcome.exit_status = ended.returncode
        outcome.problems += [f"a process outlived the session: {leaked}" for leaked in leaks.end_leaked(mark)]
        return outcome

    def run(self, sessions: Mapping[str, Sequence[str]], mended: Collection[str] = ()) -> int:
        """Return the exit status: 0 if every test passed, at its second try at the latest."""
        began = time.monotonic()
        for name, arguments in sessions.items():
            self.outcomes[name] = self.session(name, [name, *arguments])
        outcomes = list(self.outcomes.values())
        verdict = first_verdict(self.outcomes, mended)
        failures = [failure for outcome in outcomes for failure in outcome.failures]
        flaky: list[str] = []
        if verdict.retry and not verdict.reasons:
            print(f"\nA second chance for {len(verdict.retry)} tests that failed:", flush=True)
            second = self.session("second-chance", ["-p", "no:xdist", *verdict.retry])
            verdict.reasons += second.problems
            if second.exit_status == 0 and not second.skipped:
                flaky = flaky_lines(failures)
            else:
                failures += second.failures
                verdict.reasons.append("not every test passed at its second try")
        if failures:
            print(CAUSES, *told_causes(failures), sep="\n")
        for line in [*flaky, *(f"FAILED {reason}" for reason in verdict.reasons)]:
            print(line)
        failed = sum(len(outcome.failed_tests) for outcome in outcomes)
        print(
            closing_line(
                passed=sum(outcome.passed for outcome in outcomes) + (failed if not verdict.reasons else 0),
                failed=max(failed, 1) if verdict.reasons else 0,
                skipped=sum(outcome.skipped for outcome in outcomes),
                flaky=len(flaky),
                seconds=time.monotonic() - began,
            ),
            flush=True,
        )
        return 1 if verdict.reasons else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.whole_run", description="Run all tests.")
    parser.add_argument("--only", choices=SESSIONS, help="one of the sessions")
    parser.add_argument("options", nargs="*", help="arguments of pytest, after --")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whole-run-") as folder:
        whole = WholeRun(Path.cwd(), chosen.options, Path(folder))
        sessions = {chosen.only: SESSIONS[chosen.only]} if chosen.only else SESSIONS
        status = whole.run(sessions, known.mended())
        timings.note(whole.outcomes.values())
    return status


if __name__ == "__main__":
    sys.exit(main())
