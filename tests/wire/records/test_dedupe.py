"""The loops of compaction: both twins against a dict and the record reader, and on bytes that are no records."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker_wire.records import dedupe
from pykbroker_wire.records.dedupe import SLOT_SIZE
from pykbroker_wire.records.record import InvalidRecord, encode_record, iter_encoded, wrap_int64

SEED = bytes(range(16))


class Twin:
    def __init__(self, put_keys: Any, survivors: Any, rebase: Any) -> None:
        self.put_keys, self.survivors, self.rebase = put_keys, survivors, rebase


TWINS = [pytest.param(Twin(dedupe.put_keys_python, dedupe.survivors_python, dedupe.rebase_python), id="python")]
if dedupe.COMPILED:
    TWINS.append(pytest.param(Twin(dedupe.put_keys, dedupe.survivors, dedupe.rebase), id="compiled"))

keys = st.none() | st.integers(0, 12).map(lambda n: b"k" * (n % 10) + bytes([n]))
values = st.none() | st.sampled_from((0, 1, 63, 64, 300, 9000)).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=3), values), max_size=2)
times = st.sampled_from((0, 1, -1, 63, 64, -65, 8191, 8192, 2**31, 2**62, -(2**62)))
records_of = st.lists(st.tuples(st.integers(1, 3), times, keys, values, headers), max_size=12)

Made = list[tuple[int, int, bytes | None, bytes | None, Any]]


def with_deltas(records: Any) -> Made:
    """Records whose offsets have gaps, as after an earlier compaction."""
    made, delta = [], -1
    for step, *rest in records:
        delta += step
        made.append((delta, *rest))
    return made


def encode(made: Made) -> bytes:
    return b"".join(encode_record(delta, time, key, value, some) for delta, time, key, value, some in made)


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=150, deadline=None)
@given(st.lists(records_of, min_size=1, max_size=4), st.integers(0, 30))
def test_a_table_is_a_dict_of_the_newest_offsets(twin: Twin, batches: list[Any], start: int) -> None:
    table = bytearray(40 * SLOT_SIZE)
    newest: dict[bytes, int] = {}
    base = 0
    for batch in batches:
        made = with_deltas(batch)
        before = len(newest)
        for delta, _, key, _, _ in made:
            if key is not None and base + delta >= start:
                newest[key] = base + delta
        last = max([base + delta for delta, *_ in made if base + delta >= start], default=start - 1)
        put = twin.put_keys(table, SEED, 40, encode(made), len(made), base, start)
        assert put == (len(newest) - before, len(made), last)
        base += 100
    base = 0
    for batch in batches:
        made = with_deltas(batch)
        data = encode(made)
        for latest, drop in ((-1, False), (1000, False), (1000, True), (base + 2, True)):
            kept = [
                (delta, time, key, value, some)
                for delta, time, key, value, some in made
                if base + delta > latest
                or (key is not None and base + delta >= newest.get(key, -1) and not (drop and value is None))
            ]
            runs, *facts = twin.survivors(table, SEED, data, len(made), base, latest, drop)
            assert b"".join(data[begin:end] for begin, end in runs) == encode(kept)
            assert all(a[1] < b[0] for a, b in pairwise(runs)), "neighbours are one run"
            keyless = sum(key is None and base + delta <= latest for delta, _, key, _, _ in made)
            tombstones = sum(value is None for _, _, _, value, _ in kept)
            stamps = [time for _, time, *_ in kept] or [0]
            assert facts == [len(kept), tombstones, keyless, stamps[0], max(stamps)]
        base += 100


@pytest.mark.parametrize("twin", TWINS)
def test_a_full_table_still_takes_what_it_knows(twin: Twin) -> None:
    table = bytearray(8 * SLOT_SIZE)
    made: Made = [(n, 0, b"%d" % (n % 3), b"v", ()) for n in range(10)]
    data = encode(made)
    assert twin.put_keys(table, SEED, 2, data, 10, 50, 0) == (2, 2, 51)
    assert twin.put_keys(table, SEED, 1, data, 10, 50, 0) == (1, 10, 59)
    eight: Made = [(n, 0, b"other %d" % n, b"v", ()) for n in range(8)]
    # A full table is distinguished from the caller's limit.
    assert twin.put_keys(table, SEED, 100, encode(eight), 8, 100, 0) == (5, 5, 104)
    assert twin.survivors(table, SEED, encode(eight), 8, 100, 107, False)[1] == 8, "unknown keys survive"


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=100, deadline=None)
@given(records_of, times)
def test_rebased_records_differ_in_their_timestamp_delta_only(twin: Twin, records: Any, shift: int) -> None:
    made = with_deltas(records)
    moved = [(delta, wrap_int64(time + shift), key, value, some) for delta, time, key, value, some in made]
    assert twin.rebase(encode(made), len(made), shift, False) == encode(moved)
    numbered = [(index, *rest) for index, (_, *rest) in enumerate(moved)]
    assert twin.rebase(encode(made), len(made), shift, True) == encode(numbered)
    assert [r.timestamp for r in iter_encoded(twin.rebase(encode(made), len(made), shift, False), len(made), 0, 0)] == [
        time for _, time, *_ in moved
    ]


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_bytes_that_are_no_records_are_invalid_in_both_twins(twin: Twin, data: bytes, count: int) -> None:
    def verdict(one: Twin) -> list[object]:
        table = bytearray(8 * SLOT_SIZE)
        calls: list[tuple[Any, tuple[Any, ...]]] = [
            (one.survivors, (table, SEED, data, count, 0, 100, False)),
            (one.put_keys, (table, SEED, 8, data, count, 0, 0)),
            (one.rebase, (data, count, 7, False)),
            (one.rebase, (data, count, 0, True)),
        ]
        results: list[object] = []
        for function, arguments in calls:
            try:
                results.append(function(*arguments))
            except InvalidRecord:
                results.append("invalid")
        return results

    assert verdict(twin) == verdict(TWINS[0].values[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("twin", TWINS)
def test_batches_that_are_cut_or_too_long_are_invalid(twin: Twin) -> None:
    data = encode([(n, 0, b"key %d" % n, b"v" * 70, [("h", b"x")]) for n in range(3)])
    for wrong in [data[:cut] for cut in range(len(data))] + [data + b"x"]:
        with pytest.raises(InvalidRecord):
            twin.put_keys(bytearray(8 * SLOT_SIZE), SEED, 8, wrong, 3, 0, 0)
        with pytest.raises(InvalidRecord):
            twin.survivors(bytearray(8 * SLOT_SIZE), SEED, wrong, 3, 0, 100, False)
        with pytest.raises(InvalidRecord):
            twin.rebase(wrong, 3, 1, True)
