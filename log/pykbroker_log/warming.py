"""Loads the files that opening a log reads, on a thread, so that the open does not wait for the device.

Not responsible for opening (log_loading.py). Nothing depends on it: a file that is not in memory is read when it is
needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker_log import names
from pykbroker_log.disk import ColdRead, Disk, read_file

#: The last files by name: those of the newest segment, its snapshot, and the files that exist once per log.
_NEWEST_FILES = 8
#: The number of bytes that are read at the end of each file.
_TAIL_BYTES = 64 * 1024


def is_cold(disk: Disk, path: str) -> bool:
    """Return True if opening the log in this folder would wait for the device. It looks at one file only, and returns
    True if that file is not in memory."""
    try:
        with disk.without_waiting():
            read_file(disk, f"{path}/{names.LEADER_EPOCHS}")
    except ColdRead:
        return True
    except OSError:
        pass  # the open raises it again
    return False


def warm(disk: Disk, paths: Sequence[str]) -> None:
    """Read what opening the logs in these folders will read; call it on a thread."""
    for path in paths:
        try:
            for name, size in disk.scan(path)[-_NEWEST_FILES:]:
                _read_tail(disk, f"{path}/{name}", size)
        except OSError:
            continue  # the folder was renamed or cannot be read; the open raises the error again


def _read_tail(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path)
    try:
        length = min(size, _TAIL_BYTES)
        file.load(size - length, length)
    finally:
        file.close()
