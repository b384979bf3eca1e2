"""Every reason why a record is no event, and bytes that are nearly an event. Each row gets its own verdict, and no row
disturbs another."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from compat_tests.spark.pipeline.raw import (
    NOW_MS,
    Raw,
    avro,
    click,
    clicked,
    configured,
    frame,
    headers,
    order,
    ordered,
    varint,
)
from pipeline import transforms
from pipeline.schemas import EVENT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.slow

CONFIG = configured(times={"allowed_lateness_s": 3600, "max_skew_s": 60})
GOOD_CLICK = click().value or b""
GOOD_ORDER = order().value or b""
MALFORMED_CLICK = "malformed: the value is not one JSON object"
MALFORMED_ORDER = "malformed: the value is not one Avro record of version"
CENTS = "bad-value amount_cents: amount_cents is not 0 to 999999999999"
TIME = "bad-value time_ms: time_ms is not milliseconds from 1970 to 9999"
ID = "bad-value event_id: event_id is not 1 to 100 letters, digits and . _ : -"
TEXT = "is not text of 1 to 200 characters"

# The name of the case, the record, and "code: message".
VERDICTS: list[tuple[str, Raw, str | None]] = [
    ("a click", click(), None),
    ("a click of version 2", click("2"), None),
    ("a click of version 1 with a country that its version does not have", click(country=5), None),
    ("a click with fields that nobody knows", click(more={"a": [1, None]}), None),
    ("blanks around it", clicked(b" \n" + GOOD_CLICK + b"\t "), None),
    ("an order", order(), None),
    ("an order of version 2", order("2"), None),
    ("an order for nothing", order(amount_cents=0), None),
    ("the largest amount", order(amount_cents=999_999_999_999), None),
    ("no content type", Raw(GOOD_CLICK, (("schema-version", b"1"),)), None),
    ("the last header counts", Raw(GOOD_CLICK, (("schema-version", b"9"), *headers("clicks", "1"))), None),
    ("as far ahead as a clock may be", click(time_ms=NOW_MS + 60_000), None),
    ("as late as it may be", click(time_ms=NOW_MS - 3_600_000), None),
    # Headers.
    ("no headers", Raw(GOOD_CLICK, None), "no-schema-version: the record has no header schema-version"),
    (
        "a header without a value",
        Raw(GOOD_CLICK, (("schema-version", None),)),
        "no-schema-version: the record has no header schema-version",
    ),
    (
        "a version of the future",
        Raw(GOOD_CLICK, headers("clicks", "3")),
        "unknown-schema-version: the header schema-version is '3'; versions of clicks: 1, 2",
    ),
    (
        "a version that is long and no text",
        Raw(GOOD_ORDER, (("schema-version", b"\xff" * 500),), "orders"),
        f"unknown-schema-version: the header schema-version is '{chr(0xFFFD) * 40}'; versions of orders: 1, 2",
    ),
    (
        "JSON among the orders",
        Raw(GOOD_CLICK, headers("clicks", "1"), "orders"),
        "wrong-content-type: the header content-type is 'application/json'; records of orders are avro/binary",
    ),
    # No value at all.
    ("a tombstone", clicked(None), "malformed: the record has no value"),
    ("an empty value", clicked(b""), "malformed: the value is empty"),
    ("a tombstone of an order", ordered(None), "malformed: the record has no value"),
    ("an empty order", ordered(b""), "malformed: the value is empty"),
    # JSON.
    ("blanks", clicked(b"   "), MALFORMED_CLICK),
    ("cut off", clicked(GOOD_CLICK[:-1]), MALFORMED_CLICK),
    ("two of them", clicked(GOOD_CLICK + b"\n" + GOOD_CLICK), MALFORMED_CLICK),
    ("two of them, with a comma", clicked(GOOD_CLICK + b"," + GOOD_CLICK), MALFORMED_CLICK),
    ("a brace too many", clicked(GOOD_CLICK + b"}"), MALFORMED_CLICK),
    ("a bracket and garbage behind it", clicked(GOOD_CLICK + b"]garbage"), MALFORMED_CLICK),
    ("a field behind the object", clicked(GOOD_CLICK + b',"a":1'), MALFORMED_CLICK),
    ("a list of one", clicked(b"[" + GOOD_CLICK + b"]"), MALFORMED_CLICK),
    ("text", clicked(b'"' + b"a" * 10 + b'"'), MALFORMED_CLICK),
    ("null", clicked(b"null"), MALFORMED_CLICK),
    ("a number", clicked(b"7"), MALFORMED_CLICK),
    ("an Avro order", clicked(GOOD_ORDER), "malformed: the value is not UTF-8"),
    ("single quotes", clicked(GOOD_CLICK.replace(b'"', b"'")), MALFORMED_CLICK),
    ("not a number", clicked(GOOD_CLICK.replace(b"%d" % NOW_MS, b"NaN")), MALFORMED_CLICK),
    ("a comment", clicked(GOOD_CLICK + b"/* */"), MALFORMED_CLICK),
    ("a byte order mark", clicked(b"\xef\xbb\xbf" + GOOD_CLICK), MALFORMED_CLICK),
    ("nested a hundred thousand times", clicked(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), MALFORMED_CLICK),
    ("a number of a million digits", clicked(b'{"time_ms":' + b"9" * 1_000_000 + b"}"), MALFORMED_CLICK),
    (
        "not UTF-8",
        clicked(GOOD_CLICK.replace(rb"\u00fc", b"\xfc")),
        "malformed: the value is not UTF-8",
    ),
    ("UTF-16", clicked(GOOD_CLICK.decode().encode("utf-16")), "malformed: the value is not UTF-8"),
    ("an empty object", clicked(b"{}"), "missing-field event_id: event_id is missing or null"),
    ("a null", click(user=None), "missing-field user: user is missing or null"),
    ("version 1 called 2", clicked(GOOD_CLICK, "2"), "missing-field country: country is missing or null"),
    ("missing goes before bad", click(event_id=5, user=None), "missing-field user: user is missing or null"),
    ("a number as text", click(time_ms=str(NOW_MS)), TIME),
    ("a fraction", click(time_ms=NOW_MS + 0.5), TIME),
    ("a number with an exponent", clicked(GOOD_CLICK.replace(b"%d" % NOW_MS, b"17e11")), TIME),
    ("a number larger than a long", click(time_ms=10**30), TIME),
    ("a number larger than a double", clicked(GOOD_CLICK.replace(b"%d" % NOW_MS, b"1e999")), TIME),
    ("a time that no timestamp has", click(time_ms=2**62), TIME),
    ("a time before 1970", click(time_ms=-1), TIME),
    ("seconds instead of milliseconds", click(time_ms=NOW_MS // 1000), "too-late: "),
    ("text as a number", click(event_id=5), ID),
    ("text as an object", click(event_id={"a": "e-1"}), ID),
    ("true", click(event_id=True), ID),
    ("an empty id", click(event_id=""), ID),
    ("an id with a line feed at its end", click(event_id="e-1\n"), ID),
    ("an id with a slash", click(event_id="a/b"), ID),
    ("an id of 101 characters", click(event_id="e" * 101), ID),
    ("an empty user", click(user=""), f"bad-value user: user {TEXT}"),
    ("a zero byte", click(user="a\0b"), f"bad-value user: user {TEXT}"),
    ("a user of 201 characters", click(user="ü" * 201), f"bad-value user: user {TEXT}"),
    ("a product that was not UTF-8 once", click(product="\ufffd"), f"bad-value product: product {TEXT}"),
    ("a type that nobody knows", click(type="order"), "bad-value type: type is not view or cart"),
    ("a country in small letters", click("2", country="de"), "bad-value country: country is not two capital letters"),
    # Avro.
    ("version 2 called 1", ordered(order("2").value), f"{MALFORMED_ORDER} 1"),
    ("version 1 called 2", ordered(GOOD_ORDER, "2"), f"{MALFORMED_ORDER} 2"),
    ("JSON", ordered(GOOD_CLICK), f"{MALFORMED_ORDER} 1"),
    ("cut off", ordered(GOOD_ORDER[:-1]), f"{MALFORMED_ORDER} 1"),
    ("a byte too many", ordered(GOOD_ORDER + b"\0"), f"{MALFORMED_ORDER} 1"),
    ("a text of two gigabytes", ordered(varint(2**31 - 1)), f"{MALFORMED_ORDER} 1"),
    ("a text longer than an int", ordered(varint(2**40)), f"{MALFORMED_ORDER} 1"),
    ("a text of negative length", ordered(varint(-1) + GOOD_ORDER), f"{MALFORMED_ORDER} 1"),
    ("a varint without end", ordered(b"\xff" * 40), f"{MALFORMED_ORDER} 1"),
    ("a length in more bytes than it needs", ordered(b"\x86\0e-1" + GOOD_ORDER[4:]), f"{MALFORMED_ORDER} 1"),
    ("a schema registry's envelope", ordered(b"\0\0\0\0\1" + GOOD_ORDER), f"{MALFORMED_ORDER} 1"),
    ("zeros, which decode", ordered(bytes(5)), ID),
    ("text that is not UTF-8", ordered(avro("e-1", b"\xfc", "p", 1, NOW_MS)), f"bad-value user: user {TEXT}"),
    ("a time that no timestamp has", order(time_ms=2**62), f"{MALFORMED_ORDER} 1"),
    ("a time beyond what text can say", order(time_ms=2**53), TIME),
    ("a negative amount", order(amount_cents=-1), CENTS),
    ("an amount that is too large", order(amount_cents=10**12), CENTS),
    # Times.
    (
        "the future",
        click(time_ms=NOW_MS + 60_001),
        "from-the-future: it happened 60.001 s after its Kafka timestamp, more than 60 s",
    ),
    (
        "too late",
        order(time_ms=NOW_MS - 3_600_001),
        "too-late: it happened 3600.001 s before its Kafka timestamp, more than 3600 s",
    ),
]


@pytest.fixture(scope="module")
def parsed(spark: SparkSession) -> list[Row]:
    rows = transforms.parse(frame(spark, [record for _, record, _ in VERDICTS]), CONFIG).collect()
    return sorted(rows, key=lambda row: row.offset)


def test_each_record_has_its_verdict(parsed: list[Row]) -> None:
    assert len(parsed) == len(VERDICTS), "no row is lost"
    wrong = []
    for row, (what, record, verdict) in zip(parsed, VERDICTS, strict=True):
        found = None if row.problem is None else f"{row.problem.code}: {row.problem.message}"
        if found != verdict and not (verdict and verdict.endswith(": ") and (found or "").startswith(verdict)):
            wrong.append((record.topic, what, found))
    assert wrong == []


def test_an_event_in_the_normal_form(parsed: list[Row]) -> None:
    by_name = {what: row for row, (what, _, _) in zip(parsed, VERDICTS, strict=True)}
    moment = datetime.fromtimestamp(NOW_MS / 1000, UTC).timestamp()
    for what, kind, country, amount in (
        ("a click", "view", None, None),
        ("a click of version 2", "view", "DE", None),
        ("a click of version 1 with a country that its version does not have", "view", None, None),
        ("an order", "order", None, Decimal("12.34")),
        ("an order of version 2", "order", "DE", Decimal("12.34")),
        ("the largest amount", "order", None, Decimal("9999999999.99")),
    ):
        row = by_name[what]
        found = (row.event_id, row.event_type, row.user_id, row.product, row.country, row.amount)
        assert found == ("e-1", kind, "ümit", "p 7", country, amount), what
        assert row.event_time.timestamp() == moment
        source = row.source
        assert (source.topic, source.partition, source.offset) == (row.topic, 3, row.offset)
        assert (source.key, source.headers, source.timestamp) == (row.key, row.headers, row.timestamp)


def test_valid_rows_and_dead_letters_are_all_rows(spark: SparkSession, parsed: list[Row]) -> None:
    again = transforms.parse(frame(spark, [record for _, record, _ in VERDICTS]), CONFIG).persist()
    events, letters = transforms.valid(again), transforms.dead_letters(again).collect()
    assert events.columns == list(EVENT_COLUMNS)
    assert events.count() == sum(verdict is None for _, _, verdict in VERDICTS)
    by_offset = {}
    for letter in letters:
        said = {name: bytes(value) for name, value in letter.headers[-7:] if name.startswith("dlq.")}
        by_offset[int(said["dlq.offset"])] = (letter, said)
    invalid = [row for row in parsed if row.problem is not None]
    assert sorted(by_offset) == [row.offset for row in invalid]
    for row in invalid:
        letter, said = by_offset[row.offset]
        assert (letter.key, letter.value) == (row.key, row.value)
        assert letter.headers[: len(letter.headers) - len(said)] == (row.headers or []), "its own come first"
        expected = {
            "dlq.reason": row.problem.code.encode(),
            "dlq.message": row.problem.message.encode(),
            "dlq.topic": row.topic.encode(),
            "dlq.partition": b"3",
            "dlq.offset": b"%d" % row.offset,
            "dlq.timestamp": b"%d" % NOW_MS,
        }
        if row.event_id is not None:
            expected["dlq.event-id"] = row.event_id.encode()
        assert said == expected
    assert sum("dlq.event-id" in said for _, said in by_offset.values()) > 5
    again.unpersist()
