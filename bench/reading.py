"""Reads of data in memory and on the disk: warm fetches while a consumer reads evicted data, the speed of that
consumer, and its cost in memory.

Both brokers have the same bytes in their own files. Before a cold read these are fsynced and evicted with
posix_fadvise, and the rest of the machine's page cache stays as it is. PYKBROKER_BENCH_COLD_MB is the size of the read
(5,000 MB in the full run). The cold consumer is a separate process that fetches 1 MB at a time.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time

from bench import raw
from bench.measurements import Figure, Measurement, new_topic
from bench.servers import ROOT, Server
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.records.batch import BatchHeader

COLD_MB = int(os.environ.get("PYKBROKER_BENCH_COLD_MB", "5000"))
READING: list[Measurement] = []
_SIZE = struct.Struct(">i")


class Consumer:
    """Fetches repeatedly, each time from the offset where the last fetch ended."""

    def __init__(self, address: tuple[str, int], topic_id: bytes, fetch_bytes: int) -> None:
        self._topic_id = topic_id
        self._fetch_bytes = fetch_bytes
        self._client = raw.Client(address)
        self._buffer = bytearray(fetch_bytes + (2 << 20))
        self.offset = 0

    def fetch(self) -> int:
        """Return how many bytes of records came."""
        asked = FetchPartition(
            partition=0, fetch_offset=self.offset, current_leader_epoch=-1, partition_max_bytes=self._fetch_bytes
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[asked])],
        )
        self._client.send(request, raw.FETCH_VERSION)
        view = memoryview(self._buffer)
        self._receive(view[:4])
        (size,) = _SIZE.unpack_from(view)
        self._receive(view[:size])
        partition = raw.fetched(view[:size]).responses[0].partitions[0]
        if partition.error_code:
            raise RuntimeError(f"Fetch: error {partition.error_code}")
        records = raw.records_of(partition)
        position = 0
        while position + 61 <= len(records):
            header = BatchHeader.parse(records, position)
            if position + header.size_in_bytes > len(records):
                break  # Apache Kafka cuts off the last batch
            self.offset = header.next_offset
            position += header.size_in_bytes
        return position

    def _receive(self, view: memoryview) -> None:
        while view:
            count = self._client.socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]

    def close(self) -> None:
        self._client.close()


def _evict(server: Server, topic: str) -> None:
    for path in server.directory.rglob(f"{topic}-0/*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _fill(server: Server, megabytes: int, records: int = 90, value_bytes: int = 10_000) -> tuple[str, bytes]:
    name, topic_id = new_topic(server, segment_bytes=str(256 << 20))
    written = 0.0
    while written < megabytes:
        load = raw.produce(
            server.address,
            topic_id,
            connections=1,
            in_flight=4,
            records=records,
            value_bytes=value_bytes,
            seconds=0.5,
        )
        written += load.bytes / 1e6
    return name, topic_id


def _cold_consumer(server: Server, topic_id: bytes) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.reading", str(server.port), topic_id.hex()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "wire", "log", "raft"))},
        stdout=subprocess.PIPE,
    )


def _result(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Return megabytes and seconds."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("the cold consumer failed")
    megabytes, seconds = json.loads(output)
    return megabytes, seconds


class _Warm:
    """One consumer that fetches the beginning of a topic in memory repeatedly."""

    def __init__(self, server: Server, size: str, fetch_bytes: int, records: int, value_bytes: int) -> None:
        self.size = size
        _, topic_id = _fill(server, 1, records, value_bytes)
        self._consumer = Consumer(server.address, topic_id, fetch_bytes)

    def fetch(self) -> float:
        """Return the seconds until the response was read."""
        self._consumer.offset = 0
        begin = time.perf_counter()
        self._consumer.fetch()
        return time.perf_counter() - begin

    def close(self) -> None:
        self._consumer.close()


def _percentile(latencies: list[float], share: float) -> float:
    return sorted(latencies)[int(len(latencies) * share)] * 1e6


def cold_reads(server: Server, seconds: float) -> dict[str, float]:
    cold, cold_id = _fill(server, COLD_MB)
    # pykbroker does not cut batches, so the topic of the small fetches has small batches.
    warm = [_Warm(server, "16 KB", 16 << 10, 16, 980), _Warm(server, "1 MB", 1 << 20, 90, 10_000)]
    for _ in range(1_000):
        for consumer in warm:
            consumer.fetch()
    found: dict[str, float] = {}

    _evict(server, cold)
    cpu = server.cpu_seconds()
    megabytes, took = _result(_cold_consumer(server, cold_id))
    found["cold sequential read"] = megabytes / took
    found["broker CPU of the cold read, s/GB"] = (server.cpu_seconds() - cpu) / megabytes * 1e3

    alone: dict[str, list[float]] = {consumer.size: [] for consumer in warm}
    beside: dict[str, list[float]] = {consumer.size: [] for consumer in warm}

    def measure_alone() -> None:
        end = time.perf_counter() + seconds / 2
        while time.perf_counter() < end:
            for consumer in warm:
                alone[consumer.size].append(consumer.fetch())

    # Before and after, so that a drift of the machine's speed affects both.
    measure_alone()
    _evict(server, cold)
    before = server.memory()[0]
    most = before
    process = _cold_consumer(server, cold_id)
    while process.poll() is None:
        for _ in range(100):
            for consumer in warm:
                beside[consumer.size].append(consumer.fetch())
        most = max(most, server.memory()[0])
    _result(process)
    measure_alone()
    for consumer in warm:
        size = consumer.size
        consumer.close()
        found[f"warm {size} p99, alone"] = _percentile(alone[size], 0.99)
        found[f"warm {size} p99, beside"] = _percentile(beside[size], 0.99)
        found[f"warm {size} p50, alone"] = _percentile(alone[size], 0.5)
        found[f"warm {size} p50, beside"] = _percentile(beside[size], 0.5)
        found[f"warm {size} p99, times as long beside"] = (
            found[f"warm {size} p99, beside"] / found[f"warm {size} p99, alone"]
        )
    found["RssAnon grows by"] = most - before
    return found


READING.append(
    Measurement(
        f"Reading {COLD_MB / 1000:g} GB that was evicted",
        cold_reads,
        (
            Figure("cold sequential read", "MB/s", target=1),
            *(
                figure
                for size in ("16 KB", "1 MB")
                for figure in (
                    Figure(f"warm {size} p99, alone", "µs", more_is_better=False, target=1),
                    Figure(f"warm {size} p99, beside", "µs", more_is_better=False, target=1),
                    Figure(f"warm {size} p99, times as long beside", "x", more_is_better=False),
                )
            ),
            Figure("RssAnon grows by", "MB", more_is_better=False),
        ),
    )
)


def main() -> None:
    consumer = Consumer(("127.0.0.1", int(sys.argv[1])), bytes.fromhex(sys.argv[2]), 1 << 20)
    begin = time.perf_counter()
    total = 0
    while size := consumer.fetch():
        total += size
    print(json.dumps([total / 1e6, time.perf_counter() - begin]))


if __name__ == "__main__":
    main()
