"""Format strings, compared with the output of kcat 1.7.1 for the same record."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.cluster.encodings import ENCODINGS, Encoding, decoded, encoded
from pykbroker.tools.cluster.escapes import unescaped
from pykbroker.tools.cluster.record_format import DelimitedFormat, FormatString, Shown
from tests.tools.cluster.records import Read, records

PLAIN = Shown()


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t|%p|%o|%T|%k|%K|%s|%S\n", b"t|3|7|1700000000000|k1|2|one|3\n"),
        ("%h", b"a=1,b=,c=NULL,a=2"),
        ("%R", b"\0\0\0\3"),
        ("100%%", b"100%"),
        (r"\q\\\a", b"q\\a"),
        (r"\x41\x4\xg", b"A\x04xg"),
        (r"\101\0\255", b"e\x00\xff"),
        ("a\\rb\\tc\\", b"a\rb\tc\\"),
        (r"\%s\\%s", b"%s\\one"),
        ("é%s", b"\xc3\xa9one"),
        ("", b""),
    ],
)
def test_tokens_and_escapes(text: str, printed: bytes) -> None:
    headers = [("a", b"1"), ("b", b""), ("c", None), ("a", b"2")]
    record = Read(partition=3, offset=7, key=b"k1", value=b"one", headers=headers)
    assert FormatString(text, PLAIN).written(record) == printed


def test_nulls_are_nothing_or_what_is_asked_for() -> None:
    record = Read(key=None, value=None)
    assert FormatString("%k|%s|%K|%S|%R", PLAIN).written(record) == b"||-1|-1|\xff\xff\xff\xff"
    assert FormatString("%k|%s", Shown(null=b"NULL")).written(record) == b"NULL|NULL"


def test_keys_and_values_in_an_encoding() -> None:
    shown = Shown(key="hex", value="base64")
    assert FormatString("%k %s %S", shown).written(Read(key=b"\xff", value=b"\0\1")) == b"ff AAE= 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [("%z", "%z is no token"), ("x%5s", "%5 is no token"), ("50%", "a % stands at the end"), (r"\256", "no byte")],
)
def test_what_is_no_format(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("\\", ".")):
        FormatString(text, PLAIN)


def test_delimiters() -> None:
    record = Read(key=b"k", value=b"v")
    assert DelimitedFormat(b"\n", None, PLAIN).written(record) == b"v\n"
    assert DelimitedFormat(b"ab", b"::", PLAIN).written(record) == b"k::vab"
    assert DelimitedFormat(b"\0", b":", PLAIN).written(Read(key=None, value=None)) == b":\0"


def escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


@given(st.binary(max_size=30))
def test_any_bytes_can_be_written_as_escapes(data: bytes) -> None:
    assert unescaped(escaped(data)) == data
    assert FormatString(escaped(data), PLAIN).written(Read()) == data


@pytest.mark.slow
@given(records, st.lists(st.sampled_from(list("sSRkKTtpoh%")), max_size=6), st.binary(max_size=3))
def test_a_format_is_its_tokens_with_what_stands_between(record: Read, tokens: list[str], between: bytes) -> None:
    text = escaped(between).join(f"%{token}" for token in tokens)
    sizes = {"S": record.value, "K": record.key}
    headers = b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)
    expected = {
        "s": record.value or b"",
        "k": record.key or b"",
        "R": struct.pack(">i", -1 if record.value is None else len(record.value)),
        "T": str(record.timestamp).encode(),
        "t": record.topic.encode(),
        "p": str(record.partition).encode(),
        "o": str(record.offset).encode(),
        "h": headers,
        "%": b"%",
        **{name: str(-1 if data is None else len(data)).encode() for name, data in sizes.items()},
    }
    assert FormatString(text, PLAIN).written(record) == between.join(expected[token] for token in tokens)


@given(st.binary(max_size=30), st.sampled_from(ENCODINGS))
def test_an_encoding_is_read_as_it_is_written(data: bytes, encoding: Encoding) -> None:
    assert decoded(encoded(data, encoding), encoding) == data


@pytest.mark.parametrize(("text", "encoding"), [(b"0", "hex"), (b"xx", "hex"), (b"A", "base64"), (b"A\n==", "base64")])
def test_what_is_no_encoding(text: bytes, encoding: Encoding) -> None:
    with pytest.raises(ValueError, match=f"not {encoding}"):
        decoded(text, encoding)
