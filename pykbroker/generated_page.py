"""Pages of docs/ that a program writes. `make lint` checks that each page is what its program would write now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def check(path: Path, text: str, command: str) -> int:
    """Return 0 if the page is `text`. Otherwise print which command writes the page, and return 1."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/{path.name} is stale: run python -m {command}", file=sys.stderr)
    return 1


def main(path: Path, page: Callable[[], str], module: str, arguments: Sequence[str]) -> int:
    """Run such a program, and return its exit status: `python -m MODULE` writes the page, `--check` only checks it."""
    if arguments not in ([], ["--check"]):
        print(f"usage: python -m {module} [--check]", file=sys.stderr)
        return 2
    if arguments:
        return check(path, page(), module)
    path.write_text(page(), encoding="utf-8")
    return 0
