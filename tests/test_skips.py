"""In CI a skipped test fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = "from testkit import skips\n\ndef pytest_configure(config):\n    skips.register(config)\n"
TESTS = {
    "a test that skips": "import pytest\n\ndef test_it():\n    pytest.skip('kcat is missing')\n",
    "a module that skips": "import pytest\n\npytest.importorskip('no_such_module')\n\ndef test_it():\n    pass\n",
}


def run(folder: Path, source: str, *options: str, ci: bool) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_one.py").write_text(source)
    (folder / "test_two.py").write_text("def test_passes():\n    pass\n")
    environment = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT)
    if ci:
        environment["CI"] = "true"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), *options, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", TESTS.values(), ids=TESTS)
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_skip_fails_the_run_in_ci(tmp_path: Path, source: str, options: tuple[str, ...]) -> None:
    done = run(tmp_path, source, *options, ci=True)
    assert done.returncode == 1, done.stdout
    assert "CI must not skip" in done.stdout
    assert "test_one.py" in done.stdout.partition("CI must not skip")[2]


@pytest.mark.slow
def test_elsewhere_a_skip_is_an_answer(tmp_path: Path) -> None:
    assert run(tmp_path, TESTS["a test that skips"], ci=False).returncode == 0


@pytest.mark.slow
def test_a_run_in_ci_without_a_skip_is_green(tmp_path: Path) -> None:
    assert run(tmp_path, "def test_it():\n    pass\n", ci=True).returncode == 0
