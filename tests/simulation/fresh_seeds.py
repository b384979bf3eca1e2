"""Seeds that no earlier commit has tried. Each commit has its own, which are the same whenever it is tested."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: They begin after those of `make sim-long`.
FIRST_FRESH = 1_000_000


def fresh_seeds(number: int, chunk: int, of: int = 1) -> list[int]:
    """Return the seeds of chunk `number` of this commit, which has `of` chunks."""
    first = FIRST_FRESH + chunk * (of * seeds_of_commit(ROOT) + number)
    return list(range(first, first + chunk))


def seeds_of_commit(root: Path) -> int:
    """Return a number that follows from the commit that is checked out, or 0 without a git commit."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    return int(asked.stdout[:7], 16) if asked.returncode == 0 else 0
