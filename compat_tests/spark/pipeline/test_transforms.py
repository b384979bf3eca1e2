"""Windows, sessions, conversions and upserts of tables, with the same functions that the streams use."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from compat_tests.spark.pipeline.raw import NOW_MS, Raw, click, configured, frame
from pipeline import transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
CONFIG = configured(times={"window_s": 600, "session_gap_s": 1800, "attribution_s": 3600})


def events(spark: SparkSession, *rows: tuple[str, str, str, float, str | None, str | None]) -> DataFrame:
    """Return the rows (id, type, user, minutes after noon, amount, country) as events, all of one product."""
    values = [
        (
            event_id,
            kind,
            user,
            "lamp",
            country,
            None if amount is None else Decimal(amount),
            NOON + timedelta(minutes=minutes),
        )
        for event_id, kind, user, minutes, amount, country in rows
    ]
    columns = """event_id string, event_type string, user_id string, product string, country string,
                 amount decimal(12,2), event_time timestamp"""
    return spark.createDataFrame(values, columns)


def upserted(frame: DataFrame, *key: str) -> dict[str, dict[str, object]]:
    rows = transforms.upserts(frame, key=key).collect()
    found = {bytes(row.key).decode(): json.loads(bytes(row.value), parse_float=Decimal) for row in rows}
    assert len(found) == len(rows), "each key once"
    return found


def test_an_event_is_there_once(spark: SparkSession) -> None:
    twice = events(spark, ("a", "view", "u", 0, None, None), ("a", "view", "u", 0, None, None))
    assert transforms.deduplicated(twice, CONFIG).count() == 1


def test_windows(spark: SparkSession) -> None:
    given = events(
        spark,
        ("a", "view", "u", 0, None, "DE"),
        ("b", "view", "v", 9.99, None, "DE"),
        ("c", "view", "u", 10, None, "DE"),
        ("d", "view", "u", 1, None, None),
        ("e", "order", "u", 1, "0.10", "DE"),
        ("f", "order", "u", 2, "0.20", "DE"),
    )

    def row(start: str, kind: str, country: str | None, count: int, amount: Decimal | None = None) -> dict[str, object]:
        end = f"{start[:3]}{int(start[3]) + 1}0"
        times = {"start": f"2026-01-31T{start}:00.000Z", "end": f"2026-01-31T{end}:00.000Z"}
        return {**times, "event_type": kind, "country": country, "events": count, "amount": amount}

    assert upserted(transforms.windows(given, CONFIG), "start", "event_type", "country") == {
        "2026-01-31T12:00:00.000Z/view/DE": row("12:00", "view", "DE", 2),
        "2026-01-31T12:10:00.000Z/view/DE": row("12:10", "view", "DE", 1),
        "2026-01-31T12:00:00.000Z/view": row("12:00", "view", None, 1),
        "2026-01-31T12:00:00.000Z/order/DE": row("12:00", "order", "DE", 2, Decimal("0.30")),
    }


def test_sessions(spark: SparkSession) -> None:
    given = events(
        spark,
        ("a", "view", "u", 0, None, None),
        ("b", "order", "u", 29, "5.00", None),
        ("c", "view", "u", 60, None, None),
        ("d", "view", "v", 10, None, None),
    )
    found = upserted(transforms.sessions(given, CONFIG), "user_id", "start")
    assert {key: (row["end"], row["events"], row["amount"]) for key, row in found.items()} == {
        "u/2026-01-31T12:00:00.000Z": ("2026-01-31T12:59:00.000Z", 2, Decimal("5.00")),
        "u/2026-01-31T13:00:00.000Z": ("2026-01-31T13:30:00.000Z", 1, None),
        "v/2026-01-31T12:10:00.000Z": ("2026-01-31T12:40:00.000Z", 1, None),
    }


def test_conversions(spark: SparkSession) -> None:
    clicks = events(
        spark,
        ("too-early", "view", "u", -60.01, None, None),
        ("first", "view", "u", -60, None, None),
        ("same-moment", "cart", "u", 0, None, None),
        ("afterwards", "view", "u", 0.01, None, None),
        ("another-user", "view", "v", -1, None, None),
    )
    orders = events(spark, ("o", "order", "u", 0, "7.50", None), ("alone", "order", "w", 0, "1.00", None))
    other = events(spark, ("other-product", "view", "u", -1, None, None)).replace("lamp", "vase", ["product"])
    found = upserted(transforms.conversions(orders, clicks.union(other), CONFIG), "order_id", "click_id")
    assert set(found) == {"o/first", "o/same-moment", "alone"}
    assert found["o/first"] == {
        "order_id": "o",
        "click_id": "first",
        "click_type": "view",
        "user_id": "u",
        "product": "lamp",
        "amount": Decimal("7.50"),
        "order_time": "2026-01-31T12:00:00.000Z",
        "click_time": "2026-01-31T11:00:00.000Z",
    }
    assert found["alone"]["click_id"] is None


def test_only_dead_letters_whose_reason_is_gone_are_sent_again(spark: SparkSession) -> None:
    def letter(number: int, reason: str, *more: tuple[str, bytes], version: str = "1", topic: str = "clicks") -> Raw:
        good = click(version="1", event_id=f"e-{number}")
        said = {"reason": reason, "topic": topic, "partition": "0", "offset": "7", "timestamp": str(NOW_MS)}
        of_letter = tuple((f"dlq.{key}", text.encode()) for key, text in said.items())
        own = (("schema-version", version.encode()), *more)
        # The letter itself was written much later, which does not count.
        return replace(good, headers=(*own, *of_letter), topic="dead-letters", timestamp_ms=NOW_MS + 10**9)

    unknown = "unknown-schema-version"
    again = (("redrive.count", b"1"), ("redrive.timestamp", str(NOW_MS - 5).encode()))
    letters = [
        letter(0, unknown, ("trace", b"t")),
        letter(1, unknown, version="9"),
        letter(2, "behind-watermark"),
        letter(3, unknown, ("redrive.count", b"3")),
        letter(4, unknown, topic="another"),
        letter(5, unknown, *again),
    ]
    rows = transforms.redriven(frame(spark, letters), CONFIG).orderBy("event_id").collect()
    assert [(row.event_id, row.topic, bytes(row.key)) for row in rows] == [
        ("e-0", "clicks", letters[0].key),
        ("e-5", "clicks", letters[5].key),
    ]
    assert [bytes(row.value) for row in rows] == [letters[0].value, letters[5].value]
    headers = [{each.key: bytes(each.value) for each in row.headers} for row in rows]
    first, own = str(NOW_MS).encode(), {"schema-version": b"1"}
    assert headers[0] == own | {"trace": b"t", "redrive.count": b"1", "redrive.timestamp": first}
    assert headers[1] == own | {"redrive.count": b"2", "redrive.timestamp": str(NOW_MS - 5).encode()}


def test_no_header_makes_a_record_younger_than_it_is(spark: SparkSession) -> None:
    """Otherwise a client could write events of the future, which move watermarks."""
    ahead_ms = NOW_MS + 3_600_000
    made = click(event_id="ahead", time_ms=ahead_ms)
    lying = replace(made, headers=(*(made.headers or ()), ("redrive.timestamp", str(ahead_ms).encode())))
    [row] = transforms.parse(frame(spark, [lying]), CONFIG).collect()
    assert row.problem.code == "from-the-future"
