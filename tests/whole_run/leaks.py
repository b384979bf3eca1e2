"""Processes that a session of pytest started and that outlived it. They carry the run's mark in their environment.

It does not find processes that a daemon started for a test, and processes with another environment.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

VARIABLE: Final = "PYKBROKER_WHOLE_RUN"
#: A process that was asked to end may take a moment.
PATIENCE_S: Final = 10.0


def marked(mark: str) -> dict[int, str]:
    """Process ids and command lines of living processes with this mark, without the caller."""
    wanted = f"{VARIABLE}={mark}".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if pid != os.getpid() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[pid] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it has ended, or belongs to another user
    return {pid: command for pid, command in found.items() if command}


def end_leaked(mark: str) -> list[str]:
    """Return command lines of processes that still live after a while. They are killed, so that they disturb no later
    test."""
    until = time.monotonic() + PATIENCE_S
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return list(left.values())
