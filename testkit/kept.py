"""Folders in .cache/ that are made once, for all tests and all processes.

An existing folder is complete, because it gets its name only when everything in it is done.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from testkit import needs


def kept(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name in the cache, which `make` filled now or earlier."""
    folder = needs.CACHE / kind / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            fresh = folder.with_suffix(f".{os.getpid()}")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            make(fresh)
            fresh.rename(folder)
    return folder
