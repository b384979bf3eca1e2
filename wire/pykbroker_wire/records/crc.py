"""CRC-32C, with the type that the `crc32c` package does not give: any buffer, and a value to continue from."""

from __future__ import annotations

from typing import Protocol

import crc32c as package


class Crc32c(Protocol):
    """`crc32c(data, value=0)`: the checksum of `data`, continuing from `value`."""

    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


crc32c: Crc32c = package.crc32c
