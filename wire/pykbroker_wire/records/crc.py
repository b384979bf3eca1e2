"""CRC-32C with the type that the `crc32c` package lacks: any buffer, and a value to continue from.

The package asks importlib.metadata for its own version while it is imported. That module imports the standard library's
e-mail, csv and zip modules, which takes a tenth of the start-up time of a node and a tenth of its memory. A stand-in
replaces it during that import, unless the real module is loaded already.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Protocol


def _load() -> ModuleType:
    name = "importlib.metadata"
    stand_in = ModuleType(name)
    stand_in.version = lambda package: ""  # type: ignore[attr-defined]
    loaded = sys.modules.setdefault(name, stand_in)
    try:
        import crc32c
    finally:
        if loaded is stand_in:
            del sys.modules[name]
    return crc32c


class Crc32c(Protocol):
    """`crc32c(data, value=0)` returns the checksum of `data`, continuing from `value`."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


crc32c: Crc32c = _load().crc32c
