"""Every command and every example of these pages is run as it stands there, and what it prints is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit import console

#: page -> how many steps of it are run, and the targets of make that are left to tests/test_makefile.py
PAGES = {
    "README.md": (7, {"make run", "make test"}),
    "docs/first-day.md": (16, set[str]()),
    "docs/running.md": (3, set[str]()),
    "docs/kafka-tools.md": (4, set[str]()),
    "docs/queues.md": (14, set[str]()),
    "docs/test-time.md": (8, set[str]()),
    "docs/troubleshooting.md": (32, set[str]()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    count, apart = PAGES[name]
    steps = console.steps(console.page(name))
    assert len(steps) == count
    assert apart <= {step.command for step in steps}
    with console.Reader(tmp_path) as reader:
        reader.through(step for step in steps if step.command not in apart)


def test_a_page_that_says_something_else_is_found() -> None:
    assert console.matches("one\ntwo  \n", "one\ntwo\n")
    assert console.matches("[12:00] INFO\nready: localhost:1\n", "[…]\nready: localhost:…\n")
    assert console.matches("", "")
    assert not console.matches("one\n", "")
    assert not console.matches("one\nthree\n", "one\ntwo\n")
    assert not console.matches("one\n", "one\ntwo\n")


def test_what_a_program_prints_stands_after_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ a b\nsays\n$ c\n```\n```python\nx\n```\ntext\n```\nout\n```\n```\nother\n```\n")
    found = [(step.command, step.prints) for step in console.steps(page)]
    assert found == [("a b", "says\n"), ("c", ""), ("x\n", "out\n")]


def test_twenty_errors_are_explained() -> None:
    steps = console.steps(console.page("docs/troubleshooting.md"))
    assert len([step for step in steps if step.fails]) >= 20
