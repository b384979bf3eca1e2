"""`python -m tests.prose [--check] [--all] [PATH...]`: print what is hard to read, or compare with what is left.

PATH is the beginning of paths, for a part of the tree. --all prints the words that only cause a warning, too. With
--check the counts of each folder must equal those of left.toml: more is an error, and fewer must be written there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.prose.rules import FAILING, Finding, findings
from tests.prose.texts import of_page, of_source

ROOT: Final = Path(__file__).resolve().parents[2]
LEFT: Final = Path(__file__).with_name("left.toml")
#: Stored texts, and what is generated.
_SKIPPED: Final = (
    "changes/",
    "tests/golden/",
    "wire/pykbroker_wire/messages/",
    "wire/pykbroker_wire/stored/",
    "CHANGELOG.md",
)


def read_all(beginnings: Iterable[str] = ("",)) -> Iterator[Finding]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(filter(None, listed.split("\0"))):
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


def folder_of(finding: Finding) -> str:
    parts = Path(finding.prose.path).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) == 2 else "."


def counts(found: Iterable[Finding]) -> Counter[tuple[str, str]]:
    return Counter((folder_of(one), one.rule) for one in found if one.rule in FAILING)


def check() -> list[str]:
    """Return the differences from left.toml, in lines."""
    now = counts(read_all())
    left = {
        (folder, rule): count
        for folder, rules in tomllib.loads(LEFT.read_text(encoding="utf-8")).items()
        for rule, count in rules.items()
    }
    wrong = []
    for folder, rule in sorted(now.keys() | left.keys()):
        found, kept = now[folder, rule], left.get((folder, rule), 0)
        if found != kept:
            advice = "write the new ones anew" if found > kept else "`python -m tests.prose --keep`"
            wrong.append(f"{folder}: {found} {rule}, and left.toml has {kept}: {advice}")
    return wrong


def text_of(found: Counter[tuple[str, str]]) -> str:
    lines = ["# Sentences that are still hard to read: folder, rule, count. `python -m tests.prose --keep` writes it."]
    for folder in sorted({folder for folder, _ in found}):
        lines.append(f'\n["{folder}"]')
        lines += [f"{rule} = {count}" for (of, rule), count in sorted(found.items()) if of == folder]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser("tests.prose", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write left.toml")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("paths", nargs="*", default=[""])
    given = parser.parse_args()
    if given.keep:
        LEFT.write_text(text_of(counts(read_all())), encoding="utf-8")
        return 0
    if given.check:
        wrong = check()
        print(*wrong, sep="\n", end="\n" if wrong else "")
        return int(bool(wrong))
    number = 0
    for finding in read_all(given.paths):
        if given.all or finding.rule in FAILING:
            number += 1
            print(finding)
    print(f"{number} findings", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
