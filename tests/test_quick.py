"""`make quick` leaves out what its two rules leave out, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import quick

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "test_small.py": "def test_passes():\n    pass\n",
    "test_large.py": "import pyspark\n\ndef test_never():\n    raise AssertionError\n",
    "test_uses_large.py": "from tests_of_quick.test_large import test_never\n",
    "test_late.py": "def test_late():\n    import pyspark\n",
}


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as `make quick` does, in an environment like that of CI, where a skip fails the run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-r", "fE", "-p", "tests.quick", "-c", os.devnull]
        + ["--import-mode=importlib", "--rootdir", str(folder), *options, str(folder)],
        env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "CI": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(folder: Path, tests: dict[str, str]) -> Path:
    home = folder / "tests_of_quick"
    home.mkdir()
    for name, source in tests.items():
        (home / name).write_text(source)
    (folder / "conftest.py").write_text(
        "from testkit import skips, timing\n\ndef pytest_configure(config):\n"
        "    timing.register(config)\n    skips.register(config)\n"
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_what_needs_a_large_package_is_left_out_and_counted(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(write(tmp_path, TESTS), *options)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "3  pyspark" in done.stdout.replace("    ", "")


def test_a_long_test_without_the_mark_is_named() -> None:
    plugin = quick.Quick()
    for name, seconds in {"test_a": 2 * quick.LONG_S, "test_b": quick.LONG_S / 2}.items():
        report = pytest.TestReport(name, ("file", 0, name), {}, "passed", None, "call", duration=seconds)
        plugin.pytest_runtest_logreport(report)
    assert list(plugin.long) == ["test_a"]


@pytest.mark.slow
def test_another_error_is_an_error(tmp_path: Path) -> None:
    done = run(write(tmp_path, {"test_wrong.py": "import tests.no_such_module\n"}))
    assert done.returncode != 0
    assert "no_such_module" in done.stdout


def test_a_package_comes_with_what_it_needs() -> None:
    needed = quick.needed(quick.of_the_project())
    # hypothesis needs sortedcontainers, and no line of pyproject.toml says so
    assert {"pytest", "hypothesis", "sortedcontainers", "lz4"} <= needed
    assert not needed & {"pyspark", "py4j", "duckdb", "testcontainers"}


def test_extras_of_the_project_are_read_from_its_file() -> None:
    names = {requirement.name for requirement in quick.of_the_project()}
    assert {"click", "kafka-python", "rich", "pytest"} <= names
    assert "pykbroker" not in names


def test_a_module_that_an_allowed_package_provides_too_is_not_hidden() -> None:
    provided = {"yaml": ["PyYAML"], "google": ["protobuf", "google_re2"], "pyspark": ["pyspark"]}
    assert quick.hidden(provided, {"pyyaml", "google-re2"}) == {"pyspark"}


@pytest.mark.parametrize("module", ["asyncio", "tests", "pykbroker", "pykbroker_wire", "pipeline"])
def test_our_own_modules_are_never_left_out(module: str) -> None:
    assert quick.missing_package(ModuleNotFoundError(name=f"{module}.gone")) is None
