"""Lines as records: separators, nulls, headers, and the errors of a line that cannot be read."""

from __future__ import annotations

import pytest

from pykbroker.tools.kafka.message_lines import BadLine, LineReader, LineRecord


def read(line: str, **properties: str) -> LineRecord:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    (record,) = LineReader(named).records([line])
    return record


def test_a_plain_line_is_a_value() -> None:
    assert read("a\tb") == LineRecord(None, b"a\tb")
    assert read("") == LineRecord(None, b"")
    assert read("❄") == LineRecord(None, "❄".encode())


def test_keys() -> None:
    assert read("k\tv\tw", parse_key="true") == LineRecord(b"k", b"v\tw")
    assert read("k::v", parse_key="TRUE", key_separator="::") == LineRecord(b"k", b"v")
    assert read("no key", parse_key="true", ignore_error="true") == LineRecord(None, b"no key")
    with pytest.raises(BadLine, match=r"^No key separator found on line number 1: 'no key'$"):
        read("no key", parse_key="true")


def test_headers() -> None:
    both = {"parse_headers": "true", "parse_key": "true"}
    assert read("a:1,b:\tk\tv", **both) == LineRecord(b"k", b"v", [("a", b"1"), ("b", b"")])
    assert read("a:1:2\tv", parse_headers="true") == LineRecord(None, b"v", [("a", b"1:2")])
    assert read("a\tv", parse_headers="true", ignore_error="true") == LineRecord(None, b"v", [("a", None)])
    with pytest.raises(BadLine, match=r"^No header key separator found in pair 'a' on line number 1$"):
        read("a\tv", parse_headers="true")
    with pytest.raises(BadLine, match=r"^No headers delimiter found on line number 1: 'v'$"):
        read("v", parse_headers="true")


def test_nulls() -> None:
    marked = {"parse_headers": "true", "parse_key": "true", "null_marker": "N"}
    assert read("N\tN\tN", **marked) == LineRecord(None, None)
    assert read("a:N\tk\tv", **marked) == LineRecord(b"k", b"v", [("a", None)])
    with pytest.raises(BadLine, match="Header keys should not be equal to the null marker 'N'"):
        read("N:1\tk\tv", **marked)


def test_the_number_of_a_line() -> None:
    with pytest.raises(BadLine, match="line number 3: 'z'"):
        list(LineReader({"parse.key": "true"}).records(["a\tb", "c\td", "z"]))


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        ({"headers.delimiter": ":"}, "headers.delimiter and headers.key.separator may not be equal"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator may not be equal"),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
    ],
)
def test_separators_that_are_the_same(properties: dict[str, str], words: str) -> None:
    with pytest.raises(BadLine) as caught:
        LineReader(properties)
    assert str(caught.value) == words
