"""Record batches of magic 0 and 1, as Apache Kafka 4.3.1 writes them: MemoryRecords.withRecords(magic, 7, compression,
CREATE_TIME, ...) of its clients' jar with the records (key, first) and (null, second) at offsets 7 and 8."""

from __future__ import annotations

from struct import pack_into, unpack_from
from typing import Final

#: (magic, compression) -> bytes
OLD_BATCHES: Final = {
    (0, "none"): bytes.fromhex(
        "000000000000000700000016ac5077540000000000036b6579000000056669727374000000000000000800000014a6f2489d0000ffffffff"
        "000000067365636f6e64"
    ),
    (0, "gzip"): bytes.fromhex(
        "000000000000000800000052b172046c0001ffffffff000000441f8b08000000000000ff636000037620165b13501e02e63167a7560229d6"
        "b4cca2e2128802060e201659f6c9632e03c37f2000f2d88a5393f3f352008487e0a142000000"
    ),
    (1, "none"): bytes.fromhex(
        "00000000000000070000001e5ffc43c301000000015d3ef79800000000036b65790000000566697273740000000000000008"
        "0000001c80fbc82801000000015d3ef79801ffffffff000000067365636f6e64"
    ),
    (1, "gzip"): bytes.fromhex(
        "0000000000000008000000601eb4653a01010000015d3ef79801ffffffff0000004a1f8b08000000000000ff63608003b9f83fce8719810c"
        "c658bbef334022ccd9a995408a352db3a8b804aa0aa440a6e1f7090db84ac6ff4000e4b015a726e7e7a50000d3e154e452000000"
    ),
}


def old_batches(magic: int, first_offset: int) -> bytes:
    """Return two batches of one record each. Their checksums do not cover their offsets."""
    found = bytearray(OLD_BATCHES[magic, "none"])
    position = 0
    for offset in (first_offset, first_offset + 1):
        pack_into(">q", found, position, offset)
        position += 12 + unpack_from(">i", found, position + 8)[0]
    return bytes(found)
