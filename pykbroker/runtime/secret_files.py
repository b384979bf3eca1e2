"""Files with keys: read whole, and written to memory alone."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def read_secret(path: str) -> bytes:
    """Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def read_regular(path: str) -> bytes | None:
    """None for what is no regular file. Raises OSError."""
    # A pipe would be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def version_of(path: str) -> tuple[int, int, int] | None:
    """What differs when a file has been written or another has its name; None while there is none."""
    try:
        found = os.stat(path)
    except OSError:
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
