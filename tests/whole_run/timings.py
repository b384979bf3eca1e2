"""The time of each file of tests in a whole run (`timings.json`), and the budget of each folder (`budgets.toml`).

`make timings` stores a new table: `python -m tests.whole_run.timings --store` copies the figures of the last whole run.
`--check`, in `make lint`, fails if a folder has no budget or used more CPU than it. No run of the tests fails because
of its time: the figures are only checked when a table is stored, on a machine that does nothing else.

testkit/dealing.py distributes files by the seconds of this table, the longest first.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from testkit.stored_timings import TABLE, Spent, read
from tests.whole_run.outcome import Outcome

HERE: Final = Path(__file__).parent
BUDGETS: Final = HERE / "budgets.toml"
#: The file with the figures of the last whole run.
LAST_RUN: Final = HERE.parents[1] / ".cache" / "whole-run.json"


def note(outcomes: Iterable[Outcome]) -> None:
    """Keep the figures of a whole run until they are stored or the next run replaces them."""
    files = {file: spent for outcome in outcomes for file, spent in outcome.files.items()}
    LAST_RUN.parent.mkdir(parents=True, exist_ok=True)
    LAST_RUN.write_text(as_text(files))


def as_text(files: Mapping[str, tuple[int, float, float]]) -> str:
    """Return one line for each file, so that a change of the table can be read."""
    lines = [f" {json.dumps(file)}: {json.dumps(list(spent))}" for file, spent in sorted(files.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def folder_of(file: str) -> str:
    """Return the first two parts: `compat_tests/spark/pipeline/test_lake.py` counts for `compat_tests/spark`."""
    return "/".join(file.split("/")[:-1][:2])


def per_folder(files: Mapping[str, Spent]) -> dict[str, float]:
    """Return CPU seconds."""
    folders: dict[str, float] = defaultdict(float)
    for file, spent in files.items():
        folders[folder_of(file)] += spent.cpu_seconds
    return dict(folders)


def over_budget(files: Mapping[str, Spent], budgets: Mapping[str, float]) -> list[str]:
    """Return a line for each folder that used more than its budget, or that has none."""
    wrong = []
    for folder, used in sorted(per_folder(files).items()):
        if folder not in budgets:
            wrong.append(f"{folder} has no budget; it used {used:.0f} CPU seconds")
        elif used > budgets[folder]:
            wrong.append(f"{folder} used {used:.0f} CPU seconds, and may use {budgets[folder]:.0f}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.whole_run.timings", description=__doc__)
    parser.add_argument("--store", action="store_true", help="take over the figures of the last whole run")
    parser.add_argument("--check", action="store_true", help="compare the stored table with the budgets")
    chosen = parser.parse_args()
    if chosen.store:
        TABLE.write_text(LAST_RUN.read_text())
    wrong = over_budget(read(), tomllib.loads(BUDGETS.read_text())["cpu_seconds"])
    for line in wrong:
        print(f"{BUDGETS.name}: {line}")
    return 1 if wrong and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
