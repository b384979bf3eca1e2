"""Other programs read the lake, without Spark and without the code of this pipeline."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import pandas
import polars
import pytest
from deltalake import DeltaTable, QueryBuilder

from pipeline.lake import SCHEMA, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHEN = datetime.datetime(2026, 3, 1, 23, 59, 59, 123456, tzinfo=datetime.UTC)
ROWS = [
    {
        "event_id": f"e{number}",
        "event_type": "order",
        "amount": Decimal("12.34"),
        "event_time": WHEN,
        "source": {
            "topic": "orders",
            "partition": 1,
            "offset": number,
            "timestamp": WHEN,
            "key": bytearray(b"\x00k"),
            "headers": [{"key": "schema-version", "value": bytearray(b"2")}],
        },
        "date": WHEN.date(),
        "topic": "orders",
    }
    for number in range(6)
]


@pytest.fixture(scope="module")
def table(suite_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a table of three batches, compacted, then a fourth batch, and a file that belongs to no commit."""
    path = tmp_path_factory.mktemp("readers") / "lake"
    store = Lake(suite_session, str(path))
    store.claim(None)
    for batch, rows in enumerate((ROWS[:2], ROWS[2:3], ROWS[3:4])):
        store.commit(suite_session.createDataFrame(rows, SCHEMA), "query", batch, "plan")
    assert store.compact(3, 10**6) == 2
    store.commit(suite_session.createDataFrame(ROWS[4:], SCHEMA), "query", 3, "plan")
    partition = path / "date=2026-03-01" / "topic=orders"
    (partition / "left-by-a-kill.parquet").write_bytes(next(partition.glob("part-*.parquet")).read_bytes())
    return str(path)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["event_id"]))


def judge(rows: list[dict[str, Any]]) -> None:
    assert [row["event_id"] for row in by_id(rows)] == [row["event_id"] for row in ROWS]
    for number, row in enumerate(by_id(rows)):
        assert (row["amount"], row["event_time"], row["date"], row["topic"]) == (
            Decimal("12.34"), WHEN, WHEN.date(), "orders",
        )  # fmt: skip
        source = row["source"]
        assert (source["partition"], source["offset"], source["timestamp"]) == (1, number, WHEN)
        assert bytes(source["key"]) == b"\x00k"
        [header] = source["headers"]
        assert (header["key"], bytes(header["value"])) == ("schema-version", b"2")


@pytest.mark.slow
def test_polars_reads_it(table: str) -> None:
    judge(polars.read_delta(table).to_dicts())
    assert polars.scan_delta(table, version=1).collect().height == 2, "time travel"


def test_pandas_reads_it(table: str) -> None:
    frame = DeltaTable(table).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert sorted(frame["event_id"]) == [row["event_id"] for row in ROWS]
    assert set(frame["event_time"]) == {pandas.Timestamp(WHEN)}
    assert list(frame.groupby("topic")["amount"].sum()) == [Decimal("74.04")]


def test_deltalake_reads_it_and_says_of_each_batch_what_it_was(table: str) -> None:
    delta = DeltaTable(table)
    assert delta.metadata().partition_columns == ["date", "topic"]
    counted = QueryBuilder().register("lake", delta).execute("SELECT count(*) AS n FROM lake").read_all()
    assert counted["n"][0].as_py() == 6
    assert [entry["operation"] for entry in delta.history()] == [
        "WRITE",
        "OPTIMIZE",
        "WRITE",
        "WRITE",
        "WRITE",
        "WRITE",
    ]
    assert '"job": "lake"' in delta.history(1)[0]["userMetadata"]


def test_duckdb_reads_it(table: str) -> None:
    """INSTALL would download the extension; the package of the same version contains it."""
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        found = connection.execute(
            """
            SELECT event_id, amount, epoch_us(event_time), date, topic, source.partition, source."offset",
                   epoch_us(source.timestamp), source.key, source.headers[1].key, source.headers[1].value
            FROM delta_scan(?) ORDER BY event_id
            """,
            [table],
        ).fetchall()
    when = round(WHEN.timestamp() * 1_000_000)
    assert found == [
        (f"e{number}", Decimal("12.34"), when, WHEN.date(), "orders", 1, number, when, b"\x00k", "schema-version", b"2")
        for number in range(6)
    ]
