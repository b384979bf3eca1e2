"""Programs besides Python that the compat tests need. If one is missing, the test is skipped and names it.

`compat_tests/setup/system.sh` installs all of them on a Debian machine where it runs as root.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
#: The interpreter that runs nodes of pykbroker. `PYKBROKER_COMPAT_PYTHON` names one of another build: then these tests
#: judge the processes of that build, but not nodes inside a test and not the image.
NODE_PYTHON = os.environ.get("PYKBROKER_COMPAT_PYTHON", sys.executable)
HOW = "compat_tests/setup/system.sh installs it where it runs as root"


def node_command(python: str = NODE_PYTHON) -> list[str]:
    """Return the beginning of a command of a node's `pykbroker`. Another build must not be found in the working
    directory."""
    return [python, *([] if python == sys.executable else ["-P"]), "-m", "pykbroker"]


def program(name: str) -> str:
    """Return the path of a program, or skip the test with its name."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is missing: {HOW}")
    return path


def docker_daemon() -> None:
    """Skip the test unless a Docker daemon answers."""
    said = subprocess.run([program("docker"), "version"], capture_output=True, text=True, timeout=60, check=False)
    if said.returncode:
        reason = (said.stderr.strip().splitlines() or ["no answer"])[-1]
        pytest.skip(f"the Docker daemon does not run ({reason}): system.sh starts it where it runs as root")


def frameworks() -> str:
    """Return the Python with FastStream, Quix Streams and Faust, or skip the test."""
    python = ROOT / ".venv-frameworks" / "bin" / "python"
    if not (python.parent.parent / ".made").exists():
        pytest.skip("the environment of the frameworks is missing: `make test-env` makes it")
    return str(python)


def sslyze() -> str:
    """Return the Python with sslyze, or skip the test."""
    python = ROOT / ".venv-sslyze" / "bin" / "python"
    if not (python.parent.parent / ".made").exists():
        pytest.skip("the environment of sslyze is missing: `make test-env` makes it")
    return str(python)


def java() -> str:
    return program("java")


def go(least: tuple[int, int]) -> str:
    """Return Go of at least this version, because older ones cannot build the module and fail with compiler errors."""
    path = program("go")
    said = subprocess.run([path, "version"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < least:
        pytest.skip(f"Go {least[0]}.{least[1]} or newer is missing: this machine says {said.strip()!r}")
    return path


def node(least: int) -> str:
    """Return Node of at least this major version."""
    path = program("node")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout
    found = re.match(r"v(\d+)\.", said)
    if found is None or int(found[1]) < least:
        pytest.skip(f"Node {least} or newer is missing: this machine says {said.strip()!r}")
    return path


def python_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"the Python package {name} is missing: make test-env installs it")
