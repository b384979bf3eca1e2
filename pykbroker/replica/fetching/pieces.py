"""Cuts the records that a leader sent for one partition into pieces. The loop appends one piece in each turn. Pure.

Responsible for the bounds of pieces, for detecting missing offsets, and for leaving out records with a newer leader
epoch than the request. Not responsible for checksums, which the append checks.

Invariant: record bytes are not copied, and only the header of each batch is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MIN_BATCH_LENGTH

#: To append a batch of a few records costs about as much as this many bytes of a large batch.
BYTES_PER_BATCH = 2048
#: The most cost of a piece, in batches: about two milliseconds.
MOST_COST = 256
# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta.
_FRONT = Struct(">qiibIhi")


class BatchPiece(NamedTuple):
    """Whole batches, one after the other."""

    records: memoryview
    base_offset: int
    last_offset: int
    #: the cost of appending, in batches (see BYTES_PER_BATCH)
    cost: int
    #: True if offsets are missing before the piece or between its batches
    has_gap: bool


def pieces(records: memoryview, expected_offset: int, leader_epoch: int) -> Iterator[BatchPiece]:
    """Yield the pieces of records that were fetched from `expected_offset` on. A batch that is cut off at the end is
    left out. If a batch has a newer epoch than `leader_epoch`, it and all batches after it are left out. The leader of
    that epoch sends them again, and then reports if this log agrees with its own. Raises CORRUPT_MESSAGE where a batch
    should begin and does not."""
    end = len(records)
    begin = position = 0
    base, last = -1, -1
    cost = 0
    has_gap = False
    while end - position >= HEADER_SIZE:
        base_offset, length, epoch, magic, _, _, last_delta = _FRONT.unpack_from(records, position)
        after = position + LOG_OVERHEAD + length
        if magic != MAGIC or length < MIN_BATCH_LENGTH or last_delta < 0:
            if position > begin:
                yield BatchPiece(records[begin:position], base, last, cost, has_gap)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch begins at position {position} of what was fetched")
        if after > end or epoch > leader_epoch:
            break
        if begin == position:
            base = base_offset
        has_gap = has_gap or base_offset > expected_offset
        last = base_offset + last_delta
        expected_offset = last + 1
        position = after
        cost += 1 + (length // BYTES_PER_BATCH)
        if cost >= MOST_COST:
            yield BatchPiece(records[begin:position], base, last, cost, has_gap)
            begin, cost, has_gap = position, 0, False
    if position > begin:
        yield BatchPiece(records[begin:position], base, last, cost, has_gap)
