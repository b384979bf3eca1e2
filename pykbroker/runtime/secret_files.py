"""Files with keys: read whole, and written to memory alone."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

#: of one file; key stores have some KiB
MAX_SECRET_BYTES: Final = 16 << 20


def read_secret(path: str) -> bytes:
    """Never waits for a pipe, and holds no more than MAX_SECRET_BYTES. Raises OSError, also for what is larger or no
    regular file."""
    data = read_regular(path, MAX_SECRET_BYTES + 1)
    if data is None:
        raise OSError(errno.EINVAL, "it is no regular file")
    if len(data) > MAX_SECRET_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_SECRET_BYTES} bytes")
    return data


def read_regular(path: str, size: int = -1) -> bytes | None:
    """The first `size` bytes, or all; None for what is no regular file. Raises OSError."""
    # A pipe would be waited for.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:
        # A NUL in it.
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(size)
    finally:
        os.close(descriptor)


def version_of(path: str) -> tuple[int, int, int] | None:
    """What differs when a file has been written or another has its name; None while there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def exists(path: str) -> bool:
    return os.path.exists(path)


def environment() -> Mapping[str, str]:
    """The variables of this process."""
    return os.environ


@contextmanager
def as_memory_file(data: bytes) -> Iterator[str]:
    """The path of a file that is on no disk, has no name and is gone afterwards. Raises OSError where the system has
    none (memfd_create(2) is Linux's)."""
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no memfd_create, and keys are written to no disk")
    descriptor = os.memfd_create("pykbroker", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
