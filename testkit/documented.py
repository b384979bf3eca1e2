"""The examples of docs/testing.md as they are written, for the tests that run them.

An example is a block of Python that imports everything it uses. Its imports decide where it can run.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A word that an example imports -> what it needs beyond the environment of the tests.
_NEEDS = {
    "faststream": "frameworks",
    "quixstreams": "frameworks",
    "faust": "frameworks",
    "pyspark": "spark",
    "PykbrokerContainer": "docker",
}


@dataclass(frozen=True)
class Example:
    """`line`: the line of the page where it begins. `needs`: "" or a value of _NEEDS."""

    line: int
    code: str
    needs: str

    @property
    def is_test(self) -> bool:
        """True if pytest collects a test in it; otherwise it is a script."""
        return "def test_" in self.code

    def write(self, folder: Path) -> Path:
        """Write it as a file with one test."""
        path = folder / f"test_line_{self.line}.py"
        code = self.code if self.is_test else "def test_script():\n" + textwrap.indent(self.code, "    ")
        path.write_text(code, encoding="utf-8")
        return path


def blocks(language: str) -> Iterable[tuple[int, str]]:
    """Yield the first line and the text of each block of a language."""
    text = PAGE.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        if match[1] == language:
            yield text.count("\n", 0, match.start()) + 1, match[2]


def examples() -> list[Example]:
    """Return every block of Python."""
    found = []
    for line, code in blocks("python"):
        needs = {need for word, need in _NEEDS.items() if re.search(rf"import .*\b{word}\b|from {word}\b", code)}
        assert len(needs) <= 1, f"the example in line {line} needs {needs}"
        found.append(Example(line, code, needs.pop() if needs else ""))
    return found
