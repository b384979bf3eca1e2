"""What opening a log reads, brought into memory by a thread beforehand, so that the open waits for no device.

Not responsible for opening (log_loading.py). Nothing depends on it: what is not in memory is read when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker_log import names
from pykbroker_log.disk import ColdRead, Disk, read_file

#: By name: the files of the newest segment, its snapshot, and what stands there once for the log.
_NEWEST_FILES = 8
#: Of each: the end, where the last entries are and the last batches begin.
_TAIL_BYTES = 64 * 1024


def is_cold(disk: Disk, path: str) -> bool:
    """Whether opening the log in this folder would wait for the device, judged by one file that was not read before."""
    try:
        with disk.without_waiting():
            read_file(disk, f"{path}/{names.LEADER_EPOCHS}")
    except ColdRead:
        return True
    except OSError:
        pass  # the open finds out what that means
    return False


def warm(disk: Disk, paths: Sequence[str]) -> None:
    """For a thread: read what opening the logs in these folders will read."""
    for path in paths:
        try:
            for name, size in disk.scan(path)[-_NEWEST_FILES:]:
                _read_tail(disk, f"{path}/{name}", size)
        except OSError:
            continue  # renamed or broken: as above


def _read_tail(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path)
    try:
        length = min(size, _TAIL_BYTES)
        file.load(size - length, length)
    finally:
        file.close()
