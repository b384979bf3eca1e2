"""The files of `make dist`, and Python environments into which tests install them.

Nothing here sees the repository: a command runs without what leads a Python to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testkit import needs

#: The files of `make dist` by kind: the source archive, a wheel for every platform, and one for this machine.
KINDS: Final = {
    "sdist": "pykbroker-*.tar.gz",
    "pure": "pykbroker-*-py3-none-any.whl",
    "compiled": "pykbroker-*-cp*-abi3-*.whl",
}
_APART: Final = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "PYKBROKER_PURE")


def clean_environment() -> dict[str, str]:
    """Return this process's environment variables without those that lead to the repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_APART)}


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """Run a command that has to succeed, and return its output."""
    done = subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, timeout=600, check=False
    )
    said = f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{said}"
    return done.stdout


def make_dist(folder: Path) -> dict[str, Path]:
    """Run `make dist` into a folder, and return its files by kind."""
    needs.python_package("uv")
    bin_folder = Path(sys.executable).parent
    venv = bin_folder.parent
    # Nothing is installed into the environment of the tests.
    words = ["make", "-C", str(needs.ROOT), "-o", f"{venv}/.install", "dist"]
    run([*words, f"DIST={folder}", f"BIN={bin_folder}", f"VENV={venv}"], folder)
    found = {}
    for kind, pattern in KINDS.items():
        (found[kind],) = folder.glob(pattern)
    return found


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


class Environment:
    """A Python environment of its own in `folder`, which is made. Packages come from uv's cache if it has them."""

    def __init__(self, folder: Path) -> None:
        needs.python_package("uv")
        folder.mkdir()
        self.folder = folder
        self.python = folder / "bin" / "python"
        self._uv = [sys.executable, "-m", "uv"]
        run([*self._uv, "venv", "-q", "--python", sys.executable, folder], folder)

    def install(self, *words: str | Path) -> None:
        command = [*self._uv, "pip", "install", "-q", "--python", self.python, *words]
        offline = subprocess.run(
            [*command, "--offline"], cwd=self.folder, env=clean_environment(), capture_output=True, timeout=600
        )
        if offline.returncode:
            run(command, self.folder)

    def installed(self) -> dict[str, str]:
        """Return the installed packages by name, as `name==version`."""
        said = run([*self._uv, "pip", "freeze", "--python", self.python], self.folder)
        return {name_of(line): line for line in said.splitlines()}
