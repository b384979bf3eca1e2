"""tests/, compat_tests/ and bench/ share testkit/: it imports none of them, and none imports another."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.parsed import parsed

ROOT: Final = Path(__file__).parents[1]
#: (importing file or folder, what it imports) and the reason why that is not in testkit/.
APART: Final = {
    ("tests/bench", "bench"): "these tests judge how bench/ measures, compares and reports",
    ("tests/pages/test_readme.py", "bench.report"): "the README's figures stand between the two markers of that module",
}


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = ((ROOT / node.module.replace(".", "/") / f"{alias.name}.py").is_file() for alias in node.names)
            found.update(
                f"{node.module}.{alias.name}" if is_module else node.module
                for alias, is_module in zip(node.names, whole, strict=True)
            )
    return found


@pytest.mark.slow
def test_they_share_the_testkit_alone() -> None:
    folders = {"testkit", "tests", "compat_tests", "bench"}
    across = {
        (path.relative_to(ROOT).as_posix(), module)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for module in imported(path)
        if module.partition(".")[0] in folders - {folder, "testkit"}
    }
    used = {
        apart
        for file, module in across
        for apart in APART
        if f"{file}/".startswith(f"{apart[0]}/") and f"{module}.".startswith(f"{apart[1]}.")
    }
    unexplained = {
        (file, module)
        for file, module in across
        if not any(f"{file}/".startswith(f"{where}/") and f"{module}.".startswith(f"{what}.") for where, what in APART)
    }
    assert unexplained == set()
    assert used == APART.keys(), "a reason is left that no import needs"
