"""Batches of dead letters: their bytes, and how many letters fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.dead_letters.letter_batches import LetterBatch, LetterFrame, RecordCopies
from pykbroker_wire.records.batch import BatchHeader, verify_crc
from pykbroker_wire.records.record import Record, iter_records

FRAME = LetterFrame("srca", 1, "gdlqa", 2, "Offset rejected by client.")
PLENTY = 1 << 30


def letters(batch: bytes) -> list[Record]:
    header = BatchHeader.parse(batch)
    assert verify_crc(batch, 0, header)
    assert header.size_in_bytes == len(batch)
    return list(iter_records(batch, 0, header))


def test_a_letter_has_the_headers_of_apache_kafka_in_its_order_as_text() -> None:
    batch = LetterBatch(PLENTY, PLENTY)
    assert batch.add(FRAME, 3, 3, {}) == 4
    [letter] = letters(batch.seal(1_700_000_000_123))
    assert (letter.key, letter.value, letter.timestamp) == (None, None, 1_700_000_000_123)
    assert letter.headers == [
        ("__dlq.errors.topic", b"srca"),
        ("__dlq.errors.partition", b"1"),
        ("__dlq.errors.offset", b"3"),
        ("__dlq.errors.group", b"gdlqa"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]


def test_a_batch_has_create_time_and_no_producer() -> None:
    batch = LetterBatch(PLENTY, PLENTY)
    batch.add(FRAME, 0, 9, {})
    header = BatchHeader.parse(batch.seal(77))
    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == ("CreateTime", 77, 77)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.record_count, header.last_offset_delta) == (10, 9)


def test_a_letter_whose_copy_is_too_large_for_the_topic_has_headers_only() -> None:
    batch = LetterBatch(1_000, PLENTY)
    assert batch.add(FRAME, 5, 5, {5: (b"k", b"v" * 900)}) == 6
    [letter] = letters(batch.seal(0))
    assert (letter.key, letter.value) == (None, None)


def test_a_letter_of_more_bytes_than_a_batch_goes_alone_with_its_copy() -> None:
    batch = LetterBatch(PLENTY, 1_000)
    assert batch.add(FRAME, 5, 6, {5: (b"k", b"v" * 5_000)}) == 6
    assert batch.is_full
    [letter] = letters(batch.seal(0))
    assert _copied(letter.value) == b"v" * 5_000


def test_a_topic_that_is_too_small_for_any_letter_gets_one_to_refuse() -> None:
    batch = LetterBatch(100, PLENTY)
    assert batch.add(FRAME, 5, 9, {}) == 6
    assert len(letters(batch.seal(0))) == 1


CONTENT = st.none() | st.binary(max_size=300)
FRAMES = st.builds(
    LetterFrame,
    st.text(max_size=9),
    st.integers(0, 2**31 - 1),
    st.text(max_size=200),
    st.integers(0, 32767),
    st.text(max_size=30),
)


@given(
    ranges=st.lists(st.tuples(FRAMES, st.integers(0, 2**62), st.integers(0, 300)), min_size=1, max_size=4),
    content=st.lists(st.tuples(CONTENT, CONTENT), max_size=20),
    most=st.integers(100, 30_000),
)
def test_letters_come_in_order_and_fill_the_limit(
    ranges: list[tuple[LetterFrame, int, int]], content: list[tuple[bytes | None, bytes | None]], most: int
) -> None:
    batch = LetterBatch(PLENTY, most)
    expected: list[tuple[bytes, bytes | None, bytes | None]] = []
    for frame, first, more in ranges:
        copies: RecordCopies = {first + index: pair for index, pair in enumerate(content)}
        after = batch.add(frame, first, first + more, copies)
        expected += [(str(offset).encode(), *copies.get(offset, (None, None))) for offset in range(first, after)]
        assert batch.is_full == (after <= first + more)
        if batch.is_full:
            break
    sealed = batch.seal(5)
    assert len(sealed) == batch.size
    assert len(sealed) <= most or len(expected) == 1
    found = [(letter.headers[2][1], _copied(letter.key), _copied(letter.value)) for letter in letters(sealed)]
    assert found == expected


def _copied(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)
