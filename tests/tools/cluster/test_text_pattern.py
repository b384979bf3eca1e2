"""Regular expressions of users."""

from __future__ import annotations

import pytest

from pykbroker.tools.cluster.text_pattern import TextPattern, is_pattern
from tests.growth import assert_grows_no_faster


@pytest.mark.parametrize(
    ("word", "expected"),
    [("orders", False), ("a.b-c_D9", False), ("orders-.*", True), ("^orders", True), ("a|b", True), ("a b", True)],
)
def test_a_word_with_a_character_of_no_topic_is_a_pattern(word: str, expected: bool) -> None:
    assert is_pattern(word) is expected


def test_a_pattern_matches_whole_names_and_anywhere_in_records() -> None:
    pattern = TextPattern("a.c|é")
    assert pattern.of(["abc", "xabc", "abcx", "é"]) == ["abc", "é"]
    assert pattern.is_in(b"\xffxabcx\xfe")
    assert pattern.is_in("né".encode())
    assert not pattern.is_in(b"ac")
    assert not pattern.is_in(None)


@pytest.mark.parametrize("text", ["(", "*", "a{9999}", "(?P<x", "(?=a)"])
def test_what_is_no_pattern_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression of RE2: ") as refused:
        TextPattern(text)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_the_time_grows_with_the_length_of_a_record_and_no_faster() -> None:
    pattern = TextPattern("(a+)+b")
    assert_grows_no_faster(lambda length: lambda: pattern.is_in(b"a" * length), 5_000)
