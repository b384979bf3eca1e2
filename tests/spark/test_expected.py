"""The plain-Python answer, on cases small enough to be answered by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from example.expected import Conversion, Event, Session, Window, compute
from example.generator import CLOSING_USER
from example.records import Record, Times, encode_click, encode_order

TIMES = Times(allowed_lateness_s=900, max_skew_s=60, window_s=600, session_gap_s=1800, attribution_s=3600)
MINUTE = 60_000
#: 2025-03-29 23:50 UTC, the beginning of a window.
NOON = 1_743_292_200_000


def click(minute: float, event_id: str, kind: str = "view", *, user: str = "ann", product: str = "cup") -> Record:
    time_ms = NOON + int(minute * MINUTE)
    fields: dict[str, str | int | None] = {"event_id": event_id, "type": kind, "user": user, "product": product}
    fields |= {"time_ms": time_ms, "country": "DE"}
    return Record(time_ms, "clicks", 0, user.encode(), encode_click(fields), (("schema-version", b"2"),))


def order(minute: float, event_id: str, cents: int = 1050, *, user: str = "ann", product: str = "cup") -> Record:
    time_ms = NOON + int(minute * MINUTE)
    fields: dict[str, str | int | None] = {"event_id": event_id, "user": user, "product": product}
    fields |= {"amount_cents": cents, "time_ms": time_ms}
    return Record(time_ms, "orders", 0, user.encode(), encode_order(fields, 1), (("schema-version", b"1"),))


def reason(record: Record) -> str:
    return compute([record], TIMES).reasons[record]


def test_an_event_is_in_the_lake_once_with_all_its_fields() -> None:
    view, bought = click(0, "v1"), order(11, "o1")
    found = compute([view, bought, replace(view, arrival_ms=view.arrival_ms + 5)], TIMES)
    assert found.events == {
        "v1": Event("v1", "view", "ann", "cup", "DE", None, NOON, "clicks"),
        "o1": Event("o1", "order", "ann", "cup", None, Decimal("10.50"), NOON + 11 * MINUTE, "orders"),
    }
    assert [event.date for event in found.events.values()] == ["2025-03-29", "2025-03-30"]
    assert (found.records, found.duplicates, found.dead) == (3, 1, [])


def test_what_closes_is_not_counted() -> None:
    found = compute([click(0, "x", user=CLOSING_USER), click(0, "v1")], TIMES)
    assert (list(found.events), len(found.windows), found.records) == (["v1"], 1, 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"headers": ()}, "no-schema-version"),
        ({"headers": (("schema-version", b"7"),)}, "unknown-schema-version"),
        ({"headers": (("schema-version", b"7"),), "value": b"{"}, "unknown-schema-version"),
        ({"value": b'{"event_id":'}, "malformed"),
        ({"headers": (("schema-version", b"2"), ("content-type", b"text/html"))}, "wrong-content-type"),
        ({"value": None}, "malformed"),
        ({"value": b"[]"}, "malformed"),
        ({"value": b"{}"}, "missing-field event_id"),
        ({"value": b'{"event_id":"a","type":"view","user":null,"product":"p","time_ms":1}'}, "missing-field user"),
        ({"value": click(0, "v", "hover").value}, "bad-value type"),
        (
            {"value": b'{"event_id":"a","type":"view","user":"u","product":5,"time_ms":1,"country":""}'},
            "bad-value product",
        ),
        ({"arrival_ms": NOON - 60_001}, "from-the-future"),
        ({"arrival_ms": NOON + 900_001}, "too-late"),
    ],
)
def test_the_first_reason_that_applies(changes: Mapping[str, object], expected: str) -> None:
    assert reason(replace(click(0, "v1"), **changes)) == expected  # type: ignore[arg-type]


def test_lateness_and_skew_are_allowed_to_the_millisecond() -> None:
    for arrival_ms in (NOON - 60_000, NOON + 900_000):
        assert not compute([replace(click(0, "v1"), arrival_ms=arrival_ms)], TIMES).dead


def test_bytes_that_are_no_order() -> None:
    whole = order(0, "o1").value or b""
    for value in (b"", None, whole[:1], whole[:-1], whole + b"!"):
        assert reason(replace(order(0, "o1"), value=value)) == "malformed"
    assert reason(order(0, "o1", -5)) == "bad-value amount_cents"


def test_windows_are_by_type_and_country() -> None:
    found = compute([click(0, "v1"), click(9.9, "v2"), click(10, "v3"), order(1, "o1"), order(2, "o2", 5)], TIMES)
    assert found.windows == {
        Window(NOON, "view", "DE", 2, None),
        Window(NOON + 10 * MINUTE, "view", "DE", 1, None),
        Window(NOON, "order", None, 2, Decimal("10.55")),
    }


def test_a_session_ends_with_a_gap_and_knows_no_midnight() -> None:
    found = compute(
        [click(0, "v1"), order(29, "o1"), click(58, "v2"), click(90, "v3"), click(1, "b", user="bob")], TIMES
    )
    assert found.sessions == {
        Session("ann", NOON, NOON + 88 * MINUTE, 3, Decimal("10.50")),
        Session("ann", NOON + 90 * MINUTE, NOON + 120 * MINUTE, 1, None),
        Session("bob", NOON + MINUTE, NOON + 31 * MINUTE, 1, None),
    }


def test_an_order_is_credited_to_the_clicks_of_the_hour_before() -> None:
    clicks = [click(-61, "early"), click(-59, "v1"), click(-1, "c1", "cart"), click(1, "after")]
    others = [click(-1, "other", product="pot"), click(-1, "bobs", user="bob")]
    found = compute([*clicks, *others, order(0, "o1"), order(0, "o2", user="eve")], TIMES)
    assert found.conversions == {Conversion("o1", "v1"), Conversion("o1", "c1"), Conversion("o2", None)}
