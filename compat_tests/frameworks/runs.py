"""pytest with the Python of `.venv-frameworks`, which `make test-env` makes from requirements.txt in this folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testkit import needs


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder."""
    # The path of this process belongs to its own environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [needs.frameworks(), "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
