"""The record walk: both twins against the record reader, at every cut, over chunks, and against each other."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykbroker_wire.records import walk as walk_module
from pykbroker_wire.records.record import InvalidRecord, encode_record, iter_encoded, varint, wrap_int64
from pykbroker_wire.records.walk import (
    KEYLESS,
    MAX_INT64,
    MIN_INT64,
    UNTIMELY,
    RecordRules,
    Walked,
    examine_python,
    examine_stream,
    find_timestamp_python,
    walk_across_python,
    walk_python,
    walk_stream,
)

Walk = Callable[..., Walked]

TWINS: list[Any] = [pytest.param(walk_python, id="python")]
if walk_module.COMPILED:
    TWINS.append(pytest.param(walk_module.walk, id="compiled"))

#: The names of the loops that have a compiled twin.
LOOPS = ("walk", "walk_across", "examine", "find_timestamp")


@pytest.fixture(params=["python", "compiled"])
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use either twin of each loop for the functions over chunks."""
    if request.param == "compiled" and not walk_module.COMPILED:
        pytest.skip("the record walk is not compiled here")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            for name in LOOPS:
                patch.setattr(walk_module, name, getattr(walk_module, f"{name}_python"))
        yield


sizes = st.sampled_from((0, 1, 5, 63, 64, 65, 200, 8191, 8192, 20_000))
maybe_bytes = st.none() | sizes.map(bytes)
header_lists = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)
deltas = st.sampled_from((0, 1, -1, 63, 64, -65, 8191, 8192, 2**31, 2**63 - 1, -(2**63)))
record_lists = st.lists(st.tuples(deltas, maybe_bytes, maybe_bytes, header_lists), min_size=1, max_size=6)


def encode(records: list[Any], first: int = 0) -> bytes:
    return b"".join(encode_record(first + n, ts, key, value, h) for n, (ts, key, value, h) in enumerate(records))


def size_of(number: int, one: Any) -> int:
    """Return the number of bytes after the length of a record."""
    whole = encode([one], number)
    return next(size for size in range(len(whole)) if len(varint(size)) + size == len(whole))


def facts(records: list[Any], end: int) -> Walked:
    times = [ts for ts, *_ in records]
    keyless = sum(key is None for _, key, _, _ in records)
    return end, len(records), min(times, default=MAX_INT64), max(times, default=MIN_INT64), keyless, True


@pytest.mark.slow
@pytest.mark.parametrize("walk", TWINS)
@settings(max_examples=100, deadline=None)
@given(record_lists, st.integers(0, 20_000))
def test_facts(walk: Walk, records: list[Any], first: int) -> None:
    data = encode(records, first)
    assert walk(data, 0, first, len(records)) == facts(records, len(data))
    assert walk(b"abc" + data + b"x", 3, first, len(records)) == facts(records, len(data) + 3)
    assert walk(bytearray(data), 0, first, 1) == facts(records[:1], len(encode(records[:1], first)))
    assert walk(memoryview(data), 0, first + 1, len(records))[5] is False
    assert walk(data, 0, first, 0) == facts([], 0)


@pytest.mark.parametrize("walk", TWINS)
def test_the_end_of_the_data_ends_the_walk_in_front_of_the_record(walk: Walk) -> None:
    records = [(n, b"k" * n * 20, b"v" * n * 50, [("h", b"x")]) for n in range(5)]
    data = encode(records)
    ends = [len(encode(records[:n])) for n in range(6)]
    for cut in range(len(data) + 1):
        whole = max(n for n in range(6) if ends[n] <= cut)
        assert walk(data[:cut], 0, 0, 5) == facts(records[:whole], ends[whole])


@pytest.mark.parametrize("walk", TWINS)
@pytest.mark.parametrize(
    "data",
    [
        varint(0),
        varint(-1) + bytes(20),
        varint(-(2**31)) + bytes(20),
        b"\xff" * 5 + bytes(20),
        varint(5) + b"\0\0\0\x01\x01",
        varint(3) + b"\0\0\0\x01\x01\0",
        varint(6) + b"\0\0\0" + varint(1000) + b"\0",
        varint(8) + b"\0\0\0" + varint(2**31 - 1),
        varint(6) + b"\0\0\0\x01\x01\x01",
        varint(6) + b"\0\0\0\x01\x01\x02",
        varint(8) + b"\0\0\0\x01\x01\x02\x01\x01",
        varint(12) + b"\0" + b"\xff" * 11,
        varint(8) + b"\0\0" + b"\xff" * 6,
    ],
)
def test_wrong_records(walk: Walk, data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        walk(data + bytes(20), 0, 0, 1)
    with pytest.raises(InvalidRecord):
        walk_stream([data[:2], data[2:] + bytes(20)], 1)


def cut(data: bytes, source: st.DataObject) -> list[bytes]:
    chunks = []
    rest = data
    while rest:
        size = source.draw(st.integers(1, max(1, len(data))))
        chunks.append(rest[:size])
        rest = rest[size:]
    return chunks


@pytest.mark.slow
@pytest.mark.usefixtures("twin")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_lists, st.data())
def test_chunks(records: list[Any], source: st.DataObject) -> None:
    chunks = cut(encode(records), source)
    assert walk_stream(chunks, len(records))[1:] == facts(records, 0)[1:]
    anything = RecordRules(0, 0, MAX_INT64, MAX_INT64, keyed=False, timed=False)
    assert examine_stream(chunks, len(records), anything, 1) == (max(ts for ts, *_ in records), [])
    most = max(size_of(number, one) for number, one in enumerate(records))
    assert walk_stream(chunks, len(records), most)[1] == len(records)
    with pytest.raises(InvalidRecord, match="more bytes"):
        walk_stream(chunks, len(records), most - 1)
    for wrong in (len(records) - 1, len(records) + 1):
        with pytest.raises(InvalidRecord):
            walk_stream(chunks, wrong)
        with pytest.raises(InvalidRecord):
            examine_stream(chunks, wrong, anything, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("twin")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_lists, st.data(), deltas, st.booleans(), st.booleans(), st.integers(1, 4))
