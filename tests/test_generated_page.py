"""A page that a program writes: written, checked, stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker import generated_page


def test_a_stale_page_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.md"

    def run(text: str, *arguments: str) -> int:
        return generated_page.main(path, lambda: text, "a.module", list(arguments))

    assert run("one", "--check") == 1
    assert capsys.readouterr().err == "docs/page.md is stale: run python -m a.module\n"
    assert run("one") == 0
    assert run("one", "--check") == 0
    assert run("two", "--check") == 1
    assert path.read_text() == "one"
    assert run("one", "--wrong") == 2
