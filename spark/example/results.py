"""The results of the pipeline, read back as the same types that expected.py computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, cast

from example import topics
from example.expected import Conversion, Event, Session, Window
from example.generator import CLOSING_USER
from example.records import Headers
from example.topics import Reached

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Topic, partition and offset of the raw record.
Place = tuple[str, int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LakeRow:
    event: Event
    date: str  # the `date` of the lake's partition
    place: Place
    key: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    reason: str
    place: Place
    key: bytes | None
    value: bytes | None
    headers: Headers  # the raw record's own
    timestamp_ms: int  # of the raw record


@dataclass(frozen=True, slots=True)
class Outcome:
    """All results, without those of the closing records."""

    rows: list[LakeRow]
    letters: list[DeadLetter]  # with repetitions
    windows: set[Window]
    sessions: set[Session]
    conversions: set[Conversion]
    repeated: dict[str, int]  # by topic: how many values were written again, as at-least-once sinks do

    @property
    def events(self) -> dict[str, Event]:
        return {row.event.event_id: row.event for row in self.rows}

    @property
    def dead(self) -> dict[Place, str]:
        """The reason of each dead letter, once, by the place of the raw record."""
        return {letter.place: letter.reason for letter in self.letters}


def read(lake_rows: DataFrame, kafka: Reached) -> Outcome:
    rows = [row for row in lake(lake_rows) if row.event.user != CLOSING_USER]
    letters = dead_letters(kafka)
    windows, windows_again = _upserted(kafka, "event-windows", _window)
    sessions, sessions_again = _upserted(kafka, "user-sessions", _session)
    conversions, conversions_again = _upserted(kafka, "conversions", _conversion)
    last_ms = max((row.event.time_ms for row in rows), default=0)
    return Outcome(
        rows,
        letters,
        {window for window in windows if window.start_ms <= last_ms},
        {session for session in sessions if session.user != CLOSING_USER},
        {one for one in conversions if not one.order_id.startswith(CLOSING_USER)},
        {
            "dead-letters": len(letters) - len({letter.place for letter in letters}),
            "event-windows": windows_again,
            "user-sessions": sessions_again,
            "conversions": conversions_again,
        },
    )


def lake(rows: DataFrame) -> list[LakeRow]:
    """Return the rows of a lake, or of some of its files."""
    return [
        _lake_row(row.asDict(recursive=True)) for row in rows.withColumn("date", rows["date"].cast("string")).collect()
    ]


def _lake_row(row: dict[str, Any]) -> LakeRow:
    source = row["source"]
    return LakeRow(
        Event(
            row["event_id"],
            row["event_type"],
            row["user_id"],
            row["product"],
            row["country"],
            row["amount"],
            _milliseconds(row["event_time"]),
            row["topic"],
        ),
        row["date"],
        (source["topic"], source["partition"], source["offset"]),
        None if source["key"] is None else bytes(source["key"]),
        tuple((header["key"], bytes(header["value"])) for header in source["headers"] or ()),
        _milliseconds(source["timestamp"]),
    )


def _milliseconds(moment: datetime) -> int:
    """Convert a time of PySpark, which has no zone and is in the zone of this process."""
    return round(moment.timestamp() * 1000)


def dead_letters(kafka: Reached) -> list[DeadLetter]:
    """Return all dead letters, with repetitions."""
    letters = []
    for message in topics.read(kafka, "dead-letters"):
        headers: list[tuple[str, bytes]] = [(name, value or b"") for name, value in cast(Any, message.headers()) or ()]
        said = {name: value.decode() for name, value in headers if name.startswith("dlq.")}
        place = (said["dlq.topic"], int(said["dlq.partition"]), int(said["dlq.offset"]))
        own = tuple(header for header in headers if not header[0].startswith("dlq."))
        letters.append(
            DeadLetter(said["dlq.reason"], place, message.key(), message.value(), own, int(said["dlq.timestamp"]))
        )
    return letters


def windows(kafka: Reached) -> set[Window]:
    """Return all windows that were written, with those of the closing records."""
    return _upserted(kafka, "event-windows", _window)[0]


def _window(value: dict[str, Any]) -> Window:
    return Window(
        _parse_time(value["start"]),
        value["event_type"],
        value.get("country"),
        value["events"],
        _decimal(value.get("amount")),
    )


def _session(value: dict[str, Any]) -> Session:
    return Session(
        value["user_id"],
        _parse_time(value["start"]),
        _parse_time(value["end"]),
        value["events"],
        _decimal(value.get("amount")),
    )


def _conversion(value: dict[str, Any]) -> Conversion:
    return Conversion(value["order_id"], value.get("click_id"))


def _upserted(kafka: Reached, topic: str, parse: Callable[[dict[str, Any]], T]) -> tuple[set[T], int]:
    """Return the newest value of each key, and the number of older values."""
    messages = topics.read(kafka, topic)
    newest = topics.newest(messages)
    values = {parse(json.loads(value, parse_float=Decimal)) for value in newest.values()}
    assert len(values) == len(newest), f"{topic}: two keys, one value"
    return values, len(messages) - len(newest)


def _parse_time(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def _decimal(value: Decimal | int | None) -> Decimal | None:
    return None if value is None else Decimal(value)
