"""The right answer in plain Python: what the pipeline must make of a list of records.

It follows the words of the design and not the Spark code, and it does not know what the generator meant, because it
reads the bytes again. It is slow and obvious on purpose.

A record is judged by its content and by its own Kafka timestamp, so the answer does not depend on when it is read. The
events of `CLOSING_USER` are left out, because they only close everything before them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

from example.generator import CLOSING_USER
from example.records import ORDER_FIELDS, Record, Times

_CLICK_FIELDS = {
    1: ["event_id", "type", "user", "product", "time_ms"],
    2: ["event_id", "type", "user", "product", "time_ms", "country"],
}


class _Bad(Exception):
    """The record is not an event; the argument is the reason code that dead letters have in `dlq.reason`."""


@dataclass(frozen=True, slots=True)
class Event:
    event_id: str
    event_type: str
    user: str
    product: str
    country: str | None
    amount: Decimal | None
    time_ms: int
    topic: str

    @property
    def date(self) -> str:
        """The day (UTC) under which the lake stores it."""
        return datetime.fromtimestamp(self.time_ms / 1000, UTC).date().isoformat()


@dataclass(frozen=True, slots=True)
class Window:
    start_ms: int
    event_type: str
    country: str | None
    events: int
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class Session:
    user: str
    start_ms: int
    end_ms: int  # the time of the last event plus the gap
    events: int
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class Conversion:
    """An order and a click before it; `click_id` is None if there was no such click."""

    order_id: str
    click_id: str | None


@dataclass(frozen=True, slots=True)
class Expected:
    records: int
    events: Mapping[str, Event]  # by event id: the events in the lake
    reasons: Mapping[Record, str]  # the reason of every dead letter
    dead: Sequence[Record]  # with repetitions
    duplicates: int  # valid records whose event was read before
    windows: frozenset[Window]
    sessions: frozenset[Session]
    conversions: frozenset[Conversion]
    by_reason: Mapping[str, int] = field(default_factory=dict)


def compute(records: Sequence[Record], times: Times) -> Expected:
    events: dict[str, Event] = {}
    reasons: dict[Record, str] = {}
    dead: list[Record] = []
    valid = 0
    for record in records:
        if record.key == CLOSING_USER.encode():
            continue
        try:
            event = judge(record, times)
        except _Bad as bad:
            reasons[record] = str(bad)
            dead.append(record)
            continue
        valid += 1
        assert events.setdefault(event.event_id, event) == event, "one id, one event"
    ordered = sorted(events.values(), key=lambda event: event.time_ms)
    return Expected(
        records=valid + len(dead),
        events=events,
        reasons=reasons,
        dead=dead,
        duplicates=valid - len(events),
        windows=frozenset(_windows(ordered, times)),
        sessions=frozenset(_sessions(ordered, times)),
        conversions=frozenset(_conversions(ordered, times)),
        by_reason=Counter(reasons[record] for record in dead),
    )


# --- one record -------------------------------------------------------------------------------------------------------


def judge(record: Record, times: Times) -> Event:
    """Return the event in a record. Raises `_Bad` with the first reason why the record is not an event."""
    versions = [value for name, value in record.headers if name == "schema-version"]
    if not versions:
        raise _Bad("no-schema-version")
    if versions[0] not in (b"1", b"2"):
        raise _Bad("unknown-schema-version")
    version = int(versions[0])
    order = record.topic == "orders"
    content_types = [value for name, value in record.headers if name == "content-type"]
    if content_types and content_types[0] != (b"avro/binary" if order else b"application/json"):
        raise _Bad("wrong-content-type")
    fields = _order(record.value, version) if order else _click(record.value)
    names = ORDER_FIELDS[version] if order else _CLICK_FIELDS[version]
    for name in names:
        if fields.get(name) is None:
            raise _Bad(f"missing-field {name}")
    for name in names:
        if not _is_good(name, fields[name]):
            raise _Bad(f"bad-value {name}")
    event = _event(record.topic, fields, version)
    if event.time_ms > record.arrival_ms + times.max_skew_s * 1000:
        raise _Bad("from-the-future")
    if record.arrival_ms - event.time_ms > times.allowed_lateness_s * 1000:
        raise _Bad("too-late")
    return event


def _is_good(name: str, value: str | int) -> bool:
    if name in ("amount_cents", "time_ms"):
        return isinstance(value, int) and value >= 0
    if name == "type":
        return value in ("view", "cart")
    return isinstance(value, str) and bool(value)


def _event(topic: str, fields: Mapping[str, str | int], version: int) -> Event:
    order = topic == "orders"
    return Event(
        event_id=str(fields["event_id"]),
        event_type="order" if order else str(fields["type"]),
        user=str(fields["user"]),
        product=str(fields["product"]),
        country=str(fields["country"]) if version >= 2 else None,
        amount=Decimal(fields["amount_cents"]) / 100 if order else None,
        time_ms=int(fields["time_ms"]),
        topic=topic,
    )


def _click(value: bytes | None) -> dict[str, str | int]:
    try:
        fields = json.loads((value or b"").decode())
    except ValueError:
        raise _Bad("malformed") from None
    if not isinstance(fields, dict):
        raise _Bad("malformed")
    return fields


def _order(value: bytes | None, version: int) -> dict[str, str | int]:
    """Read an order in Avro: a string has its length before it, a long is in zigzag."""
    rest = iter(value or b"")

    def long() -> int:
        number = shift = 0
        for byte in rest:
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise _Bad("malformed")

    def text() -> str:
        length = long()
        taken = bytes(byte for _, byte in zip(range(length), rest, strict=False))
        if len(taken) != length:
            raise _Bad("malformed")
        return taken.decode()  # the generator writes only UTF-8

    fields = {name: long() if name in ("amount_cents", "time_ms") else text() for name in ORDER_FIELDS[version]}
    if next(rest, None) is not None:
        raise _Bad("malformed")
    return fields


# --- what is computed from the events, each once, in the order of their times -----------------------------------------


def _windows(events: Sequence[Event], times: Times) -> Iterator[Window]:
    groups: dict[tuple[int, str, str | None], list[Event]] = defaultdict(list)
    for event in events:
        start_ms = event.time_ms - event.time_ms % (times.window_s * 1000)
        groups[start_ms, event.event_type, event.country].append(event)
    for (start_ms, event_type, country), members in groups.items():
        yield Window(start_ms, event_type, country, len(members), _total(members))


def _sessions(events: Sequence[Event], times: Times) -> Iterator[Session]:
    gap_ms = times.session_gap_s * 1000
    by_user: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_user[event.user].append(event)
    for user, theirs in by_user.items():
        sessions = [[theirs[0]]]
        for before, event in pairwise(theirs):
            if event.time_ms - before.time_ms <= gap_ms:
                sessions[-1].append(event)
            else:
                sessions.append([event])
        for session in sessions:
            first_ms, last_ms = session[0].time_ms, session[-1].time_ms
            yield Session(user, first_ms, last_ms + gap_ms, len(session), _total(session))


def _conversions(events: Sequence[Event], times: Times) -> Iterator[Conversion]:
    clicks: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        if event.event_type != "order":
            clicks[event.user, event.product].append(event)
    for order in events:
        if order.event_type != "order":
            continue
        credited = [
            click
            for click in clicks[order.user, order.product]
            if 0 <= order.time_ms - click.time_ms <= times.attribution_s * 1000
        ]
        if not credited:
            yield Conversion(order.event_id, None)
        for click in credited:
            yield Conversion(order.event_id, click.event_id)


def _total(events: Sequence[Event]) -> Decimal | None:
    """Add up as SQL does: the sum of no values is null."""
    amounts = [event.amount for event in events if event.amount is not None]
    return sum(amounts, Decimal(0)) if amounts else None
