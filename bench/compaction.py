"""Compaction: megabytes of log per second for the same batches, as each cleaner writes in its own log.

The topic is filled while it is not compacted. Then its cleanup.policy changes, so that one cleaning finds everything at
once. Every key is written twice, in another order the second time; the first value of each key is removed.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator

from bench import raw
from bench.measurements import Figure, Measure, Measurement, new_topic
from bench.servers import Server
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch

_BROKER, _TOPIC = 4, 2
_IN_FLIGHT = 16
_PATIENCE_S = 120


def _alter(client: raw.Client, kind: int, name: str, **configs: str) -> None:
    entries = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    assert answer.error_code == 0, answer


def _batches(count: int, records: int, value_bytes: int) -> Iterator[bytes]:
    rng = random.Random(count)
    now_ms = int(time.time() * 1000)
    keys = [b"%016d" % number for number in range(count * records // 2)]
    value = rng.randbytes(value_bytes)
    for _ in range(2):
        rng.shuffle(keys)
        for start in range(0, len(keys) - records + 1, records):
            yield build_batch([(key, value, (), now_ms) for key in keys[start : start + records]])


def _fill(client: raw.Client, topic_id: bytes, batches: Iterator[bytes]) -> None:
    waiting = 0
    for batch in batches:
        data = [PartitionProduceData(index=0, records=batch)]
        body = ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
        )
        client.send(body, raw.PRODUCE_VERSION)
        waiting += 1
        if waiting == _IN_FLIGHT:
            client.read_frame()
            waiting -= 1
    for _ in range(waiting):
        client.read_frame()


def _said(server: Server, topic: str) -> list[float]:
    """Return the MB/s of the cleanings of a topic, from the server's log."""
    text = (server.directory / "server.log").read_text(errors="replace")
    found = re.findall(
        rf"cleaned log {topic}-0 \(dirty section = \[\d+, \d+\]\):?\s+([\d.,]+) MB of log processed in [\d.,]+ seconds "
        r"\(([\d.,]+) MB/sec\)",
        text,
    )
    return [float(rate.replace(",", "")) for size, rate in found if float(size.replace(",", "")) > 0]


def _compaction(megabytes: int, records: int, value_bytes: int) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        client = raw.Client(server.address)
        _alter(client, _BROKER, "", log_cleaner_backoff_ms="200")
        topic, topic_id = new_topic(server, segment_bytes=str(64 << 20))
        size = len(build_batch([(bytes(16), bytes(value_bytes), (), 0)] * records))
        _fill(client, topic_id, _batches((megabytes << 20) // size, records, value_bytes))
        _alter(client, _TOPIC, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        begin = time.monotonic()
        while not (rates := _said(server, topic)):
            if time.monotonic() - begin > _PATIENCE_S:
                raise TimeoutError(f"{server.name} has not cleaned {topic}")
            time.sleep(0.2)
        client.close()
        return {"throughput": rates[0]}

    return measure


COMPACTION = [
    Measurement(
        f"compaction, {records} x {value_bytes:,} B a batch",
        _compaction(megabytes, records, value_bytes),
        (Figure("throughput", "MB/s", target=target),),
    )
    for megabytes, records, value_bytes, target in ((320, 16, 1000, 1), (192, 160, 100, 0), (128, 1, 100, 0))
]
