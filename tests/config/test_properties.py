"""The .properties format. compat_tests/differential/test_config_checks.py compares it with Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config import properties
from pykbroker.config.kinds import ConfigError
from pykbroker.config.properties import parse, parse_bytes

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@pytest.mark.slow
@given(st.dictionaries(TEXT, TEXT, max_size=6), st.text(max_size=20))
def test_what_is_written_reads_back(pairs: dict[str, str], comment: str) -> None:
    written = properties.format(pairs, comment)
    assert written.isascii()
    assert parse(written) == pairs
    assert parse_bytes(written.encode()) == pairs


@given(st.text())
def test_any_text_is_pairs_or_an_error(text: str) -> None:
    try:
        pairs = parse(text)
    except ConfigError:
        return
    assert parse(properties.format(pairs)) == pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a \t = \f 1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("# a=1\n  ! b=2\nc=3", {"c": "3"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("# goes on \\\na=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\r\n   3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\n2", {"a": "1\\2"}),
        ("a=1\ra=2\r\nb=3", {"a": "2", "b": "3"}),
        (r"a\ b\=c\:d=1", {"a b=c:d": "1"}),
        (r"a=\t\n\r\f\\\x", {"a": "\t\n\r\f\\x"}),
        (r"a=\u00e9\uD83D\uDE00", {"a": "é😀"}),
        ("=1", {"": "1"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_the_format(text: str, pairs: dict[str, str]) -> None:
    assert parse(text) == pairs


@pytest.mark.parametrize("text", [r"a=\u12", r"\uxyzw=1", "x=1\ny=\\u"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"Line {len(text.splitlines())} "):
        parse(text)


def test_bytes_that_are_not_utf8_are_latin1() -> None:
    assert parse_bytes("a=é".encode("latin-1")) == {"a": "é"}
    assert parse_bytes(b"\xef\xbb\xbfa=1") == {"a": "1"}
