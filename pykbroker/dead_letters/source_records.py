"""Keys and values of the records of a source partition, for letters that copy them (KIP-1191). Pure: the bytes of
batches go in.

As in Apache Kafka 4.4, a compressed batch of more bytes than the dead letter topic accepts is not copied, and its
letters have headers only. So a batch that expands to very much more than its bytes cannot fill the memory. A record
that is no longer in the log has no copy either.
"""

from __future__ import annotations

import logging
from array import array
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pykbroker_wire.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    iter_batches,
)
from pykbroker_wire.records.columns import BUFFERS, COMPILED, ColumnBuffers, fill_records
from pykbroker_wire.records.compression import CompressionError, TooLarge, decompress
from pykbroker_wire.records.record import InvalidRecord

if TYPE_CHECKING:
    from pykbroker.dead_letters.letter_batches import KeyAndValue
    from pykbroker_wire.primitives import Buffer

logger = logging.getLogger(__name__)

#: More bytes than these are not walked in one turn of the loop by the loop in Python.
_MOST_IN_PYTHON: Final = 64 * 1024
#: The buffers of `fill_records` that are wanted: of the key, of the value, and the offset.
_KEY: Final = 0
_VALUE: Final = 3
_OFFSET: Final = 6
_INT64: Final = Struct("=q")


class NotReadable(Enum):
    """The reason for which a read has found no copies."""

    #: the log has lost the record, or is not here
    LOST = auto()
    #: the record is, or may be, in the log, and cannot be read yet
    NOT_YET = auto()


class CopiedRecords(NamedTuple):
    """`records`: the key and the value by offset. Every offset up to `through` is decided: it is in `records`, or it
    gets no copy."""

    records: dict[int, KeyAndValue]
    through: int

    @property
    def size(self) -> int:
        """The bytes of keys and values."""
        return sum(len(key or b"") + len(value or b"") for key, value in self.records.values())


#: The end of a read of the source log.
SourceOutcome: TypeAlias = CopiedRecords | NotReadable


def takes_long(data: Buffer, first: int, last: int) -> bool:
    """Return True if `copy_records` must not run on the event loop, because a batch is compressed, or because the loop
    over the records is not compiled here. Raises CorruptBatch."""
    if not COMPILED and len(data) > _MOST_IN_PYTHON:
        return True
    return any(
        header.attributes & CODEC_MASK
        for _, header in iter_batches(data)
        if header.last_offset >= first and header.base_offset <= last
    )


def copy_records(data: Buffer, first: int, last: int, most_bytes: int) -> CopiedRecords:
    """Copy the keys and values of the offsets from `first` to `last` out of the batches in `data`, which begin at or
    before `first`. Stop after a batch with which they have more than `most_bytes`. That is also the most to which a
    batch may expand. Offsets between two batches have no record.

    Without a whole batch, `through` is before `first`. A damaged batch is not copied, and is logged. Raises
    CorruptBatch for bytes that are no batch.
    """
    records: dict[int, KeyAndValue] = {}
    through = first - 1
    size = 0
    for position, header in iter_batches(data):
        if header.last_offset < first:
            continue
        if header.base_offset > last:
            through = last
            break
        through = min(header.last_offset, last)
        try:
            found = _records_of(data, position, header, first, last, most_bytes)
        except TooLarge:
            continue
        except (InvalidRecord, CompressionError) as error:
            logger.warning("The batch at offset %d is damaged and not copied: %s", header.base_offset, error)
            continue
        records.update(found)
        size += sum(len(key or b"") + len(value or b"") for key, value in found.values())
        if through == last or size > most_bytes:
            break
    return CopiedRecords(records, through)


def _records_of(
    data: Buffer, position: int, header: BatchHeader, first: int, last: int, most_bytes: int
) -> dict[int, KeyAndValue]:
    payload: Buffer = memoryview(data)[position + HEADER_SIZE : position + header.size_in_bytes]
    codec = header.attributes & CODEC_MASK
    if codec:
        payload = decompress(codec, payload, most_bytes)
    keys, values, offsets, rows = _filled(payload, header, first, last)
    return {_INT64.unpack_from(offsets, 8 * row)[0]: (_cell(keys, row), _cell(values, row)) for row in range(rows)}


def _filled(
    payload: Buffer, header: BatchHeader, first: int, last: int
) -> tuple[tuple[bytearray, array[int], bytearray], tuple[bytearray, array[int], bytearray], bytearray, int]:
    made: list[bytearray | None] = [None] * BUFFERS
    for column in (_KEY, _VALUE):
        made[column], made[column + 1], made[column + 2] = bytearray(), bytearray(4), bytearray()
    offsets = made[_OFFSET] = bytearray()
    buffers: ColumnBuffers = tuple(made)
    used = array("q", (4 if index in (_KEY + 1, _VALUE + 1) else 0 for index in range(BUFFERS)))
    # The timestamp is not wanted, so it does not matter whether it is the base or the time of the append.
    rows = fill_records(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        bool(header.attributes & LOG_APPEND_TIME),
        first,
        last,
        0,
        buffers,
        used,
    )
    return _column(buffers, used, _KEY), _column(buffers, used, _VALUE), offsets, rows


def _column(buffers: ColumnBuffers, used: array[int], column: int) -> tuple[bytearray, array[int], bytearray]:
    """Return the validity bits, the ends and the content of a column."""
    validity, ends, content = buffers[column : column + 3]
    assert validity is not None
    assert ends is not None
    assert content is not None
    return validity, array("i", bytes(ends[: used[column + 1]])), content


def _cell(column: tuple[bytearray, array[int], bytearray], row: int) -> bytes | None:
    # The bytes are copied, because a view would keep the whole read in memory until its letters are written.
    validity, ends, content = column
    if not validity[row >> 3] >> (row & 7) & 1:
        return None
    return bytes(content[ends[row] : ends[row + 1]])
