"""The jobs from topic to topic, each run twice until everything was read. The tests check what the first run wrote,
what the checkpoint keeps of it, and what the second run adds. A batch that was written and not committed comes again
with the same keys and values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.spark.pipeline.raw import NOW_MS, Raw, click, clicked, configured, order
from compat_tests.topics import Topics
from testkit.clients import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.config import Config
    from pipeline.job import Job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MINUTE_MS = 60_000
BASE_MS = NOW_MS - NOW_MS % (10 * MINUTE_MS)  # 22:10
SPOILED = b'{"event_id": "spoiled"'


def at(minutes: float, record: Callable[..., Raw], event_id: str, *, arrives: float = 0, **changed: object) -> Raw:
    """Return an event of user u that happens `minutes` after the base and is written `arrives` minutes later."""
    time_ms = BASE_MS + round(minutes * MINUTE_MS)
    made = record(event_id=event_id, time_ms=time_ms, **{"user": "u", **changed})
    return replace(made, timestamp_ms=time_ms + round(arrives * MINUTE_MS), key=b"u")


def write(broker: Node, config: Config, records: Sequence[Raw]) -> None:
    names = {"clicks": config.topics.clicks, "orders": config.topics.orders}
    for kind, topic in names.items():
        written = [
            Record(record.key, record.value, record.headers or (), record.timestamp_ms, number % 2)
            for number, record in enumerate(record for record in records if record.topic == kind)
        ]
        ConfluentClient().produce(broker.bootstrap, topic, written)


def once(spark: SparkSession, config: Config, jobs: Sequence[Job]) -> None:
    from pipeline.sinks import Trigger

    queries = [job.start(spark, config, Trigger(once=True)) for job in jobs]
    for query in queries:
        assert query.awaitTermination(200), f"{query.name} is still busy"


def died(*_: object) -> None:
    raise RuntimeError("died here")


def contents(broker: Node, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((record.key, record.value) for record in ConfluentClient().consume(broker.bootstrap, topic))


def upserted(broker: Node, topic: str, *, repeated: int = 0) -> dict[str, dict[str, object]]:
    records = ConfluentClient().consume(broker.bootstrap, topic)
    found = {(record.key or b"").decode(): json.loads(record.value or b"", parse_float=Decimal) for record in records}
    assert len(found) == len(records) - repeated, "only what was interrupted is written again"
    return found


def minutes(*numbers: int) -> list[str]:
    return [f"2023-11-14T{22 + (10 + number) // 60}:{(10 + number) % 60:02}:00.000Z" for number in numbers]


def test_all_jobs_from_their_topics_to_their_results(
    spark: SparkSession, broker: Node, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import lake, sinks
    from pipeline.queries import ALL, CONVERSIONS

    keep = {"retention.ms": "-1"}
    names = {name: topics.create(partitions=2, config=keep) for name in ("clicks", "orders", "dead_letters")}
    names |= {
        name: topics.create(config={"cleanup.policy": "compact"}) for name in ("windows", "sessions", "conversions")
    }
    config = configured(
        topics=names,
        kafka={"bootstrap.servers": broker.bootstrap},
        checkpoints=str(tmp_path / "checkpoints"),
        lake={"path": str(tmp_path / "lake")},
        times={"allowed_lateness_s": 900, "max_skew_s": 60, "slack_s": 600, "session_gap_s": 1800},
    )

    first = [
        at(0, click, "seen"),
        at(0, click, "seen", arrives=1),
        at(-9, click, "late", arrives=14.9, product="p 7"),
        at(-9, click, "too-late", arrives=15.1),
        at(4, click, "cart", version="2", type="cart"),
        at(6, order, "bought", version="2"),
        at(7, order, "bought-alone", user="w"),
        replace(clicked(SPOILED), key=None),
    ]
    write(broker, config, first)
    once(spark, config, [job for job in ALL if job is not CONVERSIONS])
    assert upserted(broker, config.topics.windows) == {}, "nothing has ended"
    assert {row.event_id for row in lake.read(spark, config.lake.path).collect()} == {
        "seen", "late", "cart", "bought", "bought-alone",
    }  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(sinks, "_write_dropped", died)  # after the sink's write and before Spark's commit
        with pytest.raises(Exception, match="died here"):
            once(spark, config, [CONVERSIONS])
    matched = contents(broker, config.topics.conversions)
    assert [key for key, _ in matched] == [b"bought/cart", b"bought/late", b"bought/seen"]
    once(spark, config, [CONVERSIONS])
    assert contents(broker, config.topics.conversions) == sorted(2 * matched)

    second = [
        at(0, click, "seen", arrives=14),
        at(9, click, "afterwards"),
        # Everything above ends, because both topics are a day further.
        at(24 * 60, click, "closing", user="closing"),
        at(24 * 60, order, "closing-order", user="closing", product="nothing else"),
    ]
    write(broker, config, second)
    once(spark, config, ALL)

    rows = lake.read(spark, config.lake.path).collect()
    events = ["afterwards", "bought", "bought-alone", "cart", "closing", "closing-order", "late", "seen"]
    assert sorted(row.event_id for row in rows) == events
    letters = ConfluentClient().consume(broker.bootstrap, config.topics.dead_letters)
    assert sorted((dict(letter.headers)["dlq.reason"], letter.key) for letter in letters) == [
        (b"malformed", None),
        (b"too-late", b"u"),
    ]
    assert SPOILED in {letter.value for letter in letters}

    windows = upserted(broker, config.topics.windows)
    assert {key: (row["events"], row["amount"]) for key, row in windows.items()} == {
        f"{minutes(0)[0]}/view": (2, None),
        "2023-11-14T22:00:00.000Z/view": (1, None),
        f"{minutes(0)[0]}/cart/DE": (1, None),
        f"{minutes(0)[0]}/order/DE": (1, Decimal("12.34")),
        f"{minutes(0)[0]}/order": (1, Decimal("12.34")),
    }
    sessions = upserted(broker, config.topics.sessions)
    assert {key: (row["end"], row["events"]) for key, row in sessions.items()} == {
        "u/2023-11-14T22:01:00.000Z": (minutes(39)[0], 5),
        f"w/{minutes(7)[0]}": (minutes(37)[0], 1),
    }
    conversions = upserted(broker, config.topics.conversions, repeated=len(matched))
    assert {key: row["click_type"] for key, row in conversions.items()} == {
        "bought/seen": "view",
        "bought/late": "view",
        "bought/cart": "cart",
        "bought-alone": None,
    }
