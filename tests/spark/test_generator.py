"""The generator: the same each time, and with everything in it that the pipeline has to cope with."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example.expected import Expected, compute, judge
from example.generator import CLOSING_USER, Workload, closing_time_ms, generate
from example.records import Record, encode_order

WORKLOAD = Workload(users=150)


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return generate(WORKLOAD)


@pytest.fixture(scope="module")
def answer(records: list[Record]) -> Expected:
    return compute(records, WORKLOAD.times)


@pytest.mark.slow
def test_a_seed_is_a_day(records: list[Record]) -> None:
    assert generate(WORKLOAD) == records
    assert generate(replace(WORKLOAD, seed=2)) != records


def test_records_arrive_in_order_and_a_user_has_one_partition(records: list[Record]) -> None:
    arrivals = [record.arrival_ms for record in records]
    assert arrivals == sorted(arrivals)
    places = {(record.key, record.partition) for record in records if record.key is not None}
    assert len(places) == len(dict(places))
    assert {partition for _, partition in places} == set(range(WORKLOAD.partitions))


def test_everything_happens_that_has_a_name(answer: Expected) -> None:
    assert {reason.partition(" ")[0] for reason in answer.by_reason} == {
        "no-schema-version",
        "unknown-schema-version",
        "wrong-content-type",
        "malformed",
        "missing-field",
        "bad-value",
        "from-the-future",
        "too-late",
    }
    assert {(record.topic, answer.reasons[record]) for record in answer.dead} >= {
        (topic, reason)
        for topic in ("clicks", "orders")
        for reason in ("malformed", "too-late", "no-schema-version", "unknown-schema-version", "from-the-future")
    }
    assert answer.duplicates > 30
    events = answer.events.values()
    assert {event.event_type for event in events} == {"view", "cart", "order"}
    assert {event.country is None for event in events} == {True, False}
    assert len({event.date for event in events}) == 2
    assert {conversion.click_id is None for conversion in answer.conversions} == {True, False}
    credited = Counter(conversion.order_id for conversion in answer.conversions)
    assert max(credited.values()) > 1
    assert max(session.events for session in answer.sessions) > 5


def test_late_events_within_what_is_allowed_are_late_by_minutes(records: list[Record], answer: Expected) -> None:
    dead = set(answer.dead)
    newest_ms = late = 0
    for record in records[:-6]:
        if record not in dead:
            time_ms = judge(record, WORKLOAD.times).time_ms
            late += time_ms < newest_ms - 60_000
            newest_ms = max(newest_ms, time_ms)
    assert late > 50


def test_the_closing_records_close_everything_before_them(records: list[Record]) -> None:
    closing = [record for record in records if record.key == CLOSING_USER.encode()]
    assert closing == records[-6:]
    last_ms = records[-7].arrival_ms
    for step in range(3):
        last_ms = closing_time_ms(WORKLOAD.times, last_ms)
        assert [(r.topic, r.arrival_ms) for r in closing[2 * step : 2 * step + 2]] == [
            ("clicks", last_ms),
            ("orders", last_ms),
        ]


@given(
    event_id=st.text(min_size=1, max_size=40),
    user=st.text(min_size=1, max_size=200),
    cents=st.integers(0, 2**62),
    time_ms=st.integers(0, 2**41),
    version=st.sampled_from([1, 2]),
)
def test_an_order_is_read_as_it_was_written(event_id: str, user: str, cents: int, time_ms: int, version: int) -> None:
    fields: dict[str, str | int | None] = {"event_id": event_id, "user": user, "product": "p"}
    fields |= {"amount_cents": cents, "time_ms": time_ms}
    fields["country"] = "DE"
    headers = (("schema-version", b"%d" % version),)
    record = Record(time_ms, "orders", 0, b"key", encode_order(fields, version), headers)
    found = compute([record], WORKLOAD.times).events[event_id]
    assert (found.event_id, found.user, found.time_ms) == (event_id, user, time_ms)
    assert found.amount is not None
    assert (int(found.amount * 100), found.country) == (cents, "DE" if version == 2 else None)
