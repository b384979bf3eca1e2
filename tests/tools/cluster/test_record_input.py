"""Blocks of bytes as records to send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.cluster.json_records import BadInput, NewRecord
from pykbroker.tools.cluster.record_input import JsonRecords, RecordMaker, Template, Written, header_of, pieces

small = st.binary(min_size=1, max_size=3).map(lambda data: bytes(byte % 3 for byte in data))


@pytest.mark.slow
@given(st.lists(small | st.just(b""), max_size=30), small)
def test_pieces_do_not_depend_on_the_blocks(blocks: list[bytes], delimiter: bytes) -> None:
    expected = b"".join(blocks).split(delimiter)
    if not expected[-1]:
        expected.pop()
    assert list(pieces(blocks, delimiter)) == expected


def test_behind_the_last_delimiter_is_no_record() -> None:
    assert list(pieces([b"a\n\nb\n"], b"\n")) == [b"a", b"", b"b"]
    assert list(pieces([b"\n"], b"\n")) == [b""]
    assert list(pieces([], b"\n")) == []


def test_lines_as_kcat_reads_them() -> None:
    lines = RecordMaker(Written(key_delimiter=b"|"), Template(key=b"fixed"))
    found = [lines.record(line) for line in (b"k1|one", b"|", b"x||y", b"last")]
    assert [(one.key, one.value) for one in found] == [(b"k1", b"one"), (b"", b""), (b"x", b"|y"), (b"fixed", b"last")]
    assert RecordMaker(Written(), Template()).record(b"a|b") == NewRecord(None, b"a|b")


def test_empty_is_null_where_it_is_asked_for() -> None:
    lines = RecordMaker(Written(key_delimiter=b"|", empty_is_null=True), Template(key=b"fixed"))
    found = [lines.record(line) for line in (b"k2|", b"|three", b"", b"|")]
    assert [(one.key, one.value) for one in found] == [(b"k2", None), (None, b"three"), (b"fixed", None), (None, None)]


def test_the_template_is_in_every_record() -> None:
    template = Template(headers=[("a", b"1")], partition=3, timestamp_ms=77)
    lines = RecordMaker(Written(), template)
    assert lines.record(b"v") == NewRecord(None, b"v", [("a", b"1")], 3, 77)
    assert lines.whole(b"a\nb\n") == NewRecord(None, b"a\nb\n", [("a", b"1")], 3, 77)
    assert lines.record(b"v").headers is not template.headers


def test_what_json_says_counts_but_for_options_that_are_given() -> None:
    line = b'{"key":null,"payload":"v","partition":2,"ts":5,"headers":["x","y"]}'
    assert JsonRecords(Template()).record(line) == NewRecord(None, b"v", [("x", b"y")], 2, 5)
    template = Template(key=b"k", headers=[("a", None)], partition=3, timestamp_ms=77)
    assert JsonRecords(template).record(line) == NewRecord(b"k", b"v", [("x", b"y"), ("a", None)], 3, 77)
    assert JsonRecords(Template(any_partition=True)).record(line).partition is None


def test_encodings_are_read() -> None:
    lines = RecordMaker(Written(key_delimiter=b":", key="hex", value="base64"), Template())
    assert lines.record(b"ff00:AAE=") == NewRecord(b"\xff\0", b"\0\1")
    for line, said in ((b"f:AAE=", "the key is not hex"), (b"ff:A", "the value is not base64")):
        with pytest.raises(BadInput, match=said):
            lines.record(line)


def test_headers_of_options() -> None:
    assert [header_of(text) for text in ("a=1", "b=", "d=e=f")] == [("a", b"1"), ("b", b""), ("d", b"e=f")]
    for text in ("=x", "c", ""):
        with pytest.raises(ValueError, match="is not NAME=VALUE"):
            header_of(text)
