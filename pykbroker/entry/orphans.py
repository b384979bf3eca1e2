"""Waits for the orphans of a container, which are processes that its first process inherits.

A script of `docker exec` that leaves a child behind gives it to the first process, here the node, which has to wait for
it: else a zombie keeps its place in the table of processes for as long as the container runs. A zombie that is there at
two looks is an orphan, because this process waits for its own children at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Final

_PERIOD_S: Final = 5.0


class Orphans:
    """Takes zombies away that two looks in a row have seen."""

    def __init__(self) -> None:
        self._seen: frozenset[tuple[int, str]] = frozenset()

    def look(self) -> None:
        """One look; what the look before this one has seen is waited for."""
        zombies = frozenset(_zombies() if _some_child_has_ended() else ())
        for pid, _ in zombies & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = zombies


def reap_as_first_process(loop: asyncio.AbstractEventLoop) -> None:
    """Look from now on, if this is the first process of a container."""
    if os.getpid() != 1:
        return
    orphans = Orphans()

    def look() -> None:
        orphans.look()
        loop.call_later(_PERIOD_S, look)

    loop.call_later(_PERIOD_S, look)


def _some_child_has_ended() -> bool:
    """Without waiting for it: one call of the kernel, and not a file for each process."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _zombies() -> Iterable[tuple[int, str]]:
    """Children of this process that have ended, with the times of their start: numbers are used again."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program, in parentheses, may have any bytes.
                fields = file.read().rpartition(b")")[2].decode().split()
        except OSError:
            continue
        state, parent, started = fields[0], int(fields[1]), fields[19]
        if state == "Z" and parent == os.getpid():
            yield int(name), started
