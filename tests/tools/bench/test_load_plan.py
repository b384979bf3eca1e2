"""Shares, pace and records of a load."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.bench.load_plan import LEAST_MARKED, LoadPlan, contents, dealt, due_ns, due_of, marked, shares


@given(st.integers(0, 10**6), st.integers(1, 64))
def test_shares_are_the_whole_and_even(whole: int, parts: int) -> None:
    found = shares(whole, parts)
    assert sum(found) == whole
    assert len(found) == parts
    assert max(found) - min(found) <= 1


@pytest.mark.slow
@given(st.sets(st.integers(0, 100), min_size=1), st.integers(1, 64))
def test_each_partition_is_dealt_once(partitions: set[int], parts: int) -> None:
    hands = dealt(sorted(partitions), parts)
    assert sorted(number for hand in hands for number in hand) == sorted(partitions)
    assert all(hands)
    assert len(hands) == min(parts, len(partitions))


def test_records_are_due_at_an_even_pace() -> None:
    assert [due_ns(number, 5, 4) for number in range(5)] == [5, 250_000_005, 500_000_005, 750_000_005, 1_000_000_005]


@pytest.mark.parametrize("size", [0, 1, 100])
def test_contents_have_their_size_and_are_many(size: int) -> None:
    found = contents(size, Random(1))
    assert {len(content) for content in found} == {size}
    assert len(set(found)) == (1 if size == 0 else 26 if size == 1 else len(found))


@given(st.integers(LEAST_MARKED, 200), st.integers(0, 2**64 - 1), st.integers(0, 2**63))
def test_a_record_says_when_it_was_due(size: int, run: int, at_ns: int) -> None:
    value = marked(bytes(size), run, at_ns)
    assert len(value) == size
    assert due_of(value, run) == at_ns
    assert due_of(value, run ^ 1) is None
    assert due_of(value[: LEAST_MARKED - 1], run) is None
    assert due_of(None, run) is None


def test_a_plan_travels_as_a_dictionary() -> None:
    plan = LoadPlan("produce", "t", "a:1", {"acks": "all"}, 7, partitions=[1, 2])
    assert LoadPlan(**plan.as_dict()) == plan
