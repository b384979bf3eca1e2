"""Throughput over the cores: one, two and four brokers of `pykbroker start --brokers`, and one Apache Kafka node.

A pykbroker node runs on one core, an Apache Kafka node on all. So one Apache Kafka node is compared with a cluster of
pykbroker processes. Topics have one replica, and each of eight producers has its own partition, led by the brokers in
turn.
"""

from __future__ import annotations

import socket
import time
import uuid
from functools import partial

from bench import raw
from bench.measurements import Figure, Kind, Measurement
from bench.servers import Pykbroker, Server
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

BROKERS = (1, 2, 4)
PRODUCERS = 8
IN_FLIGHT = 5
_READY_SECONDS = 60.0


class SpreadPykbroker(Pykbroker):
    """`pykbroker start --brokers N`: the process is the parent of the nodes."""

    def __init__(self, brokers: int) -> None:
        super().__init__()
        self.brokers = brokers
        self.port = _first_of(brokers)
        self.address = ("127.0.0.1", self.port)

    def command(self) -> list[str]:
        one_replica = ("default.replication.factor=1", "min.insync.replicas=1")
        return [
            *(*super().command(), "--brokers", str(self.brokers)),
            *(word for assignment in one_replica for word in ("--set", assignment)),
        ]

    def await_ready(self, timeout: float = _READY_SECONDS) -> None:
        super().await_ready(timeout)
        client = raw.Client(self.address)
        deadline = time.monotonic() + timeout
        while len(client.call(MetadataRequest(topics=[]), 12).brokers) < self.brokers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.brokers} brokers are not there after {timeout} s")
            time.sleep(0.01)
        client.close()


def _first_of(count: int) -> int:
    """Return a port that is free, with the ports after it."""
    while True:
        held: list[socket.socket] = []
        try:
            held.append(socket.socket())
            held[0].bind(("127.0.0.1", 0))
            first = int(held[0].getsockname()[1])
            for port in range(first + 1, first + count):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for each in held:
                each.close()


def _made(brokers: int, side: type[Server]) -> Server:
    return SpreadPykbroker(brokers) if side is Pykbroker else side()


def _new_topic(server: Server) -> tuple[dict[int, raw.Address], bytes]:
    """Return the leader of each partition, once it leads, and the topic's id."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    client = raw.Client(server.address)
    wanted = CreatableTopic(name=name, num_partitions=PRODUCERS, replication_factor=-1)
    made = client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7).topics[0]
    if made.error_code:
        raise RuntimeError(f"creating {name}: error {made.error_code} {made.error_message}")
    server.topics.append(name)
    leaders: dict[int, raw.Address] = {}
    while len(leaders) < PRODUCERS:
        answer = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
        at = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        leaders = {row.partition_index: at[row.leader_id] for row in answer.topics[0].partitions if row.leader_id in at}
    client.close()
    for address in set(leaders.values()):
        leader = raw.Client(address)
        leader.wait_for_leaders(name, [partition for partition, each in leaders.items() if each == address])
        leader.close()
    return leaders, made.topic_id


def _produce(records: int, value_bytes: int, unit: str, server: Server, seconds: float) -> dict[str, float]:
    leaders, topic_id = _new_topic(server)

    def load(duration: float) -> raw.Load:
        return raw.produce(
            leaders,
            topic_id,
            connections=PRODUCERS,
            in_flight=IN_FLIGHT,
            records=records,
            value_bytes=value_bytes,
            seconds=duration,
        )

    load(1.0)
    found = load(seconds)
    return {
        "throughput": found.megabytes_per_second if unit == "MB/s" else found.requests_per_second,
        "driver, share of a core": found.driver_share,
    }


def _warm_up(server: Server, seconds: float) -> None:
    for records, value_bytes in ((1, 100), (100, 100), (90, 10_000)):
        _produce(records, value_bytes, "req/s", server, seconds / 3)


SPREADING: list[Measurement] = []

for _brokers in BROKERS:
    _kind = Kind("over cores", partial(_made, _brokers), _warm_up)
    for _batch, _records, _value_bytes, _unit in (
        ("100 x 100 B", 100, 100, "req/s"),
        ("900 KB of 10 KB records", 90, 10_000, "MB/s"),
    ):
        SPREADING.append(
            Measurement(
                f"over cores, --brokers {_brokers}, {_batch}, {PRODUCERS} producers, {IN_FLIGHT} in flight",
                partial(_produce, _records, _value_bytes, _unit),
                (Figure("throughput", _unit),),
                kind=_kind,
            )
        )
