"""The bounds of a read: the words, and their meaning for a partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.cluster.bounds import (
    BEGINNING,
    END,
    STORED,
    Bound,
    BoundKind,
    Extent,
    first_offset,
    last_offset,
    parsed_bound,
)

SOME = Extent(10, 20)
NOW_MS = 1_769_857_200_123


def at(time_ms: int) -> Bound:
    return Bound(BoundKind.TIME, time_ms)


@pytest.mark.parametrize(
    ("word", "bound"),
    [
        ("beginning", BEGINNING),
        ("end", END),
        ("stored", STORED),
        ("0", Bound(BoundKind.OFFSET, 0)),
        (" 17 ", Bound(BoundKind.OFFSET, 17)),
        ("-5", Bound(BoundKind.BEFORE_END, 5)),
        ("-5m", at(NOW_MS - 300_000)),
        ("now", at(NOW_MS)),
        ("@1700000000000", at(1_700_000_000_000)),
        ("1970-01-01T00:00:01Z", at(1000)),
        ("2026-01-31T12:00:00.123456+01:00", at(1_769_857_200_123)),
        ("9223372036854775807", Bound(BoundKind.OFFSET, 2**63 - 1)),
    ],
)
def test_words(word: str, bound: Bound) -> None:
    assert parsed_bound(word, NOW_MS) == bound


def test_a_word_that_is_no_time_names_every_form() -> None:
    with pytest.raises(
        ValueError, match=r"'-5x' is not beginning, end, stored, an offset, -N before the end, or a time"
    ):
        parsed_bound("-5x", NOW_MS)


@pytest.mark.parametrize(
    "word",
    ["", "latest", "--5", "-", "@", "@-1", "@x", "²", "-²", "1e3", "2026-13-01", "99999999999999999999", "0x10",
     "9223372036854775808", "1969-12-31T23:59:59Z", "0001-01-01"],
)  # fmt: skip
def test_what_is_no_bound(word: str) -> None:
    with pytest.raises(ValueError, match=r"is not beginning, end|is no offset|is before 1970|is later than") as refused:
        parsed_bound(word, NOW_MS)
    assert "\n" not in str(refused.value)


def test_where_a_read_begins() -> None:
    assert first_offset(BEGINNING, SOME) == 10
    assert first_offset(END, SOME) == 20
    assert first_offset(Bound(BoundKind.OFFSET, 15), SOME) == 15
    assert first_offset(Bound(BoundKind.OFFSET, 3), SOME) == 10
    assert first_offset(Bound(BoundKind.BEFORE_END, 3), SOME) == 17
    assert first_offset(Bound(BoundKind.BEFORE_END, 30), SOME) == 10
    assert first_offset(STORED, SOME, stored=12) == 12
    assert first_offset(STORED, SOME) == 10
    assert first_offset(at(5), SOME, at_time=14) == 14
    assert first_offset(at(5), SOME) == 20


def test_where_a_read_ends() -> None:
    assert last_offset(END, SOME) == 20
    assert last_offset(BEGINNING, SOME) == 10
    assert last_offset(Bound(BoundKind.OFFSET, 15), SOME) == 15
    assert last_offset(Bound(BoundKind.OFFSET, 25), SOME) == 20
    assert last_offset(Bound(BoundKind.BEFORE_END, 2), SOME) == 18
    assert last_offset(at(5), SOME, at_time=14) == 14
    assert last_offset(at(5), SOME) == 20


def test_a_read_that_follows_waits_for_what_is_not_there() -> None:
    assert last_offset(Bound(BoundKind.OFFSET, 25), SOME, follows=True) == 25
    assert last_offset(at(5), SOME, follows=True) is None
    assert last_offset(at(5), SOME, at_time=14, follows=True) == 14


kinds = st.sampled_from(BoundKind)
whole = st.integers(0, 2**40)


@given(kinds, whole, whole, whole, st.none() | whole, st.none() | whole)
def test_a_read_begins_within_the_partition(
    kind: BoundKind, value: int, beginning: int, count: int, stored: int | None, at_time: int | None
) -> None:
    extent = Extent(beginning, beginning + count)
    first = first_offset(Bound(kind, value), extent, stored=stored, at_time=at_time)
    assert beginning <= first <= beginning + count
