"""A day in a shop as Kafka records, from a seed, so that the right answer can be computed without the pipeline.

Users come, look at products, put some of them into the cart and order some of those. Apps of two ages write schema
version 1 and 2. Some records come twice, some come late (within the allowed lateness, and beyond it), and some are
broken in every way that the pipeline has a name for. All times are synthetic: an event has the time at which it
happened, a record the time at which it arrived, which becomes its Kafka timestamp.

Pure: the same `Workload` gives the same records on every machine. Not here: sending them (sending.py), and the right
answer (expected.py), which does not use this module's intentions.

The last records (of `CLOSING_USER`) are so far ahead that every window, session and join before them is closed. The
results of these records are left out of comparisons.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from example.records import Fields, Headers, Record, Times, Topic, encode_click, encode_order

CLOSING_USER = "closing"
#: 2025-03-29 18:00 UTC: the day ends within the workload, and the next night in Europe is one hour shorter.
START_MS = 1_743_271_200_000

_COUNTRIES = {"DE": 30, "FR": 22, "NL": 14, "ES": 12, "IT": 10, "PL": 7, "PT": 5}
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000


@dataclass(frozen=True, slots=True)
class Workload:
    """The size and the mix of the generated events. Shares are shares of all events."""

    seed: int = 1
    users: int = 200
    products: int = 40
    start_ms: int = START_MS
    hours: float = 12
    partitions: int = 3
    times: Times = field(default_factory=Times)
    late_share: float = 0.05
    too_late_share: float = 0.02
    duplicate_share: float = 0.04
    broken_share: float = 0.03


@dataclass(frozen=True, slots=True)
class _Event:
    """An action of a user."""

    type: Literal["view", "cart", "order"]
    event_id: str
    user: str
    product: str
    country: str
    time_ms: int
    version: int
    amount_cents: int = 0

    @property
    def topic(self) -> Topic:
        return "orders" if self.type == "order" else "clicks"

    def fields(self) -> dict[str, str | int | None]:
        fields: dict[str, str | int | None] = {"event_id": self.event_id}
        if self.type != "order":
            fields["type"] = self.type
        fields |= {"user": self.user, "product": self.product}
        if self.type == "order":
            fields["amount_cents"] = self.amount_cents
        fields["time_ms"] = self.time_ms
        if self.version >= 2:
            fields["country"] = self.country
        return fields


def generate(workload: Workload) -> list[Record]:
    """Return all records in the order of their arrival, the closing ones last."""
    rng = random.Random(workload.seed)  # noqa: S311  # data of an example
    records: list[Record] = []
    for number in range(workload.users):
        for event in _user(rng, workload, f"user-{number:04d}"):
            records += _arrivals(rng, workload, event)
    records.sort(key=lambda record: (record.arrival_ms, record.value or b""))
    return records + list(_closing(workload, records[-1].arrival_ms if records else workload.start_ms))


# --- what users do ----------------------------------------------------------------------------------------------------


def _user(rng: random.Random, workload: Workload, user: str) -> Iterator[_Event]:
    """Yield all events of one user."""
    country = rng.choices(list(_COUNTRIES), list(_COUNTRIES.values()))[0]
    version = rng.choice([1, 2, 2, 2])
    span_ms = int(workload.hours * _HOUR)
    for _ in range(rng.choice([1, 1, 2, 2, 3, 5])):
        # More visits begin in the middle of the day than at its ends.
        begin_ms = workload.start_ms + int(rng.triangular(0, span_ms, span_ms * 0.6))
        template = _Event("view", "", user, "", country, begin_ms, version)
        yield from _visit(rng, workload, template)


def _visit(rng: random.Random, workload: Workload, event: _Event) -> Iterator[_Event]:
    """Yield the views, carts and orders of a visit; an order may come long after the visit."""
    now_ms = event.time_ms
    interests = [f"product-{rng.randrange(workload.products):03d}" for _ in range(rng.randrange(1, 4))]

    def happens(kind: Literal["view", "cart", "order"], product: str) -> _Event:
        number = int(product.rpartition("-")[2])
        cents = rng.randrange(1, 4) * (499 + 731 * number % 9500) if kind == "order" else 0
        event_id = f"{kind[0]}-{rng.getrandbits(60):015x}"
        return replace(event, type=kind, product=product, time_ms=now_ms, event_id=event_id, amount_cents=cents)

    for _ in range(rng.randrange(1, 9)):
        now_ms += min(int(rng.expovariate(1 / (3 * _MINUTE))), 25 * _MINUTE) + rng.randrange(1, 500)
        product = rng.choice(interests)
        yield happens("view", product)
        if rng.random() < 0.3:
            now_ms += rng.randrange(2 * _SECOND, 2 * _MINUTE)
            yield happens("cart", product)
            if rng.random() < 0.6:
                # Some users wait so long that no click is credited with the order.
                now_ms += rng.choices(
                    [rng.randrange(5 * _SECOND, 10 * _MINUTE), rng.randrange(20 * _MINUTE, 100 * _MINUTE)], [6, 1]
                )[0]
                yield happens("order", product)
    if rng.random() < 0.08:  # by telephone, so the order has no click
        now_ms += rng.randrange(_MINUTE, _HOUR)
        yield happens("order", f"product-{rng.randrange(workload.products):03d}")


# --- how it arrives ---------------------------------------------------------------------------------------------------


def _arrivals(rng: random.Random, workload: Workload, event: _Event) -> Iterator[Record]:
    """Yield the records of an event: usually one, soon after it happened."""
    allowed_ms, skew_ms = workload.times.allowed_lateness_s * 1000, workload.times.max_skew_s * 1000
    chance = rng.random()
    if chance < workload.too_late_share:
        delay_ms = allowed_ms + rng.randrange(_SECOND, 3 * _HOUR)
    elif chance < workload.too_late_share + workload.late_share:
        delay_ms = rng.randrange(min(_MINUTE, allowed_ms // 2), allowed_ms)
    elif rng.random() < 0.01:  # a clock that is a little ahead
        delay_ms = -rng.randrange(1, skew_ms)
    else:
        delay_ms = int(rng.expovariate(1 / 800))
    first = _record(workload, event, event.time_ms + delay_ms)
    yield first
    if rng.random() < workload.duplicate_share:
        # A repetition moments later is a client's retry. One minutes later is from an app that was offline and may be
        # too late.
        again_ms = rng.choice([rng.randrange(1, 3 * _SECOND), rng.randrange(_MINUTE, 20 * _MINUTE)])
        yield replace(first, arrival_ms=first.arrival_ms + again_ms)
    # Orders are few, so more of them are broken: every way of being broken is then in both topics.
    if rng.random() < workload.broken_share * (5 if event.type == "order" else 1):
        yield _broken(rng, workload, replace(event, event_id=f"x{event.event_id}"), event.time_ms + 1000)


def _record(workload: Workload, event: _Event, arrival_ms: int, fields: Fields | None = None) -> Record:
    """Return the event as a record. `fields` replace the event's own."""
    values = event.fields() if fields is None else fields
    order = event.type == "order"
    return Record(
        arrival_ms,
        event.topic,
        zlib.crc32(event.user.encode()) % workload.partitions,
        event.user.encode(),
        encode_order(values, event.version) if order else encode_click(values),
        _headers(b"%d" % event.version, order=order),
    )


