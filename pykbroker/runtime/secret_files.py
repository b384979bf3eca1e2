"""Files with keys: read whole, and written to memory alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


def read_secret(path: str) -> bytes:
    """Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


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
