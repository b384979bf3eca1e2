"""The checksum is that of the package, however it was loaded."""

from __future__ import annotations


def test_the_checksum_is_that_of_the_package() -> None:
    import crc32c as package

    from pykbroker_wire.records.crc import crc32c

    assert crc32c(b"123456789") == package.crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
