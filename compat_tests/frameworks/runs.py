"""pytest with the Python of `.venv-frameworks`, which `make test-env` makes from requirements.txt in this folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testkit import needs


def run_pytest(
    folder: Path, *arguments: str, through: Sequence[str] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder. `through`: arguments of Python before `-m pytest`, such as `-m coverage run`. `more`:
    variables of the environment."""
    # The path of this process belongs to its own environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    pytest = ["-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", *arguments, str(folder)]
    return subprocess.run(
        [needs.frameworks(), *through, *pytest],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
