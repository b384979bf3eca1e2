"""The tests before the project was restructured, and the present place of each, so that no test is lost in a move.

`before.txt` has the tests of the commit that its first line names, as `python -m tests.ledger.ledger` wrote it.
`moves.toml` has the new names of the tests that were renamed or replaced since. A test is `folder/test_file.py::name`,
without its parameters. A name of a class stands for all tests of that class.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from tests.long_runs import ROOT, git
from tests.parsed import parsed

HERE: Final = Path(__file__).parent
BEFORE: Final = HERE / "before.txt"
MOVES: Final = HERE / "moves.toml"
_FOLDERS: Final = ("tests", "compat_tests")


class Moves(NamedTuple):
    """`moved`: the beginning of a test, as the beginning that it has now: a folder with its slash, a file, or a whole
    test. `gone`: a test, and the reason why it is no more."""

    moved: Mapping[str, str]
    gone: Mapping[str, str]

    def now(self, test: str) -> str:
        """Where a test of before stands: the longest beginning decides."""
        file = test.partition("::")[0]
        folders = (f"{folder}/" for folder in PurePosixPath(file).parents)
        for begin in (test, file, *folders):
            if begin in self.moved:
                return self.moved[begin] + test.removeprefix(begin)
        return test


def read_moves() -> Moves:
    found = tomllib.loads(MOVES.read_text(encoding="utf-8"))
    return Moves(found["moved"], found["gone"])


def read_before() -> set[str]:
    """The tests of before."""
    found: set[str] = set()
    file = ""
    for line in BEFORE.read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith(" "):
            found.add(f"{file}::{line.strip()}")
        else:
            file = line
    return found


@cache
def standing() -> frozenset[str]:
    """The tests of this tree, read from the sources."""
    return frozenset(
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for folder in _FOLDERS
        for path in sorted((ROOT / folder).rglob("test_*.py"))
        for name in names(parsed(path))
    )


def names(module: ast.Module) -> Iterator[str]:
    """Its tests."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield node.name
        elif isinstance(node, ast.ClassDef):
            if node.name.startswith("Test"):
                yield node.name
        elif isinstance(node, ast.Assign):
            # A state machine of hypothesis: TestModel = Model.TestCase.
            targets = (target.id for target in node.targets if isinstance(target, ast.Name))
            yield from (name for name in targets if name.startswith("Test"))


def record() -> None:
    """Write `before.txt` anew, from this tree and its commit."""
    lines = [f"# The tests of {git('rev-parse', 'HEAD')}."]
    file = ""
    for test in sorted(standing()):
        at, _, name = test.partition("::")
        if at != file:
            lines.append(at)
            file = at
        lines.append(f" {name}")
    BEFORE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
