"""tests/, compat_tests/ and bench/ share testkit/: it imports none of them, and none imports another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.parsed import imported, parsed

ROOT: Final = Path(__file__).parents[1]
#: (importing file or folder, what it imports) and the reason why that is not in testkit/.
APART: Final = {
    ("tests/bench", "bench"): "these tests judge how bench/ measures, compares and reports",
    ("tests/pages/test_readme.py", "bench.report"): "the README's figures stand between the two markers of that module",
}


def module_of(name: str) -> str:
    """Return the module that has an imported name, or the name if it is a module."""
    module, _, _ = name.rpartition(".")
    is_name_in_module = (ROOT / f"{module.replace('.', '/')}.py").is_file()
    return module if is_name_in_module else name


def imported_from(others: set[str], path: Path) -> set[str]:
    """Return the modules of other folders that a file imports. Most files name none after an `import` or a `from`, and
    are not parsed."""
    names = "|".join(sorted(others))
    if not re.search(rf"\b(?:import|from)\b.*\b(?:{names})\b", path.read_text(encoding="utf-8")):
        return set()
    return {module_of(name) for name in imported(parsed(path)) if name.partition(".")[0] in others}


@pytest.mark.slow
def test_they_share_the_testkit_alone() -> None:
    folders = {"testkit", "tests", "compat_tests", "bench"}
    across = {
        (path.relative_to(ROOT).as_posix(), module)
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for module in imported_from(folders - {folder, "testkit"}, path)
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
