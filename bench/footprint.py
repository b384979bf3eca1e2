"""The resources that a cluster of three nodes needs when it is idle, and with 10,000 partitions.

The idle cluster has a topic of 30 partitions with some records and a coordinator's topic, so that followers fetch from
their leaders as they do in use. The 10,000 partitions are those of 10 topics with three replicas each, so every node
has 10,000 logs. Each request creates one topic, because all at once are more records than Apache Kafka's controller
writes at a time.
"""

from __future__ import annotations

import time

from bench import raw
from bench.clusters import THREE_NODES, Cluster
from bench.measurements import Figure, Measurement
from bench.starting import settled_memory
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.nodes.nodes import GROUP

_IDLE_PARTITIONS = 30
_SETTLE_SECONDS = 10.0
_IDLE_SECONDS = 20.0
_TOPICS, _PARTITIONS = 10, 1_000
_WRITABLE_SECONDS = 600


def idle(cluster: Cluster, seconds: float) -> dict[str, float]:
    cluster.start()
    topic = cluster.spread_topic(_IDLE_PARTITIONS)
    raw.produce(
        topic.leaders,
        topic.topic_id,
        connections=_IDLE_PARTITIONS,
        in_flight=1,
        records=1,
        value_bytes=100,
        seconds=1.0,
    )
    cluster.keys_by_coordinator(GROUP)
    cluster.in_sync(topic.name, "__consumer_offsets")
    time.sleep(_SETTLE_SECONDS)
    cpu, begin = cluster.cpu_seconds(), time.perf_counter()
    time.sleep(max(_IDLE_SECONDS, seconds))
    share = (cluster.cpu_seconds() - cpu) / (time.perf_counter() - begin)
    anonymous, resident = cluster.memory()
    return {"CPU of three nodes, share of a core": share, "RssAnon of a node": anonymous, "VmRSS of a node": resident}


def ten_thousand_partitions(cluster: Cluster, seconds: float) -> dict[str, float]:
    cluster.start()
    cluster.spread_topic(3)
    names = [f"many-{number}" for number in range(_TOPICS)]
    client = raw.Client(cluster.nodes[1].address)
    cpu, begin = cluster.cpu_seconds(), time.perf_counter()
    for name in names:
        wanted = CreatableTopic(name=name, num_partitions=_PARTITIONS, replication_factor=3)
        answer = client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7).topics[0]
        if answer.error_code:
            raise RuntimeError(f"{cluster.name}: CreateTopics: error {answer.error_code} {answer.error_message}")
    client.close()
    created = time.perf_counter() - begin
    for name in names:
        leaders = cluster.leaders(name)
        for number, node in cluster.nodes.items():
            led = [index for index, leader in leaders.items() if leader == number]
            cluster.wait_until_leads(node, name, led, _WRITABLE_SECONDS)
    writable = time.perf_counter() - begin
    cluster.in_sync(*names)
    anonymous, resident = settled_memory(cluster.memory)
    return {
        "created": created,
        "all writable": writable,
        "RssAnon of a node": anonymous,
        "VmRSS of a node": resident,
        "CPU of three nodes, s": cluster.cpu_seconds() - cpu,
    }


_MEMORY = (
    Figure("RssAnon of a node", "MB", more_is_better=False, target=8),
    Figure("VmRSS of a node", "MB", more_is_better=False),
)
FOOTPRINT = [
    Measurement(
        "three nodes, idle",
        idle,
        (Figure("CPU of three nodes, share of a core", "", more_is_better=False, target=2), *_MEMORY),
        fresh=True,
        most_rounds=1,
        kind=THREE_NODES,
    ),
    Measurement(
        "three nodes, 10,000 partitions",
        ten_thousand_partitions,
        (
            Figure("created", "s", more_is_better=False),
            Figure("all writable", "s", more_is_better=False),
            *_MEMORY,
        ),
        fresh=True,
        most_rounds=1,
        kind=THREE_NODES,
    ),
]
