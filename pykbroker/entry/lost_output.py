"""Standard output that can no longer be written, in a command that goes on to its own end."""

from __future__ import annotations

import os
import sys


def drop_output() -> None:
    """Send standard output to the null device, with everything that its buffer still holds. Without this, Python's
    flush at exit would fail again."""
    if sys.stdout is None:
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def finish_output() -> None:
    """Write what the buffer of standard output still holds, and drop it if it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        drop_output()
