"""pykbroker of an earlier commit, in an environment of its own, which is made once and kept in .cache/."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from compat_tests.built import run
from testkit.kept import kept
from testkit.needs import ROOT


def earlier(commit: str) -> Path:
    """Return the interpreter of an environment with that build. Skip the test if the clone does not have the commit."""
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"commit {commit} is missing: this clone does not have the history")

    def make(folder: Path) -> None:
        archive, source = folder / "source.tar", folder / "source"
        run(["git", "archive", f"--output={archive}", commit], cwd=ROOT)
        with tarfile.open(archive) as opened:
            opened.extractall(source, filter="data")
        archive.unlink()
        run([sys.executable, "-m", "venv", str(folder / "environment")])
        run([str(_python(folder)), "-m", "pip", "install", "-q", str(source)])

    return _python(kept("builds", commit, make))


def _python(folder: Path) -> Path:
    return folder / "environment" / "bin" / "python"
