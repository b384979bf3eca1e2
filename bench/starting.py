"""Starting on a directory with data: after a clean stop with many partitions or segments, and after SIGKILL.

Each side writes its own directory by the same requests, and is started on it again.
* 5,000 partitions of three segments: `segment.ms` is 1, and the batches are seconds apart.
* 1,000 segments: one partition, 10 GB in segments of 10 MB. Once with the page cache as the stop has left it, and once
  with nothing of the disk in memory (drop_caches, if that is allowed), so that the programs themselves are read too.
* After SIGKILL, with as many partitions as threads that recover (num.recovery.threads.per.data.dir is 2), with the
  checkpoints of recovery points removed, and everything written back before. "recovery" is from the start of the
  process until every partition answers ListOffsets, minus the time of a start on the same directory after a clean stop.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from bench import raw
from bench.measurements import Figure, Measure, Measurement
from bench.servers import Server
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch

STARTING: list[Measurement] = []
_SECOND_MS = 1_000


def _serves(address: tuple[str, int], topics: dict[str, int]) -> bool:
    """Return True if every partition answers its end offset."""
    asked = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)],
        )
        for name, partitions in topics.items()
    ]
    client = raw.Client(address)
    try:
        answer = client.call(ListOffsetsRequest(replica_id=-1, topics=asked), 7)
    finally:
        client.close()
    return not any(found.error_code for topic in answer.topics for found in topic.partitions)


def _serve_all(server: Server, topics: dict[str, int], begin: float) -> float:
    while not _serves(server.address, topics):
        time.sleep(0.005)
    return time.perf_counter() - begin


def produce_everywhere(client: raw.Client, topic_id: bytes, partitions: range, batch: bytes) -> None:
    """Send the same batch to each partition, in one request."""
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)],
    )
    answer = client.call(request, raw.PRODUCE_VERSION)
    errors = {found.error_code for found in answer.responses[0].partition_responses}
    if errors != {0}:
        raise RuntimeError(f"Produce was answered with errors {errors}")


def many_partitions(server: Server, seconds: float) -> dict[str, float]:
    topics, partitions, segments = 10, 500, 3
    server.start()
    client = raw.Client(server.address)
    ids = {
        f"many-{number}": client.create_topic(f"many-{number}", partitions, segment_ms="1") for number in range(topics)
    }
    now = int(time.time() * 1000) - segments * _SECOND_MS
    for segment in range(segments):
        for topic_id in ids.values():
            batch = build_batch([(None, bytes(100), (), now + segment * _SECOND_MS)])
            produce_everywhere(client, topic_id, range(partitions), batch)
    client.close()
    _check_segments(server, topics * partitions * segments)
    stopped = server.halt()
    begin = time.perf_counter()
    server.start(300)
    everything = _serve_all(server, dict.fromkeys(ids, partitions), begin)
    anonymous, resident = settled_memory(server.memory)
    return {
        "ready": server.ready_seconds,
        "every partition serves": everything,
        "RssAnon": anonymous,
        "VmRSS": resident,
        "clean stop": stopped,
    }


def settled_memory(look: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Return RssAnon and VmRSS once work that follows the responses, such as opening logs, no longer raises them."""
    before = look()
    while True:
        time.sleep(2)
        now = look()
        if abs(now[0] - before[0]) <= 0.01 * before[0]:
            return now
        before = now


