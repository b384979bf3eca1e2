"""Recognizes record batches of magic 0 and 1, which Apache Kafka 4.x still reads (KIP-724) and pykbroker does not.

     0 offset int64        12 CRC-32 uint32 of everything from 16 on        17 attributes int8
     8 size int32          16 magic int8                                    18 timestamp (magic 1), key, value

A log of before Apache Kafka 0.11, or of a topic that kept an older log.message.format.version, may begin with them. To
the rest of this package they are bytes that are no batch. Recovery cuts such bytes off, so the loader asks here first,
and refuses the log. Apache Kafka then finds every record when it gets the directory back.

Responsible for recognizing such a batch, and for the refusal. Not responsible for its records.
"""

from __future__ import annotations

import errno
from struct import Struct
from typing import Final
from zlib import crc32

from pykbroker_log.disk import File

#: offset, size, CRC, magic
_FRONT: Final = Struct(">qiIb")
FRONT_SIZE: Final = _FRONT.size
#: The size counts the bytes from here on.
_SIZE_FROM: Final = 12
_CRC_FROM: Final = 16
#: magic -> the least size: CRC, magic, attributes, two lengths, and the timestamp of magic 1
_LEAST_SIZES: Final = {0: 14, 1: 22}
_CHUNK_BYTES: Final = 1024 * 1024


def old_magic_of(front: bytes, room: int) -> int | None:
    """Return the magic of a batch of an old format by its first FRONT_SIZE bytes, or None if there is none. `room`: the
    bytes from its start to the end of the file. Zeros are no batch, because their size is 0."""
    if len(front) < FRONT_SIZE:
        return None
    offset, size, _, magic = _FRONT.unpack_from(front)
    least = _LEAST_SIZES.get(magic)
    return magic if least is not None and offset >= 0 and least <= size <= room - _SIZE_FROM else None


def refuse_old_batch(file: File, path: str, position: int) -> None:
    """Raise OSError if a whole batch of an old format begins at `position`. Its checksum is compared, because other
    damage must be cut off as before."""
    end = file.size()
    front = file.pread(FRONT_SIZE, position)
    magic = old_magic_of(front, end - position)
    if magic is None:
        return
    _, size, crc, _ = _FRONT.unpack_from(front)
    at, after, found = position + _CRC_FROM, position + _SIZE_FROM + size, 0
    while at < after:
        chunk = file.pread(min(_CHUNK_BYTES, after - at), at)
        if not chunk:
            return
        found = crc32(chunk, found)
        at += len(chunk)
    if found == crc:
        raise OSError(
            errno.ENOTSUP,
            f"record batches of magic {magic} are not served, and the file was left as it is. Start Apache Kafka on "
            "this directory again, and copy the records to a new topic or delete them",
            path,
        )
