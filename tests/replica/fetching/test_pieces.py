"""The records of a leader, in pieces for the loop."""

from __future__ import annotations

import pytest

from pykbroker.replica.fetching.pieces import BYTES_PER_BATCH, MOST_COST, pieces
from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.replica.fetching.leader import batch, contents


def several(count: int, epoch: int = 1) -> bytes:
    return b"".join(batch(offset, epoch) for offset in range(count))


def test_all_whole_batches_come_in_order_and_are_not_copied() -> None:
    records = bytearray(several(MOST_COST * 2 + 3))
    found = list(pieces(memoryview(records), 0, 1))
    assert [(piece.base_offset, piece.last_offset) for piece in found] == [
        (0, MOST_COST - 1),
        (MOST_COST, 2 * MOST_COST - 1),
        (2 * MOST_COST, 2 * MOST_COST + 2),
    ]
    assert b"".join(piece.records for piece in found) == records
    assert all(piece.records.obj is records for piece in found)
    assert not any(piece.has_gap for piece in found)


def test_a_large_batch_costs_as_much_as_many_small_ones() -> None:
    large = batch(0, 1, bytes(MOST_COST * BYTES_PER_BATCH))
    found = list(pieces(memoryview(large + batch(1, 1)), 0, 1))
    assert [piece.base_offset for piece in found] == [0, 1]
    assert found[0].cost >= MOST_COST > found[1].cost


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    records = several(3)
    (piece,) = pieces(memoryview(records)[:-1], 0, 1)
    assert contents(piece.records) == [(0, 0, 1), (1, 1, 1)]
    assert list(pieces(memoryview(records)[:70], 0, 1)) == []
    assert list(pieces(memoryview(b""), 0, 1)) == []


@pytest.mark.parametrize("hole", [0, 1])
def test_offsets_that_are_missing_are_a_gap(hole: int) -> None:
    records = batch(0 + (hole == 0), 1) + batch(2, 1)
    (piece,) = pieces(memoryview(records), 0, 1)
    assert piece.has_gap


def test_what_was_written_in_a_newer_epoch_is_left_out() -> None:
    """As in Apache Kafka since 4.1: the answer may come from a leader that is newer than this side knows."""
    records = batch(0, 1) + batch(1, 2) + batch(2, 1)
    (piece,) = pieces(memoryview(records), 0, 1)
    assert contents(piece.records) == [(0, 0, 1)]


def test_bytes_that_are_no_batch_are_refused_behind_those_that_are() -> None:
    found = pieces(memoryview(several(2) + bytes(100)), 0, 1)
    assert next(found).last_offset == 1
    with pytest.raises(KafkaError) as refused:
        next(found)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
