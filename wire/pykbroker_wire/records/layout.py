"""The positions of the fields of a batch's header (format v2), and the bits of its attributes: declared only here.

Not responsible for reading or writing them (batch.py, record.py).
"""

from __future__ import annotations

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""The size of base offset and batch length, which `batch_length` does not include."""
MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

LENGTH_AT = 8
"""The position of the length, which counts the bytes after it; the same in every format."""
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
UP_TO_MAGIC = 17
CRC_AT = 17
CRC_START = 21
"""The first byte that the CRC covers: the attributes."""
ATTRIBUTES_AT = 22
"""The low byte of the attributes, which has all defined bits: the codec in CODEC_MASK, and the flags."""
MAX_TIMESTAMP_AT = 35
PRODUCER_AT = 43
