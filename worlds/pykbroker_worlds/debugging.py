"""A debugger in a fork of a worker, which gets the terminal of the person, one fork at a time."""

from __future__ import annotations

import fcntl
import io
import os
import sys
from types import FrameType
from typing import Final

_TERMINAL: Final = "/dev/tty"
#: Modules whose functions are on the stack while a person is asked for a command, or while this fork waits for the
#: terminal. Other debuggers stand on `bdb`.
_DEBUGGERS: Final = frozenset({"bdb", "pdb", __name__})
_has_terminal = False


def take_terminal() -> None:
    """Make the terminal the standard input and output of this process, when no other fork has it. Raises RuntimeError
    if there is none."""
    global _has_terminal
    if _has_terminal:
        return
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR)
    except OSError as error:
        raise RuntimeError(f"a debugger in a world needs a terminal: {error}") from error
    # The output of the worker is a file that all its forks have. The lock ends with this process.
    lock = os.dup(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    for standard in range(3):
        os.dup2(terminal, standard)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    _has_terminal = True
    if isinstance(sys.__stdout__, io.TextIOWrapper):
        sys.__stdout__.reconfigure(line_buffering=True)


def is_debugging(frame: FrameType | None) -> bool:
    """Return True if a debugger has stopped the code that was interrupted at `frame`, or is about to."""
    while frame is not None:
        if frame.f_globals.get("__name__") in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False
