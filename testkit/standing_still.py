"""Processes and event loops that stand still: they keep their sockets, and do nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 120


@contextmanager
def standing_still(*pids: int) -> Iterator[None]:
    """No thread of these processes runs within the block.

    A kill with SIGSTOP returns before that: the threads go on until one of them has taken the signal, and on a busy
    machine a follower fetches once more in the meantime.
    """
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + _PATIENCE_S
        for pid in pids:
            while not _stopped(pid):
                assert time.monotonic() < deadline, f"process {pid} runs {_PATIENCE_S} s after SIGSTOP"
                time.sleep(0.001)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def loop_standing_still(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """A loop of this process runs nothing within the block, as during a call that waits for something."""
    stands, go = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go.wait()

    loop.call_soon_threadsafe(stand)
    assert stands.wait(_PATIENCE_S)
    try:
        yield
    finally:
        go.set()


def _stopped(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (thread / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has ended in the meantime
        # The name before the state is in parentheses, and may hold some itself.
        if stat.rpartition(")")[2].split()[0] != "T":
            return False
    return True
