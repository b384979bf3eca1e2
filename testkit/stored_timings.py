"""The table of the time that each file of tests used in the last stored run. `make timings` stores a new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).parents[1] / "tests" / "whole_run" / "timings.json"


class Spent(NamedTuple):
    tests: int
    seconds: float
    cpu_seconds: float


def read(file: Path = TABLE) -> dict[str, Spent]:
    return {name: Spent(*spent) for name, spent in json.loads(file.read_text()).items()}
