"""Spark over its Kafka source and sink: rows a second, and how fresh the pipeline's lake is.

One Spark in this process, `local[2]`, shares two cores with the measured broker, so a broker that needs less CPU leaves
more to Spark.

* source, sink: a batch job over four partitions, records of 100 bytes; the first run of each is not counted, because
  Spark compiles its code then.
* freshness: the lake job reads clicks that are made at a steady rate. The figure is the time from an event's Kafka
  timestamp until the commit with its file is in the lake's log, which is checked every few milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measurements import Figure, Measurement, new_topic
from bench.servers import ROOT, Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK: list[Measurement] = []
_ROWS = 1_000_000
_PARTITIONS = 4
_EVENTS_A_SECOND = 500
_FRESH_SECONDS = 20


@cache
def session() -> SparkSession:
    """Return the pipeline's session, which also finds the data source of segments; it ends with this process."""
    # The pipeline and the data source are not installed. Processes that Spark starts import them too.
    folders = [str(ROOT / folder) for folder in ("", "wire", "log", "spark", "spark/segments")]
    sys.path += folders
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # An installed package has its bytecode; with this variable set every process of Spark would compile it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    from pipeline.config import Config, LakeConfig
    from pipeline.session import make

    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
    }
    return make("bench", Config("", LakeConfig(""), {}, spark=options), "local[2]")


def _rows(count: int) -> DataFrame:
    return session().range(0, count, 1, _PARTITIONS).selectExpr("CAST(lpad(id, 100, '-') AS BINARY) AS value")


def _write(server: Server, topic: str, count: int) -> float:
    begin = time.perf_counter()
    writer = _rows(count).write.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
    writer.option("topic", topic).save()
    return time.perf_counter() - begin


def _read(server: Server, topic: str, count: int) -> float:
    begin = time.perf_counter()
    reader = session().read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
    (row,) = reader.option("subscribe", topic).load().selectExpr("count(*)", "sum(length(value))").collect()
    seconds = time.perf_counter() - begin
    if tuple(row) != (count, 100 * count):
        raise RuntimeError(f"{server.name}: {count} rows were written, {tuple(row)} read")
    return seconds


def batch(server: Server, seconds: float) -> dict[str, float]:
    small, _ = new_topic(server, _PARTITIONS)
    _write(server, small, _ROWS // 10)
    _read(server, small, _ROWS // 10)
    large, _ = new_topic(server, _PARTITIONS)
    cpu = server.cpu_seconds()
    written = _write(server, large, _ROWS)
    after_writing = server.cpu_seconds()
    read = _read(server, large, _ROWS)
    return {
        "sink": _ROWS / written,
        "source": _ROWS / read,
        "broker CPU of the sink, s": after_writing - cpu,
        "broker CPU of the source, s": server.cpu_seconds() - after_writing,
    }


def _send(server: Server, topic: str, ended: threading.Event) -> int:
    """Send clicks at a steady rate until `ended`; return how many."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 1, "acks": "all"})
    headers: list[tuple[str, str | bytes | None]] = [("schema-version", b"2"), ("content-type", b"application/json")]
    count, begin = 0, time.perf_counter()
    while not ended.is_set():
        click = {"event_id": str(uuid.uuid4()), "type": "view", "user": f"u{count % 100}", "product": "p"}
        value = json.dumps({**click, "country": "DE", "time_ms": int(time.time() * 1000)})
        producer.produce(topic, value.encode(), key=click["user"], headers=headers)
        producer.poll(0)
        count += 1
        time.sleep(max(0.0, begin + count / _EVENTS_A_SECOND - time.perf_counter()))
    if producer.flush(30):
        raise RuntimeError(f"{server.name} did not take all events")
    return count


def _look(lake: Path, seen: dict[str, float], ended: threading.Event) -> None:
    from pipeline.lake.commits import decode

    version = 0
    while not ended.is_set():
        path = lake / "_delta_log" / f"{version:020d}.json"
        if not path.exists():
            time.sleep(0.005)
            continue
        now = time.time()
        for file in decode(version, path.read_text()).adds:
            seen.setdefault(file.path.rpartition("/")[2], now)
        version += 1


def freshness(server: Server, seconds: float) -> dict[str, float]:
    spark = session()
    from pyspark.sql import functions as F

    from pipeline import queries
    from pipeline.config import Config, LakeConfig, Topics
    from pipeline.sinks import Trigger

    clicks, _ = new_topic(server, _PARTITIONS)
    orders, _ = new_topic(server)
    root = Path(tempfile.mkdtemp(prefix="pykbroker-bench-lake-"))
    lake = root / "lake"
    kept = LakeConfig(str(lake), compact_min_files=1 << 20)  # no compaction, because it replaces the files
    topics = Topics(clicks=clicks, orders=orders)
    config = Config(str(root / "checkpoints"), kept, {"bootstrap.servers": server.bootstrap}, topics)
    seen: dict[str, float] = {}
    sent, looked = threading.Event(), threading.Event()
    sending = threading.Thread(target=_send, args=(server, clicks, sent))
    looking = threading.Thread(target=_look, args=(lake, seen, looked))
    query = queries.LAKE.start(spark, config, Trigger(seconds=0))
    try:
        looking.start()
        sending.start()
        time.sleep(_FRESH_SECONDS)
        sent.set()
        sending.join()
        query.processAllAvailable()
        time.sleep(0.1)
    finally:
        sent.set()
        looked.set()
        looking.join()
        query.stop()
    frame = (
        spark.read.format("delta")
        .load(str(lake))
        .select(F.element_at(F.split(F.input_file_name(), "/"), -1), F.unix_millis("source.timestamp"))
    )
    waits = sorted((name, seen[name] - stamp / 1000) for name, stamp in frame.collect())
    shutil.rmtree(root)
    # The first batches hold the records that came while the query started.
    first = min(seen.values()) + _FRESH_SECONDS / 4
    steady = sorted(wait for name, wait in waits if seen[name] > first)
    return {
        "p50": statistics.median(steady),
        "p95": steady[int(len(steady) * 0.95)],
        "events": len(waits),
        "batches": len(seen),
    }


_ROWS_A_SECOND = [Figure(name, "rows/s", target=1) for name in ("source", "sink")]
SPARK.append(Measurement(f"Spark, {_ROWS:,} rows of 100 B", batch, tuple(_ROWS_A_SECOND)))
_FRESHNESS = [Figure(name, "s", more_is_better=False) for name in ("p50", "p95")]
SPARK.append(Measurement(f"Spark, lake beside {_EVENTS_A_SECOND} events/s", freshness, tuple(_FRESHNESS)))
