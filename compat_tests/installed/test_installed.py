"""The wheel in environments of applications: with each kafka-python that they have, and with exactly the oldest
packages that pyproject.toml allows, those of the tools among them."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from compat_tests.packaged import Environment, make_dist, name_of, run
from testkit.project import DEPENDENCIES, EXTRAS

APPLICATION = Path(__file__).parent / "application" / "application_tests.py"
#: 2.0.2 does not run on Python 3.12 and later.
VERSIONS = [version for version in ("2.0.2", "2.2.15", "3.0.12") if version != "2.0.2" or sys.version_info < (3, 12)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dist(tmp_path_factory.mktemp("wheel"))["compiled"]


def run_tests(environment: Environment) -> str:
    """Run the application's tests in a folder that has nothing else; returns the output."""
    home = environment.folder / "application"
    home.mkdir()
    shutil.copy(APPLICATION, home)
    return run([environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", APPLICATION.name], home)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_application_keeps_its_kafka_python(version: str, wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install("pytest", f"kafka-python=={version}")
    before = environment.installed()
    assert before["kafka-python"] == f"kafka-python=={version}"
    environment.install(wheel)
    after = environment.installed()
    assert {name: after.get(name) for name in before} == before
    base = {name_of(requirement) for requirement in DEPENDENCIES}
    # Requirements of cryptography and python-snappy.
    of_base = {"cffi", "cramjam", "pycparser", "typing-extensions"}
    assert base - before.keys() <= after.keys() - before.keys() - {"pykbroker"} <= base | of_base
    said = run_tests(environment)
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the oldest packages have wheels for Python 3.11 only")
def test_the_oldest_packages_that_are_taken(wheel: Path, tmp_path: Path) -> None:
    oldest = [oldest_of(one) for one in (*DEPENDENCIES, *EXTRAS["tools"])]
    environment = Environment(tmp_path / "environment")
    environment.install("pytest>=8", f"{wheel}[tools]", *oldest)
    assert set(oldest) <= set(environment.installed().values())
    said = run_tests(environment)
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said


def oldest_of(requirement: str) -> str:
    lowest = re.search(r">=([\d.a-z]+)", requirement)
    assert lowest is not None, f"{requirement} has no lower bound"
    return f"{name_of(requirement)}=={lowest[1]}"
