"""CRC-32C from the `crc32c` package's extension.

The package's own `__init__` reads its version through importlib.metadata, which imports parsers of mail and zip files:
a tenth of a node's start. So the extension inside is loaded by itself where that works, else the package.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, Protocol


class Crc32c(Protocol):
    """`crc32c(data, value=0)`: the checksum of `data`, continuing from `value`."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


def _load() -> Any:
    if "crc32c" not in sys.modules:
        package = PathFinder.find_spec("crc32c")
        if package is not None and package.submodule_search_locations is not None:
            found = PathFinder.find_spec("crc32c._crc32c", list(package.submodule_search_locations))
            if found is not None and found.loader is not None:
                extension = module_from_spec(found)
                found.loader.exec_module(extension)
                return extension.crc32c
    from crc32c import crc32c

    return crc32c


crc32c: Crc32c = _load()
