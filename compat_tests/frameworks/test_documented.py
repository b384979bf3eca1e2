"""FastStream, Quix Streams and Faust on a broker of their test process: the examples of docs/testing.md as written.

They run with the Python of `.venv-frameworks`, which `make test-env` makes from requirements.txt in this folder.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from testkit import needs
from testkit.documented import examples


def test_the_examples(tmp_path: Path) -> None:
    python = needs.frameworks()
    written = [example.write(tmp_path) for example in examples() if example.needs == "frameworks"]
    assert len(written) == 3
    # The path of this process belongs to its own environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^3 passed", done.stdout, re.MULTILINE), done.stdout