def test_records_that_break_a_rule(
    records: list[Any], source: st.DataObject, base: int, keyed: bool, timed: bool, most: int
) -> None:
    rules = RecordRules(base, 10_000, 9_000, 100, keyed=keyed, timed=timed)
    expected = []
    greatest = MIN_INT64
    for index, (delta, key, _, _) in enumerate(records):
        timestamp = wrap_int64(base + delta)
        age = wrap_int64(10_000 - timestamp)
        greatest = max(greatest, timestamp)
        if keyed and key is None:
            expected.append((index, KEYLESS, timestamp))
        elif timed and timestamp != -1 and (age > 9_000 or wrap_int64(-age) > 100):
            expected.append((index, UNTIMELY, timestamp))
        if len(expected) == most:
            break
    assert examine_stream(cut(encode(records), source), len(records), rules, most) == (greatest, expected)


@pytest.mark.slow
@pytest.mark.usefixtures("twin")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_lists, deltas, deltas, st.integers(0, 8))
def test_the_first_record_of_a_time(records: list[Any], base: int, target: int, first: int) -> None:
    data = encode(records, 2)
    times = [(2 + n, wrap_int64(base + delta)) for n, (delta, *_) in enumerate(records)]
    expected = next(((n, at) for n, at in times if at >= target and n >= first), None)
    assert walk_module.find_timestamp(data, len(records), base, target, first) == expected
    assert walk_module.find_timestamp(memoryview(data), len(records), base, target, first) == expected
    with pytest.raises(InvalidRecord):
        walk_module.find_timestamp(data + b"x", len(records), base, MAX_INT64, 9)
    with pytest.raises(InvalidRecord):
        walk_module.find_timestamp(data, len(records) + 1, base, MAX_INT64, 9)


def across(loop: Any, chunks: list[bytes]) -> list[object]:
    """Return the state after each chunk, and whether the loop raised."""
    state = array("q", bytes(72))
    left: list[object] = []
    for chunk in chunks:
        try:
            position = loop(state, chunk, 0)
        except InvalidRecord:
            return [*left, "invalid"]
        left.append((position, state.tolist()))
    return left


@pytest.mark.slow
@pytest.mark.skipif(not walk_module.COMPILED, reason="the record walk is not compiled here")
@settings(max_examples=300, deadline=None)
@given(record_lists | st.binary(max_size=60), st.data())
def test_the_twins_agree_on_what_is_no_record(records: list[Any] | bytes, source: st.DataObject) -> None:
    data = bytearray(records if isinstance(records, bytes) else encode(records))
    for _ in range(source.draw(st.integers(0, 3))):
        place = source.draw(st.integers(0, max(0, min(len(data), 60) - 1)))
        data[place : place + 1] = source.draw(st.binary(max_size=3))
    chunks = cut(bytes(data), source)
    assert across(walk_module.walk_across, chunks) == across(walk_across_python, chunks)

    def verdict(loop: Any, *arguments: Any) -> object:
        try:
            return loop(bytes(data), *arguments)
        except InvalidRecord:
            return "invalid"

    rules = RecordRules(5, 10_000, 9_000, 100, keyed=source.draw(st.booleans()), timed=source.draw(st.booleans()))
    assert verdict(walk_module.examine, 0, 3, *rules) == verdict(examine_python, 0, 3, *rules)
    wanted = (3, 5, source.draw(deltas), source.draw(st.integers(0, 3)))
    assert verdict(walk_module.find_timestamp, *wanted) == verdict(find_timestamp_python, *wanted)


def outcome(walk: Walk, data: bytes, count: int) -> Walked | str:
    try:
        return walk(data, 0, 0, count)
    except InvalidRecord:
        return "invalid"


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(record_lists | st.binary(max_size=60), st.data())
def test_mutations_give_one_outcome(records: list[Any] | bytes, source: st.DataObject) -> None:
    """The twins agree with each other, and with the record reader if the walk saw all records."""
    data = bytearray(records if isinstance(records, bytes) else encode(records))
    for _ in range(source.draw(st.integers(0, 3))):
        place = source.draw(st.integers(0, max(0, min(len(data), 60) - 1)))
        data[place : place + 1] = source.draw(st.binary(max_size=3))
    count = source.draw(st.integers(1, 7))
    found = outcome(walk_python, bytes(data), count)
    if walk_module.COMPILED:
        assert outcome(walk_module.walk, bytes(data), count) == found
    whole = not isinstance(found, str) and found[:2] == (len(data), count)
    try:
        times = [record.timestamp for record in iter_encoded(bytes(data), count, 0, 0)]
    except InvalidRecord:
        assert not whole
    else:
        assert whole
        assert (min(times), max(times)) == found[2:4]


@pytest.mark.skipif(not walk_module.COMPILED, reason="not compiled here")
def test_the_compiled_twin_reads_nothing_else() -> None:
    walk: Any = walk_module.walk
    for arguments in ((b"", -1, 0, 1), (b"abc", -(2**60), 0, 1)):
        with pytest.raises(InvalidRecord):
            walk(*arguments)
    assert walk(b"abc", 2**62, 0, 1)[1] == 0
    for wrong in ((), ("text", 0, 0, 1), (b"", 0, 0, 2**70)):
        with pytest.raises((TypeError, OverflowError)):
            walk(*wrong)
