"""The measurements of `make bench`: one function per load, the same for every broker.

A measurement returns numbers by name. Those listed as figures are compared, the others are printed next to them. A list
of numbers has one for each repetition of an event, such as the kill of a node.

A measurement may have its own sides (sides.py): it then runs once, and returns the numbers of both.
"""

from __future__ import annotations

import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bench import raw
from bench.servers import LoneNode, Server
from bench.sides import KAFKA_AND_PYKBROKER, Sides
from pykbroker_wire.records.compression import Codec

#: The numbers that one measurement of one side found.
Found = Mapping[str, float | list[float]]
Measure = Callable[[Server, float], dict[str, float]]


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    more_is_better: bool = True
    #: how many times better our side must be; 0 if it is only reported
    target: float = 0.0
    #: the limit for our side, whatever the other side's figure is, or without another side; None without a limit
    at_most: float | None = None
    #: the name of the numbers that it is made from, if that differs
    of: str = ""
    #: True for the worst of these numbers instead of their median
    worst: bool = False

    @property
    def source(self) -> str:
        return self.of or self.name

    def made_of(self, values: Sequence[float]) -> float:
        """Return the one number that stands for those of all rounds."""
        if not self.worst:
            return statistics.median(values)
        return min(values) if self.more_is_better else max(values)


class Subject(Protocol):
    """The subject of a measurement: a broker, or a cluster."""

    def start(self) -> object: ...
    def delete_topics(self) -> object: ...
    def stop(self) -> object: ...


S = TypeVar("S", bound=Subject)


@dataclass(frozen=True)
class Kind(Generic[S]):
    """A kind of subject: how a side makes one, and how it is warmed up, in about the given number of seconds."""

    name: str
    make: Callable[[type[Server]], S]
    warm_up: Callable[[S, float], None]
    #: True if a fresh subject needs the machine for itself, so that subjects of other measurements are stopped first
    alone: bool = False


def _one_node(side: type[Server]) -> Server:
    return side()


def new_topic(server: LoneNode, partitions: int = 1, **configs: str) -> tuple[str, bytes]:
    client = raw.Client(server.address)
    name = f"bench-{uuid.uuid4().hex[:12]}"
    topic_id = client.create_topic(name, partitions, **configs)
    client.close()
    server.topics.append(name)
    return name, topic_id


def warm_up(server: Server, seconds: float) -> None:
    """Run the code before it is measured, because a JIT compiler optimises only then; both sides get the same load."""
    name, topic_id = new_topic(server, 4)
    for connections, in_flight, records in ((1, 50, 1), (4, 50, 1), (1, 1, 1), (1, 4, 100)):
        raw.produce(
            server.address,
            topic_id,
            connections=connections,
            in_flight=in_flight,
            records=records,
            value_bytes=100,
            seconds=seconds / 5,
        )
    raw.produce(server.address, topic_id, connections=1, in_flight=4, records=90, value_bytes=10_000, seconds=0.5)
    client = raw.Client(server.address)
    raw.fetch(
        server.address, topic_id, client.end_offset(name, 0), fetch_bytes=1 << 16, in_flight=4, seconds=seconds / 5
    )
    client.close()


ONE_NODE = Kind("one node", _one_node, warm_up)


@dataclass(frozen=True)
class Measurement:
    title: str
    measure: Callable[[Any, float], Found]
    figures: tuple[Figure, ...]
    #: True if it takes a subject that was not started, and starts it
    fresh: bool = False
    #: at most this many rounds; None for as many as the run has
    most_rounds: int | None = None
    kind: Kind[Any] = ONE_NODE
    sides: Sides = KAFKA_AND_PYKBROKER

    @property
    def has_own_sides(self) -> bool:
        return self.sides != KAFKA_AND_PYKBROKER


MEASUREMENTS: list[Measurement] = []


