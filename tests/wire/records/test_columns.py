"""Columns of record batches: both twins against the record reader, and on bytes that are no batch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker_wire.records import columns
from pykbroker_wire.records.batch import BatchBuilder, BatchHeader, build_batch, iter_batches
from pykbroker_wire.records.columns import (
    AbortedSpans,
    BrokenBatch,
    Columns,
    Filled,
    WantedColumns,
    fill_records_python,
    size_of,
)
from pykbroker_wire.records.control import end_txn_marker
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.records.record import InvalidRecord, encode_record, iter_records

ALL = ~WantedColumns(0)
Fill = Callable[..., int]
TWINS: list[Any] = [pytest.param(fill_records_python, id="python")]
if columns.COMPILED:
    TWINS.append(pytest.param(columns.fill_records, id="compiled"))


@pytest.fixture(params=TWINS)
def fill(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fill:
    monkeypatch.setattr(columns, "fill_records", request.param)
    twin: Fill = request.param
    return twin


# -- reading columns back ----------------------------------------------------------------------------------------------


def is_set(bits: bytes, index: int) -> bool:
    return bool(bits[index >> 3] >> (index & 7) & 1)


def binary(validity: bytes, offsets: bytes, data: bytes) -> list[bytes | None]:
    ends = struct.unpack(f"={len(offsets) // 4}i", offsets)
    assert ends[0] == 0
    assert ends[-1] == len(data)
    assert len(validity) == (len(ends) + 6) // 8
    return [data[a:b] if is_set(validity, i) else None for i, (a, b) in enumerate(pairwise(ends))]


def cells(filled: Filled) -> dict[str, list[Any]]:
    """The columns as lists; each is as long as the rows."""
    b: Any = filled.buffers
    found: dict[str, list[Any]] = {}
    if WantedColumns.KEY in filled.wanted:
        found["key"] = binary(*b[0:3])
    if WantedColumns.VALUE in filled.wanted:
        found["value"] = binary(*b[3:6])
    for index, name, code in ((6, "offset", "q"), (7, "timestamp", "q"), (8, "type", "i")):
        if b[index] is not None:
            found[name] = list(struct.unpack(f"={filled.rows}{code}", b[index]))
    if WantedColumns.HEADERS in filled.wanted:
        ends = struct.unpack(f"={filled.rows + 1}i", b[10])
        names = [bytes(name or b"").decode() for name in binary(b"\xff" * ((len(b[11]) // 4 + 6) // 8), b[11], b[12])]
        pairs = list(zip(names, binary(*b[13:16]), strict=True))
        found["headers"] = [pairs[a:z] if is_set(b[9], i) else None for i, (a, z) in enumerate(pairwise(ends))]
    assert {len(column) for column in found.values()} <= {filled.rows}
    return found


def expected(data: bytes, first: int, last: int) -> dict[str, list[Any]]:
    """The same columns from the record reader."""
    rows = [
        (header, record)
        for position, header in iter_batches(data)
        if not header.is_control
        for record in iter_records(data, position, header)
        if first <= record.offset <= last
    ]
    return {
        "key": [record.key for _, record in rows],
        "value": [record.value for _, record in rows],
        "offset": [record.offset for _, record in rows],
        "timestamp": [record.timestamp * 1000 for _, record in rows],
        "type": [int(header.timestamp_type == "LogAppendTime") for header, _ in rows],
        "headers": [record.headers or None for _, record in rows],
    }


def taken(builder: Columns, data: bytes) -> Iterator[Filled]:
    position = before = 0
    while not builder.done:
        before, position = position, builder.fill(data, position)
        if builder.full:
            yield builder.take()
        elif position == before:
            break
    if builder.rows:
        yield builder.take()


def read(builder: Columns, data: bytes) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for filled in taken(builder, data):
        for name, column in cells(filled).items():
            found.setdefault(name, []).extend(column)
    return found


# -- results -----------------------------------------------------------------------------------------------------------

sizes = st.sampled_from((0, 1, 63, 64, 300, 9000)).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | sizes), max_size=2)
times = st.sampled_from((-1, 0, 1, 63, 1_700_000_000_000, 2**40))
records = st.lists(st.tuples(st.integers(1, 3), times, st.none() | sizes, st.none() | sizes, headers), max_size=20)
batches = st.lists(
    st.tuples(records, st.integers(0, 4), st.booleans(), st.none() | times, st.integers(0, 5)), min_size=1, max_size=6
)


def log_of(made: Any) -> bytes:
    """Batches with gaps between and inside them, as compaction leaves them, and markers."""
    data, base = b"", 0
    for items, codec, marker, append_time, gap in made:
        base += gap
        builder = BatchBuilder(codec=codec, base_offset=base, log_append_time_ms=append_time)
        offset = base - 1
        for step, time, key, value, some in items:
            offset += step
            builder.append(key, value, some, time, offset=offset)
        data += builder.build(last_offset=offset + 1)
        base = offset + 2
        if marker:
            data += end_txn_marker(
                commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5, base_offset=base
            )
            base += 1
    return data


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=100, deadline=None)
@given(batches, st.integers(0, 40), st.integers(0, 60), st.sampled_from((1, 3, 1000)), st.data())
def test_columns_are_what_the_record_reader_reads(
    twin: Fill, made: Any, first: int, last: int, max_rows: int, data: st.DataObject
) -> None:
    log = log_of(made)
    wanted = WantedColumns(data.draw(st.integers(0, ALL.value)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "fill_records", twin)
        found = read(Columns(wanted, first, last, max_rows=max_rows), log)
        everything = read(Columns(ALL, first, last), log)
    everything_expected = expected(log, first, last)
    if everything:
        assert everything == everything_expected
    else:
        assert not everything_expected["offset"]
    assert found == {name: everything[name] for name in found}


def batch(base: int, count: int = 3, **more: Any) -> bytes:
    return build_batch([(b"k", b"v%d" % n, (), 1000 + n) for n in range(count)], base_offset=base, **more)


def test_rows_are_taken_when_there_are_enough(fill: Fill) -> None:
    data = b"".join(batch(base) for base in range(0, 30, 3))
    builder = Columns(ALL, 0, 29, max_rows=5)
    assert [filled.rows for filled in taken(builder, data)] == [6, 6, 6, 6, 6], "a batch is taken whole"
    builder = Columns(ALL, 0, 29, max_bytes=8)
    assert {filled.rows for filled in taken(builder, data)} == {3}, "9 bytes of keys and values a batch"
    builder = Columns(ALL, 0, 29, max_rows=3)
    position = builder.fill(data)
    assert builder.full
    assert builder.fill(data, position) == position, "nothing before it is taken"


def test_aborted_transactions_and_markers_are_no_rows(fill: Fill) -> None:
    more = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    marker = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp": 9}
    data = (
        batch(0, **more)
        + batch(3, producer_id=8, transactional=True)
        + batch(6, producer_id=7)
        + end_txn_marker(commit=False, base_offset=9, **marker)
        + batch(10, **more)
        + end_txn_marker(commit=True, base_offset=13, **marker)
    )
    aborted = AbortedSpans([(7, 0, 9), (9, 0, 100)])
    committed = read(Columns(WantedColumns.OFFSET, 0, 13, aborted), data)
    assert committed == {"offset": [3, 4, 5, 6, 7, 8, 10, 11, 12]}
    assert read(Columns(WantedColumns.OFFSET, 0, 13), data) == {"offset": [*range(9), 10, 11, 12]}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5)), max_size=6), st.integers(0, 200))
def test_a_span_covers_its_producer_from_its_first_offset_to_its_marker(made: Any, offset: int) -> None:
    spans, ends = [], {0: 0, 1: 0, 2: 0}
    for producer_id, gap, size in made:
        first = ends[producer_id] + gap
        ends[producer_id] = first + size + 1
        spans.append((producer_id, first, first + size))
    aborted = AbortedSpans(spans)
    for producer_id in range(4):
        assert aborted.covers(producer_id, offset) == any(
            producer == producer_id and first <= offset <= last for producer, first, last in spans
        )


def test_a_range_ends_without_the_rest_of_the_data(fill: Fill) -> None:
    data = batch(0) + batch(3) + batch(6)
    builder = Columns(WantedColumns.OFFSET, 1, 4)
    assert builder.fill(data) == len(batch(0) + batch(3))
    assert builder.done
    assert cells(builder.take()) == {"offset": [1, 2, 3, 4]}
    holed = batch(0) + batch(100)
    builder = Columns(WantedColumns.OFFSET, 0, 50)
    assert builder.fill(holed) == len(batch(0)), "the batch behind the range stays where it is"
    assert (builder.done, builder.next_offset, builder.rows) == (True, 100, 3)


def test_damage_outside_of_the_range_is_not_looked_at(fill: Fill) -> None:
    data = bytearray(batch(0) + batch(3))
    data[70] ^= 1
    builder = Columns(WantedColumns.OFFSET, 3, 5)
    assert builder.fill(data) == len(data)
    assert cells(builder.take()) == {"offset": [3, 4, 5]}


# -- bytes that are no batch -------------------------------------------------------------------------------------------


def test_a_cut_batch_waits_for_the_rest(fill: Fill) -> None:
    whole, cut = batch(0), batch(3, codec=3)
    for size in range(len(cut)):
        builder = Columns(ALL, 0, 10)
        data = whole + cut[:size]
        assert builder.fill(data) == len(whole)
        assert (builder.rows, builder.done, builder.full) == (3, False, False)
        assert size_of(data, len(whole)) == (len(cut) if size >= 17 else 61)
        assert builder.fill(whole + cut, len(whole)) == len(whole + cut)


@pytest.mark.parametrize("codec", range(5))
def test_every_flipped_bit_is_told_or_changes_no_record(fill: Fill, codec: int) -> None:
    data = batch(5, codec=codec) + batch(8)
    right = expected(data, 0, 100)
    for at in range(len(batch(5, codec=codec))):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[at] ^= 1 << bit
            try:
                found = read(Columns(ALL, 0, 100), bytes(wrong))
            except BrokenBatch as error:
                assert error.position in (0, len(batch(5, codec=codec)))  # noqa: PT017
                continue
            if at >= 16:
                assert found == right
            else:  # bytes that no CRC covers: base offset, length and leader epoch
                assert found != right or at >= 12


def test_the_message_says_where_and_what(fill: Fill) -> None:
    whole, wrong = batch(0), bytearray(batch(3))
    wrong[-1] ^= 1
    place = len(whole)
    message = f"the batch at byte {place + 4096} with base offset 3: its CRC is not that of its bytes"
    with pytest.raises(BrokenBatch, match=message) as caught:
        Columns(ALL, 0, 10).fill(whole + wrong, 0, 4096)
    assert (caught.value.position, caught.value.base_offset) == (place + 4096, 3)


@pytest.mark.parametrize(
    ("magic", "message"), [(0, "its format is 0, older"), (1, "its format is 1, older"), (3, "its format is 3, newer")]
)
def test_another_format_is_told(magic: int, message: str) -> None:
    wrong = bytearray(batch(3))
    wrong[16] = magic
    with pytest.raises(BrokenBatch, match=message):
        Columns(ALL, 0, 10).fill(wrong)


@pytest.mark.parametrize("length", [0, 13, 48, -1, -(2**31)])
def test_a_length_that_no_batch_has_is_told(length: int) -> None:
    wrong = bytearray(batch(3))
    struct.pack_into(">i", wrong, 8, length)
    with pytest.raises(BrokenBatch, match=f"its length field says {length}, which no batch has"):
        Columns(ALL, 0, 10).fill(wrong)


def test_offsets_that_go_back_are_told() -> None:
    with pytest.raises(BrokenBatch, match="its offsets go to 4, those before it to 5"):
        Columns(ALL, 0, 10).fill(batch(3) + batch(2))


def sealed(payload: bytes, count: int, codec: int = 0) -> bytes:
    """A batch with a right CRC over any payload."""
    from pykbroker_wire.records.batch import seal

    return seal(
        payload,
        record_count=count,
        last_offset_delta=max(0, count),
        base_timestamp=0,
        max_timestamp=0,
        attributes=codec,
    )


@pytest.mark.parametrize("codec", range(8))
def test_records_that_are_none_are_told_with_a_right_crc(fill: Fill, codec: int) -> None:
    record = encode_record(0, 0, b"key", b"value")
    assert crc32c(b"") == 0
    for payload, count in ((b"\x00" * 20, 3), (record * 2, 1), (record, 2), (record[:-1], 1), (record, -1)):
        with pytest.raises(BrokenBatch, match="byte 0 with base offset 0"):
            Columns(ALL, 0, 10).fill(sealed(payload, count, codec))


def test_what_decompresses_to_more_than_the_limit_is_told(fill: Fill) -> None:
    data = build_batch([(None, bytes(100_000), (), 0)], codec=4)
    with pytest.raises(BrokenBatch, match="more than 5000 bytes"):
        Columns(ALL, 0, 10, limit=5000).fill(data)


def test_a_timestamp_beyond_microseconds_is_told(fill: Fill) -> None:
    data = build_batch([(None, b"v", (), 2**62)])
    with pytest.raises(BrokenBatch, match="microseconds"):
        Columns(ALL, 0, 10).fill(data)
    assert read(Columns(WantedColumns.VALUE, 0, 10), data) == {"value": [b"v"]}


def test_a_header_name_that_is_no_text_is_replaced_as_java_does(fill: Fill) -> None:
    names = (b"ok", b"\xff", b"a\xc3", "ü€𝄞".encode(), b"\xed\xa0\x80", b"\xf0\x9f\x98x")
    pairs = b"".join(bytes([len(name) * 2]) + name + b"\x02v" for name in names)
    body = b"\x00\x00\x00\x01\x01" + bytes([len(names) * 2]) + pairs
    data = sealed(bytes([len(body) * 2]) + body, 1)
    found = read(Columns(WantedColumns.HEADERS, 0, 10), data)
    assert found["headers"] == [[(name.decode(errors="replace"), b"v") for name in names]]


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60), st.integers(-1, 5), st.booleans())
def test_bytes_that_are_no_records_get_the_same_verdict_of_both_twins(
    twin: Fill, data: bytes, count: int, append_time: bool
) -> None:
    def verdict(one: Fill) -> object:
        builder = Columns(ALL, 0, 100)
        try:
            rows = one(data, count, 0, 77, append_time, 0, 100, 0, builder._buffers, builder._used)
        except InvalidRecord:
            return "invalid"
        return rows, builder.take().buffers

    assert verdict(twin) == verdict(fill_records_python)


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_byte_gets_the_same_verdict_of_both_twins(twin: Fill, data: st.DataObject) -> None:
    items = data.draw(records)
    payload = bytearray(
        b"".join(encode_record(n, time, key, value, some) for n, (_, time, key, value, some) in enumerate(items))
    )
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))

    def verdict(one: Fill) -> object:
        builder = Columns(ALL, 0, 100)
        try:
            rows = one(bytes(payload), len(items), 0, 77, False, 0, 100, 0, builder._buffers, builder._used)
        except InvalidRecord:
            return "invalid"
        return rows, builder.take().buffers

    assert verdict(twin) == verdict(fill_records_python)


def test_an_empty_batch_of_a_compacted_log_gives_no_rows(fill: Fill) -> None:
    data = BatchBuilder(base_offset=4).build(last_offset=9) + batch(10)
    assert BatchHeader.parse(data).record_count == 0
    assert read(Columns(WantedColumns.OFFSET, 0, 12), data) == {"offset": [10, 11, 12]}


def test_memory_is_filled_again_when_nothing_looks_at_it(fill: Fill) -> None:
    data = b"".join(batch(base) for base in range(0, 30, 3))
    builder = Columns(ALL, 0, 29, max_rows=3)
    position = 0
    seen: list[int] = []
    kept: list[tuple[Filled, dict[str, list[Any]]]] = []
    while not builder.done:
        position = builder.fill(data, position)
        filled = builder.take()
        seen.append(filled.rows)
        if len(kept) < 2:
            kept.append((filled, cells(filled)))
    assert seen == [3] * 10
    for filled, was in kept:
        assert cells(filled) == was, "what is held does not change"
    assert len(builder._spares) <= 3
    addresses = set()
    builder = Columns(ALL, 0, 29, max_rows=3)
    position = 0
    while not builder.done:
        position = builder.fill(data, position)
        addresses.add(id(builder._buffers))
        builder.take()
    assert len(addresses) <= 2, "nothing was held"
