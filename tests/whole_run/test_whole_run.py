"""Whole runs of two folders that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.stored_timings import Spent
from tests.whole_run import known, timings
from tests.whole_run.__main__ import CAUSES, WholeRun

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GOOD = "def test_good():\n    pass\n"
#: Fails at its first try only, in the way of `{how}`.
ONCE = """
import os, pathlib
def test_once():
    seen = pathlib.Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        {how}
"""
SLOW_ONCE = ONCE.format(how="raise TimeoutError('not within 3 s: ready')")
CRASHES_ONCE = ONCE.format(how="os._exit(1)")
LOSES_ONCE = ONCE.format(how="assert [1] == [1, 2]")
LEAVES_A_PROCESS = """
import subprocess
def test_leaves():
    subprocess.Popen(["sleep", "60"], start_new_session=True)
"""

Run = Callable[[str, str], tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run(one, other)` returns the exit status of a whole run over two files of tests, and its output."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")

    def both(one: str, other: str) -> tuple[int, str]:
        for name, text in {"one": one, "other": other}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / f"test_{name}.py").write_text(text)
        status = WholeRun(tmp_path, ["-q"], tmp_path).run({"one": ["-n", "1"], "other": ["-n", "1"]})
        return status, capfd.readouterr().out

    return both


def test_tests_that_pass_at_their_second_try_are_named_and_the_run_is_green(run: Run) -> None:
    status, said = run(GOOD + SLOW_ONCE, CRASHES_ONCE)
    lines = said.splitlines()
    assert status == 0
    assert "FLAKY one/test_one.py::test_once: TimeoutError: not within 3 s: ready" in lines
    assert [line for line in lines if line.startswith("FLAKY other/test_other.py::test_once: worker 'gw0' crashed")]
    assert lines[-1].strip("= ").startswith("3 passed, 2 rerun in ")


def test_a_lost_record_fails_the_run_without_a_second_try(run: Run) -> None:
    status, said = run(GOOD, LOSES_ONCE)
    assert status == 1
    assert "second chance" not in said
    _, _, last = said.partition(f"{CAUSES}\n")
    assert last.startswith("other/test_other.py::test_once (call): assert [1] == [1, 2]\n    assert [1] == [1, 2]\n")
    assert said.splitlines()[-1].strip("= ").startswith("1 failed, 1 passed in ")


def test_a_process_that_outlives_its_session_fails_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.whole_run.leaks.PATIENCE_S", 0.2)
    status, said = run(GOOD, LEAVES_A_PROCESS)
    assert status == 1
    assert "FAILED a process outlived the session: sleep 60" in said
    assert said.splitlines()[-1].strip("= ").startswith("1 failed, 2 passed in ")


def test_a_file_that_cannot_be_collected_fails_the_run(run: Run) -> None:
    status, said = run(SLOW_ONCE, "import nothing_of_this_name\n")
    assert status == 1
    assert "FAILED other/test_other.py cannot be collected" in said


def test_the_list_of_flaky_tests_holds_few_open_entries() -> None:
    entry = '[[flaky]]\ntest = "tests/x.py::test_{0}"\ndate = 2026-11-25\ncause = "slow"\nmended = "{1}"\n'
    assert known.check(known.FILE.read_text()) is None
    assert known.check("".join(entry.format(n, "") for n in range(known.MOST_OPEN))) is None
    assert known.check("".join(entry.format(n, "abc") for n in range(9))) is None
    assert "6 open entries" in str(known.check("".join(entry.format(n, "") for n in range(6))))
    assert "keys" in str(known.check('[[flaky]]\ntest = "x"\n'))


def test_a_folder_over_its_budget_or_without_one_is_named() -> None:
    files = {"compat_tests/spark/pipeline/a.py": Spent(1, 9.0, 7.0), "compat_tests/spark/b.py": Spent(1, 9.0, 4.0)}
    assert timings.per_folder(files) == {"compat_tests/spark": 11.0}
    assert timings.over_budget(files, {"compat_tests/spark": 11}) == []
    assert "used 11 CPU seconds, and may use 10" in timings.over_budget(files, {"compat_tests/spark": 10})[0]
    assert "no budget" in timings.over_budget(files, {})[0]
