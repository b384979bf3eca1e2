"""The results of the long runs are kept, and an interrupted run continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import long_runs

SOURCE = """
import pathlib
import pytest

@pytest.mark.long(amount="two seeds")
@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    assert n == 1 or pathlib.Path(__file__).with_name("mended").exists()
"""
PLUGIN = """
import pathlib
from tests import long_runs

long_runs.NOTES = pathlib.Path(__file__).with_name("notes.jsonl")
long_runs.code_id = lambda: "the-same-code"

def pytest_configure(config):
    config.addinivalue_line("markers", "long(amount): a long one")
    config.pluginmanager.register(long_runs.Record(), "record")
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(PLUGIN)
    environment = {**os.environ, "PYTHONPATH": str(long_runs.ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def results(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "notes.jsonl").read_text().splitlines()
    return [(note["test"], note["result"]) for note in map(json.loads, lines)]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(SOURCE)
    assert run(tmp_path).returncode == 1
    assert results(tmp_path) == [("test_one.py::test_it[1]", "passed"), ("test_one.py::test_it[2]", "failed")]
    (tmp_path / "mended").touch()
    assert "1 deselected" in run(tmp_path).stdout
    assert results(tmp_path)[2:] == [("test_one.py::test_it[2]", "passed")]


@pytest.mark.slow
def test_a_long_test_says_how_much_it_does(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(SOURCE.replace('(amount="two seeds")', ""))
    done = run(tmp_path)
    assert done.returncode != 0
    assert "needs amount=" in done.stdout + done.stderr


def test_the_page_has_the_newest_result_of_each_test() -> None:
    note = {"test": "t", "amount": "200 kills", "seconds": 9, "date": "2026-11-22 10:00", "commit": "c", "code": "d"}
    text = long_runs.page([{**note, "result": "failed"}, {**note, "result": "passed"}])
    assert "| `t` | 200 kills | passed | 9 | 2026-11-22 10:00 | c |" in text
    assert "1 tests are on record, 0 of them did not pass" in text


def test_code_with_uncommitted_changes_counts_for_nothing() -> None:
    note = {"test": "t", "result": "passed", "code": "abc"}
    assert long_runs.passed_with("abc", [note]) == {"t"}
    assert long_runs.passed_with("abc+", [{**note, "code": "abc+"}]) == set()
    assert long_runs.passed_with("other", [note]) == set()