def _headers(version: bytes, *, order: bool) -> Headers:
    return (("schema-version", version), ("content-type", b"avro/binary" if order else b"application/json"))


def _broken(rng: random.Random, workload: Workload, event: _Event, arrival_ms: int) -> Record:
    """Return a record that the pipeline cannot use, broken in one of the ways that happen."""
    whole = _record(workload, event, arrival_ms)
    value = whole.value or b""
    order = event.type == "order"

    def with_fields(**changes: str | int | None) -> Record:
        return _record(workload, event, arrival_ms, {**event.fields(), **changes})

    def without(name: str) -> Record:
        fields = {key: value for key, value in event.fields().items() if key != name}
        return _record(workload, event, arrival_ms, fields)

    ahead_ms = arrival_ms + workload.times.max_skew_s * 1000 + rng.randrange(_SECOND, 30 * _HOUR)
    everywhere = [
        lambda: replace(whole, headers=whole.headers[1:]),
        lambda: replace(whole, headers=(), key=None),
        lambda: replace(whole, headers=_headers(b"3", order=order)),
        lambda: replace(whole, headers=_headers(b"v\xff", order=order)),
        lambda: replace(whole, headers=_headers(b"%d" % event.version, order=not order)),
        lambda: replace(whole, value=value[: rng.randrange(1, len(value) - 1)]),
        lambda: replace(whole, value=b""),
        lambda: replace(whole, value=None),
        lambda: replace(whole, value=value + value),
        lambda: with_fields(time_ms=ahead_ms),
    ]
    clicks = [
        lambda: replace(whole, value=b"<html>504 Gateway Time-out</html>"),
        lambda: replace(whole, value=b"\xff\xfe" + value),
        lambda: without(rng.choice(["event_id", "type", "user", "product", "time_ms"])),
        lambda: with_fields(user=None),
        lambda: with_fields(type="hover"),
        lambda: with_fields(time_ms="yesterday"),
        lambda: with_fields(product=17),
    ]
    orders = [lambda: with_fields(amount_cents=-event.amount_cents)]
    return rng.choice(everywhere + (orders if order else clicks))()


# --- the end ----------------------------------------------------------------------------------------------------------


def closing_time_ms(times: Times, last_ms: int) -> int:
    """Return a time at which no record that arrived until `last_ms` can still wait for another one."""
    longest_s = max(times.window_s, times.session_gap_s, times.attribution_s)
    return last_ms + 1000 * (times.allowed_lateness_s + times.max_skew_s + times.slack_s + longest_s) + _HOUR


def _closing(workload: Workload, last_ms: int) -> Iterator[Record]:
    """Yield a view and an order three times, each time so far ahead that the watermark passes everything before."""
    now_ms = last_ms
    for number in range(3):
        now_ms = closing_time_ms(workload.times, now_ms)
        for kind in ("view", "order"):
            event_id = f"{CLOSING_USER}-{kind}-{number}"
            # The view and the order have different products; otherwise the last order would be joined and would wait
            # for nothing.
            event = _Event(kind, event_id, CLOSING_USER, f"{CLOSING_USER}-{kind}", "DE", now_ms, 2, 100)
            yield _record(workload, event, now_ms)
