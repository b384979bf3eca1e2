"""Keys and values out of the batches of a source partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.dead_letters import source_records
from pykbroker.dead_letters.source_records import copy_records, takes_long
from pykbroker_wire.records.batch import HEADER_SIZE, BatchBuilder, build_batch
from pykbroker_wire.records.compression import Codec

PLENTY = 1 << 20


@pytest.fixture(params=["compiled", "python"], autouse=True)
def _fill(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        from pykbroker_wire.records.columns import fill_records_python

        monkeypatch.setattr(source_records, "fill_records", fill_records_python)


def of(first: int, values: list[bytes], codec: Codec = Codec.NONE) -> bytes:
    return build_batch([(None, value, (), 0) for value in values], base_offset=first, codec=codec)


def test_offsets_before_and_after_the_range_are_not_copied() -> None:
    data = of(10, [b"a", b"b", b"c"]) + of(13, [b"d", b"e"])
    found = copy_records(data, 11, 13, PLENTY)
    assert found.records == {11: (None, b"b"), 12: (None, b"c"), 13: (None, b"d")}
    assert found.through == 13
    assert found.size == 3


def test_offsets_that_compaction_has_removed_have_no_copy() -> None:
    data = of(0, [b"a"]) + of(7, [b"b"])
    found = copy_records(data, 0, 5, PLENTY)
    assert (found.records, found.through) == ({0: (None, b"a")}, 5)
    assert copy_records(of(7, [b"b"]), 2, 5, PLENTY).through == 5


def test_a_read_that_ends_before_the_range_decides_what_it_has() -> None:
    assert copy_records(of(0, [b"a", b"b"]), 1, 9, PLENTY).through == 1
    assert copy_records(b"", 1, 9, PLENTY).through == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_is_copied_up_to_the_limit(codec: Codec) -> None:
    small, large = of(0, [b"x" * 100], codec), of(1, [b"y" * 5_000], codec)
    data = small + large + of(2, [b"z"])
    found = copy_records(data, 0, 2, 1_000)
    assert found.records == {0: (None, b"x" * 100), 2: (None, b"z")}
    assert found.through == 2


def test_copies_stop_after_the_batch_that_goes_over_the_limit() -> None:
    data = of(0, [b"x" * 600]) + of(1, [b"y" * 600]) + of(2, [b"z"])
    found = copy_records(data, 0, 2, 1_000)
    assert (list(found.records), found.through) == ([0, 1], 1)


def test_a_damaged_batch_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    broken = bytearray(of(0, [b"x" * 9]))
    broken[HEADER_SIZE] = 0x7F
    found = copy_records(bytes(broken) + of(1, [b"y"]), 0, 1, PLENTY)
    assert found.records == {1: (None, b"y")}
    assert "The batch at offset 0 is damaged" in caplog.text


def test_only_a_compressed_batch_of_the_range_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    data = of(0, [b"a"], Codec.GZIP) + of(1, [b"b"]) + of(2, [b"c"], Codec.LZ4)
    assert not takes_long(data, 1, 1)
    assert takes_long(data, 0, 1)
    assert takes_long(data, 1, 2)
    monkeypatch.setattr(source_records, "COMPILED", False)
    assert not takes_long(of(1, [b"b"]), 1, 1)
    assert takes_long(of(1, [b"b" * 70_000]), 1, 1)


CONTENT = st.none() | st.binary(max_size=40)


@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.tuples(st.integers(0, 3), CONTENT, CONTENT), min_size=1, max_size=5),
            st.sampled_from([Codec.NONE, Codec.ZSTD]),
        ),
        max_size=5,
    ),
    span=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_every_record_of_the_range_is_copied(
    batches: list[tuple[int, list[tuple[int, bytes | None, bytes | None]], Codec]], span: tuple[int, int]
) -> None:
    first, last = span[0], span[0] + span[1]
    data, end, expected = b"", -1, {}
    for gap, records, codec in batches:
        builder = BatchBuilder(base_offset=end + 1 + gap, codec=codec)
        end += gap
        for skip, key, value in records:
            end += 1 + skip
            builder.append(key, value, offset=end)
            if first <= end <= last:
                expected[end] = (key, value)
        data += builder.build()
    found = copy_records(data, first, last, PLENTY)
    assert found.records == expected
    # A batch after the range shows that the rest of the range has no records.
    assert found.through == (min(end, last) if end >= first else first - 1)
