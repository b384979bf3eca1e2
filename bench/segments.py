"""Log segments as Spark's data source beside Spark's Kafka source: the same topic, the same machine, wall time.

    python bench/segments.py [--gigabytes 5] [--rounds 3]        both sources, from a node of pykbroker
    python bench/segments.py --columns                           the record loop alone, rows a second of CPU

One Spark in this process, `local[2]`. The topic has four partitions and batches of 16 KB, the producers' default. Both
sources read it whole from the page cache into Spark's `noop` sink, which makes every row and keeps none: its values
only, or all columns. The first read of each is not counted; then they take turns, and the least of each counts. The
broker's CPU is what it used while a source read.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
_PATHS = [str(ROOT / part) for part in ("", "wire", "log", "raft", "spark", "spark/segments")]
sys.path[:0] = _PATHS

from bench import raw  # noqa: E402
from bench.measurements import new_topic  # noqa: E402
from bench.servers import Pykbroker  # noqa: E402
from pykbroker_wire.headers import encode_request  # noqa: E402
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData  # noqa: E402
from pykbroker_wire.records import columns  # noqa: E402
from pykbroker_wire.records.batch import build_batch, stamp  # noqa: E402
from pykbroker_wire.records.columns import Columns, WantedColumns, fill_records_python  # noqa: E402
from pykbroker_wire.records.compression import Codec  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS = 4
_BATCH_BYTES = 16_384
_ALL = ~WantedColumns(0)
_WANTED = {"value": WantedColumns.VALUE, "all columns": _ALL & ~WantedColumns.HEADERS}
_LOADS = [(size, codec) for size in (100, 1000) for codec in (Codec.NONE, Codec.LZ4)]


def a_batch(size: int, codec: Codec) -> tuple[bytes, int]:
    """Records with keys of 8 bytes and values of `size` of which half is random, in a batch before compression of
    16 KB; and how many."""
    count = _BATCH_BYTES // (size + 16)
    now = int(time.time() * 1000)
    records = [(b"key-%04d" % n, os.urandom(size // 2).hex().encode(), (), now + n) for n in range(count)]
    return build_batch(records, codec=codec), count


# --- the record loop --------------------------------------------------------------------------------------------------


def loops() -> None:
    print(f"{'record':>8} {'codec':>6} {'columns':>12} {'Python':>12} {'compiled':>12} rows/s")
    for size, codec in _LOADS:
        batch, count = a_batch(size, codec)
        data = bytearray(batch * (16_000_000 // len(batch)))
        batches = len(data) // len(batch)
        for index in range(batches):
            stamp(data, index * len(batch), index * count, 1)
        for name, wanted in _WANTED.items():
            speeds = [_rows_a_second(twin, wanted, data, batches * count) for twin in _twins()]
            print(f"{size:>6} B {codec.name.lower():>6} {name:>12}" + "".join(f" {s:>12,.0f}" for s in speeds))


def _twins() -> list[object]:
    return [fill_records_python, columns.fill_records] if columns.COMPILED else [fill_records_python]


def _rows_a_second(twin: object, wanted: WantedColumns, data: bytearray, rows: int) -> float:
    columns.fill_records = twin  # type: ignore[assignment]
    spent = []
    for _ in range(3 if twin is fill_records_python else 9):
        begin = time.process_time()
        builder = Columns(wanted, 0, rows - 1)
        position = taken = 0
        while not builder.done:
            position = builder.fill(data, position)
            if builder.full or builder.done:
                taken += builder.take().rows
        spent.append(time.process_time() - begin)
        assert taken == rows
    return rows / min(spent)


# --- both sources -----------------------------------------------------------------------------------------------------


@cache
def _session() -> SparkSession:
    from pipeline import session
    from pipeline.config import Config, LakeConfig

    # Spark starts Python processes that read: they import what this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "2g"}
    made = session.make("bench", Config("", LakeConfig(""), {}, spark=options), "local[2]")
    made.sparkContext.setLogLevel("ERROR")
    return made


def load(server: Pykbroker, size: int, codec: Codec, size_bytes: int) -> tuple[str, int, int]:
    """A topic with about so many bytes of values; its name, its records, its bytes in the log."""
    name, topic_id = new_topic(server, _PARTITIONS)
    batch, count = a_batch(size, codec)
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(_PARTITIONS)]
    topics = [TopicProduceData(topic_id=topic_id, partition_data=partitions)]
    body = ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=topics)
    frame = b"".join(encode_request(0, raw.PRODUCE_VERSION, 1, "bench", body))
    requests = max(1, size_bytes // (size * count * _PARTITIONS))
    client = raw.Client(server.address)
    ahead = min(8, requests)
    for _ in range(ahead):
        client.socket.sendall(frame)
    for index in range(requests):
        client.receive()
        if index + ahead < requests:
            client.socket.sendall(frame)
    ends = [client.end_offset(name, partition) for partition in range(_PARTITIONS)]
    client.close()
    if ends != [requests * count] * _PARTITIONS:
        raise RuntimeError(f"{requests} requests were sent, the partitions end at {ends}")
    return name, sum(ends), requests * _PARTITIONS * len(batch)


def by_kafka(server: Pykbroker, topic: str, name: str) -> DataFrame:
    reader = _session().read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
    frame = reader.option("subscribe", topic).load()
    return frame.select("value") if name == "value" else frame


def by_segments(server: Pykbroker, topic: str, name: str) -> DataFrame:
    reader = _session().read.format("pyspark_pykbroker").option("subscribe", topic)
    if name == "value":
        reader = reader.schema("value binary")
    return reader.load(str(server.directory / "data"))


def compare(gigabytes: float, rounds: int) -> None:
    server = Pykbroker()
    server.start()
    sources = {"kafka": by_kafka, "segments": by_segments}
    print(f"{gigabytes:g} GB of values; compiled record loop: {columns.COMPILED}")
    try:
        for size, codec in _LOADS:
            topic, rows, log_bytes = load(server, size, codec, int(gigabytes * 1e9))
            for name in _WANTED:
                spent = {source: float("inf") for source in sources}
                cpu = dict.fromkeys(sources, 0.0)
                for turn in range(rounds + 1):
                    for source, frame in sources.items():
                        before, begin = server.cpu_seconds(), time.perf_counter()
                        frame(server, topic, name).write.format("noop").mode("overwrite").save()
                        seconds = time.perf_counter() - begin
                        if turn and seconds < spent[source]:
                            spent[source], cpu[source] = seconds, server.cpu_seconds() - before
                for source, frame in sources.items():
                    if frame(server, topic, name).count() != rows:
                        raise RuntimeError(f"{source} does not read all {rows} rows")
                print(
                    f"{size:>5} B {codec.name.lower():>5} {name:>12}: {rows:>11,} rows, {log_bytes / 1e6:>6,.0f} MB"
                    f"  kafka {spent['kafka']:7.2f} s (broker {cpu['kafka']:.2f} s)"
                    f"  segments {spent['segments']:7.2f} s (broker {cpu['segments']:.2f} s)"
                    f"  {spent['kafka'] / spent['segments']:.2f}x",
                    flush=True,
                )
            server.delete_topics()
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", action="store_true", help="the record loop alone")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="values in each topic")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.columns:
        loops()
    else:
        compare(options.gigabytes, options.rounds)


if __name__ == "__main__":
    main()