def measurement(
    title: str, *figures: Figure, fresh: bool = False, most_rounds: int | None = None
) -> Callable[[Measure], Measure]:
    def add(function: Measure) -> Measure:
        MEASUREMENTS.append(Measurement(title, function, figures, fresh, most_rounds))
        return function

    return add


@measurement(
    "start",
    Figure("ready", "s", more_is_better=False, target=10),
    Figure("RssAnon idle", "MB", more_is_better=False, target=8),
    Figure("VmRSS idle", "MB", more_is_better=False),
    fresh=True,
)
def start(server: Server, seconds: float) -> dict[str, float]:
    server.start()
    time.sleep(2)
    anonymous, resident = server.memory()
    return {"ready": server.ready_seconds, "RssAnon idle": anonymous, "VmRSS idle": resident}


def _produce(
    connections: int, in_flight: int, records: int, value_bytes: int, unit: str, codec: Codec = Codec.NONE
) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        _, topic_id = new_topic(server, connections)
        # Warm up the JIT compiler of the one side; the other side gets the same load.
        raw.produce(
            server.address,
            topic_id,
            connections=connections,
            in_flight=in_flight,
            records=records,
            value_bytes=value_bytes,
            seconds=1.0,
            codec=codec,
        )
        cpu = server.cpu_seconds()
        load = raw.produce(
            server.address,
            topic_id,
            connections=connections,
            in_flight=in_flight,
            records=records,
            value_bytes=value_bytes,
            seconds=seconds,
            codec=codec,
        )
        found = {
            "broker CPU, µs/request": (server.cpu_seconds() - cpu) / load.requests * 1e6,
            "driver, share of a core": load.driver_share,
        }
        if unit == "MB/s":
            found["throughput"] = load.megabytes_per_second
        else:
            found["throughput"] = load.requests_per_second
        if load.latencies:
            found["p50"] = load.percentile(0.5) * 1e6
            found["p99"] = load.percentile(0.99) * 1e6
        return found

    return measure


def _add_produce(
    title: str,
    connections: int,
    in_flight: int,
    records: int,
    value_bytes: int,
    target: float,
    unit: str = "req/s",
    codec: Codec = Codec.NONE,
) -> None:
    figures = [Figure("throughput", unit, target=target)]
    if in_flight == 1:
        figures.append(Figure("p50", "µs", more_is_better=False))
        figures.append(Figure("p99", "µs", more_is_better=False, target=1))
    MEASUREMENTS.append(
        Measurement(title, _produce(connections, in_flight, records, value_bytes, unit, codec), tuple(figures))
    )


_add_produce("Produce 1 x 100 B, 1 connection x 50", 1, 50, 1, 100, 3)
_add_produce("Produce 1 x 100 B, 4 connections x 50", 4, 50, 1, 100, 2)
_add_produce("Produce 1 x 100 B, one in flight", 1, 1, 1, 100, 1)
_add_produce("Produce 100 x 100 B, 1 connection x 50", 1, 50, 100, 100, 0)
_add_produce("Produce 1000 x 100 B, 1 connection x 10", 1, 10, 1000, 100, 0)
_add_produce("Produce 900 KB of one record, 4 in flight", 1, 4, 1, 900_000, 1.2, "MB/s")
_add_produce("Produce 900 KB of 10 KB records, 4 in flight", 1, 4, 90, 10_000, 1.2, "MB/s")
_add_produce("Produce 900 KB of 1 KB records, 4 in flight", 1, 4, 880, 1_000, 1, "MB/s")
_add_produce("Produce 900 KB of 100 B records, 4 in flight", 1, 4, 8_000, 100, 0, "MB/s")
# The records are twice as many bytes, so that such a batch is checked off the loop (replica/batch_checks.py).
_add_produce("Produce 900 KB of 1 KB records, lz4, 4 in flight", 1, 4, 1_700, 1_000, 1, "MB/s", Codec.LZ4)
_add_produce("Produce 900 KB of 1 KB records, zstd, 4 in flight", 1, 4, 1_700, 1_000, 1, "MB/s", Codec.ZSTD)


