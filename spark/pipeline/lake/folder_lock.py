"""One commit at a time on `file:`, over all processes of a machine.

Delta's commit is atomic if the file system can create a file only if it is absent. Hadoop's file: cannot: it checks
that the name does not exist, and then renames over a file that another process may have put there in between. So a
driver that commits holds a lock of the operating system, which ends with its process, killed or not.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.lake.positions import LakeError

NAME = "_pipeline.lock"  # Delta's VACUUM and readers that list the folder skip names that begin with _
PATIENCE_S = 120.0
LOOK_S = 0.05


@contextmanager
def held(folder: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the lock; wait while another driver commits.

    Raises:
        LakeError: the other driver did not finish in time, or the folder cannot be locked.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = os.open(Path(folder) / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise LakeError(f"the lake {folder} cannot be written: {error.strerror}") from error
    try:
        _wait(file, folder, time.monotonic() + patience_s)
        os.truncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(file)  # releases the lock too


def _wait(file: int, folder: str, until: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                process = os.pread(file, 20, 0).decode(errors="replace").strip()
                raise LakeError(
                    f"another driver (process {process}) is committing to the lake {folder}, and does not end",
                    "Stop it, and start again: one driver for each lake",
                ) from None
        except OSError as error:
            raise LakeError(
                f"{Path(folder) / NAME} cannot be locked: {error.strerror}",
                "The lake's file system must have locks (flock)",
            ) from error
        time.sleep(LOOK_S)
