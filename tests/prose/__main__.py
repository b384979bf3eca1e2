"""`python -m tests.prose [--all] [PATH...]`: print the sentences that are hard to read; exit status 1 if there are any.

PATH is the beginning of paths, for a part of the tree. With --all it prints also words that often stand for another
one, and does not count them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.long_runs import git
from tests.prose.rules import FAILING, Finding, findings
from tests.prose.texts import of_page, of_source

ROOT: Final = Path(__file__).resolve().parents[2]
#: Stored texts, what is generated, and the rows of configuration keys, whose comments are cells of a table.
_SKIPPED: Final = (
    "changes/",
    "pykbroker/config/keys/",
    "tests/golden/",
    "wire/pykbroker_wire/messages/",
    "wire/pykbroker_wire/stored/",
    "CHANGELOG.md",
)


def read_all(beginnings: Iterable[str] = ("",)) -> Iterator[Finding]:
    for name in sorted(git("ls-files").splitlines()):
        path = ROOT / name
        if name.startswith(_SKIPPED) or not name.startswith(tuple(beginnings)) or not path.is_file():
            continue
        if name.endswith(".py"):
            texts = of_source(path, name)
        elif name.endswith(".md"):
            texts = of_page(path, name)
        else:
            continue
        for prose in texts:
            yield from findings(prose)


def main() -> int:
    parser = argparse.ArgumentParser("tests.prose")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("paths", nargs="*", default=[""])
    given = parser.parse_args()
    wrong = 0
    for finding in read_all(given.paths):
        wrong += finding.rule in FAILING
        if given.all or finding.rule in FAILING:
            print(finding)
    print(f"{wrong} sentences are to be written anew", file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
