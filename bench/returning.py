"""Recovery of 2,000 logs after SIGKILL, and Produce to a healthy partition while they recover.

Each of the logs holds five batches of an idempotent producer, as applications leave them. After the start a new topic
is created, and requests go to it one by one until every one of the 2,000 partitions answers its end offset. Few of them
are asked at a time, so that asking is no load. Apache Kafka answers no client before it has recovered all its logs;
"every partition serves" counts from the start of the process for both.
"""

from __future__ import annotations

import signal
import threading
import time

from bench import raw
from bench.measurements import Figure, Measurement
from bench.servers import Server
from bench.starting import produce_everywhere
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch

RETURNING: list[Measurement] = []
_TOPIC = "many"
_PARTITIONS = 2_000
_BATCHES = 5
_AT_ONCE = 20
_SECONDS_AT_LEAST = 2.0


def _fill(client: raw.Client, topic_id: bytes) -> None:
    producer_id = client.producer_id()
    for sequence in range(_BATCHES):
        batch = build_batch(
            [(None, bytes(100), (), 0)], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        for first in range(0, _PARTITIONS, 500):
            produce_everywhere(client, topic_id, range(first, min(_PARTITIONS, first + 500)), batch)


def _await_all(address: tuple[str, int], returned: threading.Event) -> None:
    client = raw.Client(address)
    for first in range(0, _PARTITIONS, _AT_ONCE):
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(first, first + _AT_ONCE)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=_TOPIC, partitions=asked)])
        while any(found.error_code for found in client.call(request, 7).topics[0].partitions):
            time.sleep(0.02)
    client.close()
    returned.set()


def returning(server: Server, seconds: float) -> dict[str, float]:
    server.start()
    client = raw.Client(server.address)
    _fill(client, client.create_topic(_TOPIC, _PARTITIONS))
    client.close()
    server.halt(signal.SIGKILL)
    begin = time.perf_counter()
    server.start(300)
    client = raw.Client(server.address)
    topic_id = client.create_topic("healthy", 1)
    returned = threading.Event()
    waiting = threading.Thread(target=_await_all, args=(server.address, returned))
    waiting.start()
    data = [PartitionProduceData(index=0, records=build_batch([(None, bytes(100), (), 0)]))]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)],
    )
    took: list[float] = []
    all_serve = 0.0
    while not all_serve or time.perf_counter() - begin < _SECONDS_AT_LEAST:
        sent = time.perf_counter()
        answer = client.call(request, raw.PRODUCE_VERSION)
        took.append(time.perf_counter() - sent)
        if answer.responses[0].partition_responses[0].error_code:
            raise RuntimeError("Produce to a healthy partition failed")
        if not all_serve and returned.is_set():
            all_serve = time.perf_counter() - begin
        time.sleep(0.001)
    waiting.join()
    client.close()
    took.sort()
    return {
        "Produce p99": took[int(len(took) * 0.99)] * 1000,
        "Produce longest": took[-1] * 1000,
        "ready": server.ready_seconds,
        "every partition serves": all_serve,
    }


RETURNING.append(
    Measurement(
        "after SIGKILL, 2,000 logs come back",
        returning,
        (
            Figure("Produce p99", "ms", more_is_better=False, target=1),
            Figure("Produce longest", "ms", more_is_better=False),
            Figure("ready", "s", more_is_better=False),
            Figure("every partition serves", "s", more_is_better=False, target=1),
        ),
        fresh=True,
        most_rounds=1,
    )
)