@measurement("Fetch 1 MB, warm, 4 in flight", Figure("throughput", "MB/s", target=1.2))
def fetch(server: Server, seconds: float) -> dict[str, float]:
    name, topic_id = new_topic(server)
    raw.produce(server.address, topic_id, connections=1, in_flight=4, records=90, value_bytes=10_000, seconds=0.3)
    client = raw.Client(server.address)
    end = client.end_offset(name, 0)
    client.close()
    raw.fetch(server.address, topic_id, end, fetch_bytes=1 << 20, in_flight=4, seconds=0.5)
    load = raw.fetch(server.address, topic_id, end, fetch_bytes=1 << 20, in_flight=4, seconds=seconds)
    return {"throughput": load.megabytes_per_second, "driver, share of a core": load.driver_share}


def _librdkafka_produce(codec: str, messages: int) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        from confluent_kafka import Producer

        name, _ = new_topic(server)
        value = _half_compressible(1000)
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "compression.type": codec,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        failures: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failures.append(error)

        begin = time.perf_counter()
        for number in range(messages):
            while True:
                try:
                    producer.produce(name, value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()
        elapsed = time.perf_counter() - begin
        if failures:
            raise RuntimeError(f"{len(failures)} messages failed: {failures[0]}")
        return {"throughput": messages / elapsed}

    return measure


def send_times(producer: Any, topic: str, count: int) -> None:
    """Send so many records with a librdkafka producer, 1,000 a second. Its value is the time of its sending."""
    begin = time.perf_counter()
    for number in range(count):
        while time.perf_counter() < begin + number / 1000:
            producer.poll(0.0002)
        producer.produce(topic, repr(time.perf_counter()).encode())
    producer.flush()


def _half_compressible(size: int) -> bytes:
    import os

    return os.urandom(size // 2) + bytes(size - size // 2)


for _codec, _messages in (("none", 100_000), ("lz4", 400_000)):
    MEASUREMENTS.append(
        Measurement(
            f"librdkafka producer, 1 KB, {_codec}",
            _librdkafka_produce(_codec, _messages),
            (Figure("throughput", "msg/s", target=1),),
        )
    )


@measurement("librdkafka consumer, 1 KB", Figure("throughput", "msg/s", target=1))
def librdkafka_consume(server: Server, seconds: float) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    messages = 300_000
    name, topic_id = new_topic(server)
    raw.produce(server.address, topic_id, connections=1, in_flight=4, records=880, value_bytes=1_000, seconds=1.5)
    client = raw.Client(server.address)
    messages = min(messages, client.end_offset(name, 0))
    client.close()
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    begin = time.perf_counter()
    got = 0
    while got < messages:
        for message in consumer.consume(10_000, 1.0):
            if message.error():
                raise RuntimeError(message.error())
            got += 1
    elapsed = time.perf_counter() - begin
    consumer.close()
    return {"throughput": got / elapsed}


@measurement(
    "end to end, librdkafka, 1,000 records/s",
    Figure("p50", "ms", more_is_better=False, target=1),
    Figure("p99", "ms", more_is_better=False, target=1),
)
def end_to_end(server: Server, seconds: float) -> dict[str, float]:
    import threading

    from confluent_kafka import Consumer, Producer, TopicPartition

    name, _ = new_topic(server)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "e2e",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "acks": "all"})
    latencies: list[float] = []
    count = int(1000 * max(seconds, 3.0))

    def receive() -> None:
        while len(latencies) < count:
            message = consumer.poll(5.0)
            if message is None:
                return
            latencies.append(time.perf_counter() - float(message.value() or b""))

    # The connection, the leader and the first fetch are not measured.
    producer.produce(name, repr(time.perf_counter()).encode())
    producer.flush()
    while consumer.poll(1.0) is None:
        pass
    receiver = threading.Thread(target=receive)
    receiver.start()
    send_times(producer, name, count)
    receiver.join()
    consumer.close()
    ordered = sorted(latencies[count // 10 :])
    return {"p50": ordered[len(ordered) // 2] * 1e3, "p99": ordered[int(len(ordered) * 0.99)] * 1e3}


@measurement(
    "end to end, Apache Kafka's EndToEndLatency",
    Figure("p50", "ms", more_is_better=False, target=1),
    Figure("p99", "ms", more_is_better=False, target=1),
)
def end_to_end_tool(server: Server, seconds: float) -> dict[str, float]:
    import re

    from testkit.oracle.kafka import kafka_libs

    name, _ = new_topic(server)
    command = ["java", "-Xmx256m", "-cp", f"{kafka_libs()}/*", "org.apache.kafka.tools.EndToEndLatency"]
    arguments = [
        "--bootstrap-server",
        server.bootstrap,
        "--topic",
        name,
        "--num-records",
        "5000",
        "--producer-acks",
        "all",
        "--record-size",
        "1024",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"50th = (\d+), 99th = (\d+)", done.stdout)
    if found is None:
        raise RuntimeError(done.stdout + done.stderr)
    # The tool truncates to whole milliseconds.
    return {"p50": float(found[1]) + 0.5, "p99": float(found[2]) + 0.5}


@measurement(
    "topic of 1,000 partitions",
    Figure("created", "s", more_is_better=False, target=1),
    Figure("all writable", "s", more_is_better=False),
    Figure("Metadata, one at a time", "req/s"),
    Figure("RssAnon after", "MB", more_is_better=False),
    fresh=True,
)
def thousand_partitions(server: Server, seconds: float) -> dict[str, float]:
    from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    server.start()
    client = raw.Client(server.address)
    client.create_topic("warm-up", 1)
    begin = time.perf_counter()
    topic = CreatableTopic(name="thousand", num_partitions=1000, replication_factor=1)
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    created = time.perf_counter() - begin
    if answer.topics[0].error_code:
        raise RuntimeError(f"CreateTopics: error {answer.topics[0].error_code}")
    asked = ListOffsetsTopic(
        name="thousand", partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(1000)]
    )
    while True:
        found = client.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions
        if len(found) == 1000 and not any(partition.error_code for partition in found):
            break
        time.sleep(0.005)
    writable = time.perf_counter() - begin
    rate = _metadata_rate(client, "thousand", seconds)
    time.sleep(1)
    anonymous, _ = server.memory()
    client.close()
    return {
        "created": created,
        "all writable": writable,
        "Metadata, one at a time": rate,
        "RssAnon after": anonymous,
    }


def _metadata_rate(client: raw.Client, topic: str, seconds: float) -> float:
    """Return requests per second; the responses are counted, not decoded."""
    from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    frame = client.frame(request, 12)
    count, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        client.socket.sendall(frame)
        client.read_frame()
        count += 1
    return count / elapsed


@measurement(
    "1,000 idle consumers",
    Figure("CPU, share of a core", "", more_is_better=False, target=2),
    Figure("memory per connection", "KB", more_is_better=False),
    most_rounds=1,
)
def idle_consumers(server: Server, seconds: float) -> dict[str, float]:
    _, topic_id = new_topic(server)
    before, _ = server.memory()
    consumers = raw.IdleConsumers(server.address, topic_id, 1000)
    consumers.run(2.0)
    cpu, begin = server.cpu_seconds(), time.perf_counter()
    consumers.run(max(seconds, 5.0))
    share = (server.cpu_seconds() - cpu) / (time.perf_counter() - begin)
    after, _ = server.memory()
    consumers.close()
    return {"CPU, share of a core": share, "memory per connection": max(0.0, after - before) * 1024 / 1000}