def _drop_caches() -> bool:
    """Drop the page cache; return False if that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def _check_segments(server: Server, expected: int) -> None:
    found = sum(1 for _ in Path(server.directory, "data").glob("*-*/*.log"))
    if found < expected:
        raise RuntimeError(f"{server.name} has {found} segments instead of {expected}")


def many_segments(server: Server, seconds: float) -> dict[str, float]:
    size = 10_000_000_000
    server.start()
    client = raw.Client(server.address)
    topic_id = client.create_topic("large", 1, segment_bytes=str(10 << 20))
    _fill(server, topic_id, {"large": 1}, size, records=880, value_bytes=1000)
    client.close()
    _check_segments(server, size // (10 << 20))
    server.halt()
    begin = time.perf_counter()
    server.start(300)
    cpu = server.cpu_seconds()
    everything = _serve_all(server, {"large": 1}, begin)
    anonymous, resident = server.memory()
    found = {
        "ready": server.ready_seconds,
        "CPU until ready": cpu,
        "every partition serves": everything,
        "RssAnon": anonymous,
        "VmRSS": resident,
    }
    server.halt()
    if _drop_caches():
        begin = time.perf_counter()
        server.start(300)
        found["ready, cold"] = server.ready_seconds
        found["every partition serves, cold"] = _serve_all(server, {"large": 1}, begin)
    return found


def _fill(server: Server, topic_id: bytes, topic: dict[str, int], size: int, *, records: int, value_bytes: int) -> None:
    (partitions,) = topic.values()
    left = size
    while left > 0:
        load = raw.produce(
            server.address,
            topic_id,
            connections=partitions,
            in_flight=4,
            records=records,
            value_bytes=value_bytes,
            seconds=0.5,
        )
        left -= load.bytes


def _recovery(size: int, records: int, value_bytes: int) -> Measure:
    partitions = 2

    def measure(server: Server, seconds: float) -> dict[str, float]:
        server.start()
        client = raw.Client(server.address)
        topic_id = client.create_topic("crash", partitions)
        client.close()
        _fill(server, topic_id, {"crash": partitions}, size, records=records, value_bytes=value_bytes)
        server.halt(signal.SIGKILL)
        data = Path(server.directory, "data")
        (data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        os.sync()
        gigabytes = sum(path.stat().st_size for path in data.glob("crash-*/*.log")) / 1e9
        begin = time.perf_counter()
        server.start(600)
        ready = server.ready_seconds
        crashed = _serve_all(server, {"crash": partitions}, begin)
        server.halt()
        begin = time.perf_counter()
        server.start(300)
        clean = _serve_all(server, {"crash": partitions}, begin)
        return {
            "recovery": (crashed - clean) / gigabytes,
            "start and recovery": crashed / gigabytes,
            "ready": ready,
            "GB": gigabytes,
        }

    return measure


STARTING += [
    Measurement(
        "start, 5,000 partitions of 3 segments, clean",
        many_partitions,
        (
            Figure("ready", "s", more_is_better=False, target=2),
            Figure("every partition serves", "s", more_is_better=False, target=2),
            Figure("RssAnon", "MB", more_is_better=False, target=1),
            Figure("VmRSS", "MB", more_is_better=False, target=1),
        ),
        fresh=True,
        most_rounds=1,
    ),
    Measurement(
        "start, 10 GB in 1,000 segments, clean",
        many_segments,
        (
            Figure("ready", "s", more_is_better=False, target=1, at_most=1),
            Figure("CPU until ready", "s", more_is_better=False, target=1),
            Figure("every partition serves", "s", more_is_better=False, target=1, at_most=1),
            Figure("ready, cold", "s", more_is_better=False, target=1, at_most=1),
            Figure("every partition serves, cold", "s", more_is_better=False, target=1),
            Figure("RssAnon", "MB", more_is_better=False, target=1),
        ),
        fresh=True,
        most_rounds=1,
    ),
]
for _title, _size, _records, _value_bytes, _target in (
    ("1 KB records, batches of 900 KB", 10_000_000_000, 880, 1000, 1),
    ("1 KB records, batches of 16 KB", 4_000_000_000, 16, 1000, 1),
    ("100 B records, batches of 16 KB", 2_000_000_000, 140, 100, 0),
    ("100 B records, one to a batch", 250_000_000, 1, 100, 0),
):
    STARTING.append(
        Measurement(
            f"recovery after SIGKILL, {_title}",
            _recovery(_size, _records, _value_bytes),
            (
                Figure("recovery", "s/GB", more_is_better=False, target=_target),
                Figure("start and recovery", "s/GB", more_is_better=False),
                Figure("ready", "s", more_is_better=False),
            ),
            fresh=True,
            most_rounds=1,
        )
    )
