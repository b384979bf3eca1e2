"""The JSON envelope in kcat's form, and read back byte by byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.tools.cluster.encodings import ENCODINGS, Encoding
from pykbroker.tools.cluster.json_records import BadInput, JsonFormat, NewRecord, as_json, from_json
from pykbroker.tools.cluster.record_format import Shown
from tests.tools.cluster.records import Read, records


def test_it_is_what_kcat_writes() -> None:
    """Except kcat's `broker`, which kafka-python does not provide."""
    headers = [("a", b"1"), ("b", b""), ("c", None), ("a", b"2")]
    written = as_json(Read(key=b"k2", value=b"", headers=headers, timestamp=1795441420108), Shown())
    assert written == (
        '{"topic":"t","partition":0,"offset":0,"tstype":"create","ts":1795441420108,'
        '"headers":["a","1","b","","c",null,"a","2"],"key":"k2","payload":""}'
    )
    written = as_json(Read(key=None, value='\x01"\\é\x1b'.encode(), timestamp_type=1), Shown())
    assert written.endswith(r'"tstype":"logappend","ts":1700000000000,"key":null,"payload":"\u0001\"\\é\u001b"}')
    assert '"tstype":"unknown"' in as_json(Read(timestamp=-1), Shown())


def test_bytes_that_are_no_text_say_how_they_are_written() -> None:
    told = json.loads(as_json(Read(key=b"\xff", value=b"ok", headers=[("a", b"\0"), ("b", b"\xfe")]), Shown()))
    assert (told["key"], told["key_encoding"]) == ("/w==", "base64")
    assert (told["payload"], told.get("payload_encoding")) == ("ok", None)
    assert (told["headers"], told["headers_encoding"]) == (["a", "AA==", "b", "/g=="], "base64")
    told = json.loads(as_json(Read(key=b"ok", value=None), Shown(key="hex", value="hex")))
    assert (told["key"], told["key_encoding"], told["payload"]) == ("6f6b", "hex", None)
    assert "payload_encoding" not in told


@pytest.mark.slow
@given(records, st.sampled_from(ENCODINGS), st.sampled_from(ENCODINGS))
def test_what_is_written_is_read_back(record: Read, key: Encoding, value: Encoding) -> None:
    line = JsonFormat(Shown(key, value)).written(record)
    assert line.count(b"\n") == 1
    has_time = record.timestamp >= 0 and record.timestamp_type is not None
    assert from_json(line) == NewRecord(
        record.key, record.value, record.headers, record.partition, record.timestamp if has_time else None
    )


def test_what_is_left_out_is_left_to_the_producer() -> None:
    assert from_json(b'{"payload":"v"}') == NewRecord(None, b"v")
    assert from_json(b'{"payload":null,"key":"k","topic":7,"broker":1}') == NewRecord(b"k", None)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'{"key": 7, "payload": {"id": 1, "name": "\xc3\xa9"}}', NewRecord(b"7", '{"id":1,"name":"é"}'.encode())),
        (b'{"value": [1, true, null]}', NewRecord(None, b"[1,true,null]")),
        (b'{"value": null, "key": {"a": 1}}', NewRecord(b'{"a":1}', None)),
        (b'{"value": "YQ==", "payload_encoding": "base64"}', NewRecord(None, b"a")),
        (b'{"value": "", "headers": {"a": "b", "c": null, "d": 1}}',
         NewRecord(None, b"", [("a", b"b"), ("c", None), ("d", b"1")])),
        (b'{"value": "", "headers": {"a": ["b", "c"], "d": {"e": 1}}}',
         NewRecord(None, b"", [("a", b"b"), ("a", b"c"), ("d", b'{"e":1}')])),
        (b'{"value": "", "headers": [["a", "b"], ["a", 1]]}', NewRecord(None, b"", [("a", b"b"), ("a", b"1")])),
        (b'{"value": "", "headers": ["a", 1]}', NewRecord(None, b"", [("a", b"1")])),
        (b'{"value": "", "headers": {}}', NewRecord(None, b"")),
        (b'{"value": "", "timestamp": "1970-01-01T00:00:01Z"}', NewRecord(None, b"", timestamp_ms=1000)),
        (b'{"value": "", "ts": "-1s"}', NewRecord(None, b"", timestamp_ms=9000)),
    ],
)  # fmt: skip
def test_json_as_people_write_it(line: bytes, record: NewRecord) -> None:
    assert from_json(line, now_ms=10_000) == record


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"7", "not a JSON object"),
        (b"{}", 'no "payload"'),
        (b'{"payload":"\\ud800"}', '"payload": '),
        (b'{"payload":"xx","payload_encoding":"hex"}', '"payload": not hex'),
        (b'{"payload":"xx","payload_encoding":"rot13"}', '"payload_encoding" is none of text, hex, base64'),
        (b'{"payload":"","partition":-1}', '"partition" is not a whole number'),
        (b'{"payload":"","partition":true}', '"partition" is not a whole number'),
        (b'{"payload":"","partition":1.5}', '"partition" is not a whole number'),
        (b'{"payload":"","ts":"soon"}', "\"ts\": 'soon' is no time"),
        (b'{"payload":"","ts":1,"timestamp":1}', '"ts" and "timestamp" are the same field'),
        (b'{"payload":"","value":""}', '"payload" and "value" are the same field'),
        (b'{"payload":7,"payload_encoding":"hex"}', '"payload" is no string in hex'),
        (b'{"payload":NaN}', '"payload": '),
        (b'{"payload":"","headers":[["a",1],["b"]]}', "a name is no string"),
        (b'{"payload":"","ts":99999999999999999999}', '"ts" is not a whole number'),
        (b'{"payload":"","headers":"a"}', '"headers" is neither an object, nor a list of pairs'),
        (b'{"payload":"","headers":["a"]}', '"headers" is neither an object, nor a list of pairs'),
        (b'{"payload":"","headers":[1,"a"]}', "a name is no string"),
        (b'{"payload":"","headers":["\\ud800",null]}', '"headers": '),
    ],
)
def test_what_is_no_record(line: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        from_json(line)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner)))
def test_any_json_in_any_field_is_a_record_or_refused(value: object) -> None:
    for name in ("key", "payload", "headers", "partition", "ts", "tstype", "key_encoding", "headers_encoding"):
        told = {"payload": "v", name: value}
        try:
            found = from_json(json.dumps(told).encode())
        except BadInput:
            continue
        assert isinstance(found, NewRecord)
