"""Log segments as Spark's data source (docs/segments.md) compared with Spark's Kafka source, for the same topic.

One Spark in this process, `local[2]`, and one node of pykbroker run on the same machine. The topic has four partitions
and batches of 16 KB, the producers' default. Both sources read it whole from the page cache into Spark's `noop` sink,
which makes every row and keeps none: its values only, or all columns. They take turns. Before that, each reads a tenth
of it without a figure, because Spark compiles its code and starts Python. The broker's CPU is its CPU time while a
source reads.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from bench import raw
from bench.measurements import Figure, Kind, Measurement, new_topic
from bench.servers import Server
from bench.sides import Sides
from bench.spark import session
from pykbroker_log.checkpoints import decode_offsets
from pykbroker_log.names import HIGH_WATERMARKS
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GIGABYTES = 5.0
READS = 2
#: the share of the topic that is read before the measurement
_FIRST = 0.1
_PARTITIONS = 4
_BATCH_BYTES = 16_384
_IN_FLIGHT = 8
_PATIENCE_SECONDS = 60
_COLUMNS = ("value only", "all columns")
SIDES = Sides("Kafka source", "segments")


def _batch(value_bytes: int, codec: Codec) -> tuple[bytes, int]:
    """Return a batch that has 16 KB before compression, and its number of records: keys of 8 bytes, values of which
    half is random."""
    count = _BATCH_BYTES // (value_bytes + 16)
    now_ms = int(time.time() * 1000)
    records = [(b"key-%04d" % n, os.urandom(value_bytes // 2).hex().encode(), (), now_ms + n) for n in range(count)]
    return build_batch(records, codec=codec), count


def _fill(server: Server, value_bytes: int, codec: Codec, gigabytes: float) -> tuple[str, int]:
    """Create a topic with this size of values, and wait until it is replicated; return its name and its records."""
    name, topic_id = new_topic(server, _PARTITIONS)
    batch, count = _batch(value_bytes, codec)
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(_PARTITIONS)]
    topics = [TopicProduceData(topic_id=topic_id, partition_data=partitions)]
    body = ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=topics)
    requests = max(_IN_FLIGHT, int(gigabytes * 1e9) // (value_bytes * count * _PARTITIONS))
    client = raw.Client(server.address)
    frame = client.frame(body, raw.PRODUCE_VERSION)
    for index in range(requests):
        if index >= _IN_FLIGHT:
            client.read_frame()
        client.socket.sendall(frame)
    for _ in range(_IN_FLIGHT):
        client.read_frame()
    ends = [client.end_offset(name, partition) for partition in range(_PARTITIONS)]
    client.close()
    if ends != [requests * count] * _PARTITIONS:
        raise RuntimeError(f"{requests} requests were sent, the partitions end at {ends}")
    # Segments return no records after the checkpoint, so wait until it has all.
    checkpoint = server.directory / "data" / HIGH_WATERMARKS
    deadline = time.monotonic() + _PATIENCE_SECONDS
    wanted = {(name, partition): end for partition, end in enumerate(ends)}
    while not (checkpoint.exists() and wanted.items() <= decode_offsets(checkpoint.read_bytes()).items()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{checkpoint} does not have the ends of {name}")
        time.sleep(0.1)
    return name, sum(ends)


def _frame(server: Server, topic: str, side: str, columns: str) -> DataFrame:
    if side == SIDES.other:
        reader = session().read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
        frame = reader.option("subscribe", topic).load()
        return frame.select("value") if columns == "value only" else frame
    reader = session().read.format("pyspark_pykbroker").option("subscribe", topic)
    if columns == "value only":
        reader = reader.schema("value binary")
    return reader.load(str(server.directory / "data"))


def _write(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _first_read(frame: DataFrame, rows: int, side: str) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    _write(frame.observe(seen, F.count(F.lit(1)).alias("rows")))
    if seen.get["rows"] != rows:
        raise RuntimeError(f"{rows} records were written, {side} has {seen.get['rows']} rows")


def _read(value_bytes: int, codec: Codec, server: Server, seconds: float) -> dict[str, float | list[float]]:
    server.start()
    small, rows_before = _fill(server, value_bytes, codec, GIGABYTES * _FIRST)
    topic, rows = _fill(server, value_bytes, codec, GIGABYTES)
    found: dict[str, float | list[float]] = {"rows": rows}
    sides = (SIDES.other, SIDES.ours)
    for columns in _COLUMNS:
        for side in sides:
            _first_read(_frame(server, small, side, columns), rows_before, side)
        for side in sides * READS:
            frame = _frame(server, topic, side, columns)
            cpu, begin = server.cpu_seconds(), time.perf_counter()
            _write(frame)
            for name, value in (
                (f"{columns}, time", time.perf_counter() - begin),
                (f"{columns}, broker's CPU", server.cpu_seconds() - cpu),
            ):
                values = found.setdefault(name if side == SIDES.ours else SIDES.others(name), [])
                assert isinstance(values, list)
                values.append(value)
    return found


def _made(side: type[Server]) -> Server:
    return side()


SEGMENTS = [
    Measurement(
        f"segments, {label}, {codec.name.lower()}",
        partial(_read, value_bytes, codec),
        tuple(
            Figure(f"{columns}, {name}", "s", more_is_better=False, target=target)
            for columns in _COLUMNS
            for name, target in (("time", 2), ("broker's CPU", 0))
        ),
        fresh=True,
        most_rounds=1,
        kind=Kind("segments", _made, lambda server, seconds: None, alone=True),
        sides=SIDES,
    )
    for value_bytes, label in ((100, "100 B"), (1000, "1 KB"))
    for codec in (Codec.NONE, Codec.LZ4)
]
