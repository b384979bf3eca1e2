"""Files with keys: they are read as a whole, and are written only to memory, never to a disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

#: the most bytes of one file; key stores have some KiB
MAX_SECRET_BYTES: Final = 16 << 20


def read_secret(path: str) -> bytes:
    """Return the content of a file. It never waits for a pipe. Raises OSError, also if the file is larger than
    MAX_SECRET_BYTES or is not a regular file."""
    data = read_regular(path, MAX_SECRET_BYTES + 1)
    if data is None:
        raise OSError(errno.EINVAL, "it is no regular file")
    if len(data) > MAX_SECRET_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_SECRET_BYTES} bytes")
    return data


def read_regular(path: str, size: int = -1) -> bytes | None:
    """Return the first `size` bytes of a file, or all bytes if `size` is -1. Return None if it is not a regular file.
    Raises OSError."""
    # Without O_NONBLOCK, opening a pipe would block.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as error:
        # The path contains a NUL.
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(size)
    finally:
        os.close(descriptor)


def version_of(path: str) -> tuple[int, int, int] | None:
    """Return a value that changes when the file is written or replaced, or None if there is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def exists(path: str) -> bool:
    return os.path.exists(path)


def environment() -> Mapping[str, str]:
    """Return the environment variables of this process."""
    return os.environ


@contextmanager
def as_memory_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file that exists only in memory, without a name, until the block ends. Raises OSError if the
    system has no such files (only Linux has memfd_create(2))."""
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
