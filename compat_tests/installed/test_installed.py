"""The wheel in environments of applications: with each kafka-python that they have, and with exactly the oldest
packages that pyproject.toml allows, those of the tools among them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testkit import needs

ROOT = Path(__file__).parents[2]
APPLICATION = Path(__file__).parent / "application" / "application_tests.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: 2.0.2 does not run on Python 3.12 and later.
VERSIONS = [version for version in ("2.0.2", "2.2.15", "3.0.12") if version != "2.0.2" or sys.version_info < (3, 12)]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV"))}


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy, because a build leaves compiled files in the tree, and other tests check that.
    source = folder / "source"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if name.startswith(("pykbroker/", "wire/", "log/", "raft/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", str(folder)]
    subprocess.run([*build, str(source)], env=CLEAN, check=True, timeout=600)
    (found,) = folder.glob("pykbroker-*.whl")
    return found


class Environment:
    """A Python environment of its own. Packages come from uv's cache if it has them."""

    def __init__(self, folder: Path) -> None:
        self._uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or needs.program("uv")
        self._folder = folder
        self.python = folder / "bin" / "python"
        self._run(self._uv, "venv", "-q", "--python", sys.executable, str(folder))

    def install(self, *words: str) -> None:
        self._run(self._uv, "pip", "install", "-q", "--python", str(self.python), *words)

    def installed(self) -> dict[str, str]:
        said = self._run(self._uv, "pip", "freeze", "--python", str(self.python))
        return {name_of(line): line for line in said.splitlines()}

    def run_tests(self) -> str:
        """Run the application's tests in a folder that has nothing else; returns the output."""
        home = self._folder / "application"
        home.mkdir()
        shutil.copy(APPLICATION, home)
        return self._run(str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", APPLICATION.name, cwd=home)

    def _run(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(words, env=CLEAN, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_an_application_keeps_its_kafka_python(version: str, wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install("pytest", f"kafka-python=={version}")
    before = environment.installed()
    assert before["kafka-python"] == f"kafka-python=={version}"
    environment.install(str(wheel))
    after = environment.installed()
    assert {name: after.get(name) for name in before} == before
    base = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    # Requirements of cryptography and python-snappy.
    of_base = {"cffi", "cramjam", "pycparser", "typing-extensions"}
    assert base - before.keys() <= after.keys() - before.keys() - {"pykbroker"} <= base | of_base
    said = environment.run_tests()
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the oldest packages have wheels for Python 3.11 only")
def test_the_oldest_packages_that_are_taken(wheel: Path, tmp_path: Path) -> None:
    oldest = [oldest_of(one) for one in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["tools"])]
    environment = Environment(tmp_path / "environment")
    environment.install("pytest>=8", f"{wheel}[tools]", *oldest)
    assert set(oldest) <= set(environment.installed().values())
    said = environment.run_tests()
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said


def oldest_of(requirement: str) -> str:
    lowest = re.search(r">=([\d.a-z]+)", requirement)
    assert lowest is not None, f"{requirement} has no lower bound"
    return f"{name_of(requirement)}=={lowest[1]}"
