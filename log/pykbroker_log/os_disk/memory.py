"""Memory from the operating system."""

from __future__ import annotations

import mmap


def zeros(size: int) -> memoryview:
    """Return zeros that use no memory until something is written there; a bytearray would use it at once."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE))
