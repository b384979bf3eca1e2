"""The service of FastStream on docs/test-time.md runs in a world, unmodified: it dies, and loses no order."""

from __future__ import annotations

import re
from pathlib import Path

from compat_tests.frameworks.runs import run_pytest
from testkit import console

HEAD = "# test_faststream.py\n"


def test_faststream_in_a_world(tmp_path: Path) -> None:
    (example,) = (text for _, text in console.blocks(console.page("docs/test-time.md")) if text.startswith(HEAD))
    (tmp_path / "test_it.py").write_text(example, encoding="utf-8")
    done = run_pytest(tmp_path)
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr
