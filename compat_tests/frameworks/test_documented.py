"""FastStream, Quix Streams and Faust on a broker of their test process: the examples of docs/testing.md as written."""

from __future__ import annotations

import re
from pathlib import Path

from compat_tests.frameworks.runs import run_pytest
from testkit.documented import examples


def test_the_examples(tmp_path: Path) -> None:
    written = [example.write(tmp_path) for example in examples() if example.needs == "frameworks"]
    assert len(written) == 3
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^3 passed", done.stdout, re.MULTILINE), done.stdout
