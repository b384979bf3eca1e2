"""Results that are collected for one batch."""

from __future__ import annotations

from pykbroker.coordinator.collected_batch import BATCH_BYTES, CollectedBatch, Encoded, encoded_bytes
from pykbroker.coordinator.result import Result


def test_results_and_their_records_are_taken_in_their_order() -> None:
    batch = CollectedBatch()
    first, second = Result(), Result()
    batch.add(first, [(b"a", b"1"), (b"b", None)], 3)
    batch.add(second, [(b"c", b"2")], 2)
    assert batch
    assert batch.take() == ([first, second], [(b"a", b"1"), (b"b", None), (b"c", b"2")])
    assert not batch
    assert batch.take() == ([], [])


def test_a_batch_has_room_up_to_its_limit_and_an_empty_one_always() -> None:
    batch = CollectedBatch()
    assert batch.has_room_for(2 * BATCH_BYTES)
    batch.add(Result(), [], BATCH_BYTES - 10)
    assert batch.has_room_for(10)
    assert not batch.has_room_for(11)
    batch.take()
    assert batch.has_room_for(BATCH_BYTES + 1)


def test_a_tombstone_counts_with_its_key() -> None:
    records: Encoded = [(b"key", b"value"), (b"gone", None)]
    assert encoded_bytes(records) == 12
