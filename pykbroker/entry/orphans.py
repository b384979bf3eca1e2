"""Waits for the orphans of a container, which are processes that its first process inherits.

If a script of `docker exec` ends before its child, the first process inherits the child, and here that is the node. It
has to wait for the child; otherwise a zombie stays in the table of processes for as long as the container runs. A
zombie that is there at two looks is an orphan, because this process waits for its own children at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Final

_PERIOD_S: Final = 5.0


class Orphans:
    """Removes zombies that two looks in a row have found."""

    def __init__(self) -> None:
        self._seen: frozenset[tuple[int, str]] = frozenset()

    def look(self) -> None:
        """Look once, and wait for the zombies that the previous look has found too."""
        zombies = frozenset(_zombies() if _some_child_has_ended() else ())
        for pid, _ in zombies & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = zombies


def reap_as_first_process(loop: asyncio.AbstractEventLoop) -> None:
    """Begin to look for orphans, if this is the first process of a container."""
    if os.getpid() != 1:
        return
    orphans = Orphans()

    def look() -> None:
        orphans.look()
        loop.call_later(_PERIOD_S, look)

    loop.call_later(_PERIOD_S, look)


def _some_child_has_ended() -> bool:
    """Return True if a child has ended, without waiting for it. This takes one system call, while `_zombies` reads a
    file for each process."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _zombies() -> Iterable[tuple[int, str]]:
    """Return children of this process that have ended, each with the time of its start, because the system uses a
    process id again."""
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
