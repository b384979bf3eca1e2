"""Paths of Unix sockets, also longer ones than the operating system takes.

Imports little, because `pykbroker health` runs every few seconds (entry/health.py). The node's side is
runtime/unix_sockets.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Linux has 108 bytes for the path of a socket, and a zero ends it.
_MOST_BYTES: Final = 107


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a path of the same socket that can be bound and connected to while the block runs. On Linux the name of
    the file alone has to be short. Elsewhere a long path stays as it is, and the operating system refuses it."""
    if len(os.fsencode(path)) <= _MOST_BYTES or not hasattr(os, "O_PATH"):
        yield path
        return
    folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
