"""The same program in two processes with different hash seeds: it must print the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed_twice(program: str) -> list[str]:
    path = os.pathsep.join(str(ROOT / part) for part in ("", "wire", "log", "raft", "worlds"))
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    ]
