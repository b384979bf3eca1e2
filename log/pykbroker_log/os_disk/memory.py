"""Memory from the operating system."""

from __future__ import annotations

import mmap


def zeros(size: int) -> memoryview:
    """So many zeros, which are no memory until something else is written there; a bytearray's all are."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE))
