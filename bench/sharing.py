"""Share groups: consumption, acknowledgements, the first record of a new group, and the memory of members and locks.

Both sides read the same properties. Consumers are Apache Kafka's Java client (ShareLoad.java) and librdkafka. Rates
count from the first record, because new groups have a row of their own. Requests over the raw protocol go one at a
time.
"""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench import raw
from bench.clusters import THREE_NODES, Cluster
from bench.measurements import Figure, Found, Kind, Measurement, new_topic, send_times
from bench.servers import LoneNode, Server, free_port
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from pykbroker_wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_GROUP_CONFIG = 32
_RECORD_LIMIT = 1
_RETRIED = frozenset({14, 15, 16})  # loading, not available, not the coordinator
_PATIENCE_S = 120.0
_PROGRAM = Path(__file__).with_name("ShareLoad.java")

RECORDS = 300_000
NEW_GROUPS = 20
MEMBERS = 1_000
ACKNOWLEDGING = 50
LOCKING_PARTITIONS = 112
LOCKS = 10_000

SHARING: list[Measurement] = []


class QueueNode(LoneNode):
    """A combined node that allows groups of 1,000 members, and 10,000 locks in a share partition."""

    def __init__(self, side: type[Server]) -> None:
        super().__init__()
        self.name = f"{side.name} with large share groups"
        self.root = side.root
        self._side = side
        self._properties = self.directory / "server.properties"

    def prepare(self) -> None:
        controller = f"127.0.0.1:{free_port()}"
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.share.max.size": str(MEMBERS),
            "group.share.partition.max.record.locks": str(LOCKS),
            "group.share.max.partition.max.record.locks": str(LOCKS),
            # No lock ends while the others are taken.
            "group.share.record.lock.duration.ms": "600000",
            "group.share.max.record.lock.duration.ms": "600000",
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        command = self._side.formatting(self._properties, "--standalone", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg")
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} was not formatted: {done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return self._side.starting(self._properties)


# -- a group over the raw protocol -------------------------------------------------------------------------------------


def fill(address: raw.Address, topic_id: bytes, partition: int, records: int, per_batch: int = 1_000) -> None:
    """Write this many records of 100 bytes."""
    client = raw.Client(address)
    while records > 0:
        batch = bytes(raw.make_batch(min(per_batch, records), 100, -1))
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
        )
        error = client.call(request, raw.PRODUCE_VERSION).responses[0].partition_responses[0].error_code
        if error:
            raise RuntimeError(f"Produce: error {error}")
        records -= per_batch
    client.close()


def begin_at_the_start(address: raw.Address, groups: Iterable[str]) -> None:
    """Let groups that are not there yet begin with the first record."""
    client = raw.Client(address)
    reset = [AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")]
    resources = [
        AlterConfigsResource(resource_type=_GROUP_CONFIG, resource_name=group, configs=reset) for group in groups
    ]
    answer = client.call(IncrementalAlterConfigsRequest(resources=resources))
    failed = [each.error_message for each in answer.responses if each.error_code]
    client.close()
    if failed:
        raise RuntimeError(f"IncrementalAlterConfigs: {failed[0]}")


class Member:
    """A member of a share group on a connection of its own."""

    def __init__(self, address: raw.Address, group: str, topic: str, topic_id: bytes) -> None:
        self.group = group
        self.member = str(uuid.uuid4())
        self._topic = topic
        self._topic_id = topic_id
        self.client = raw.Client(address)
        self._epoch = 0
        self._session_epoch = 0

    def send_heartbeat(self) -> None:
        """Send a heartbeat. The first one joins, and its answer may wait for the assignment."""
        topics = [self._topic] if self._epoch == 0 else None
        self.client.send(
            ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=self.member, member_epoch=self._epoch, subscribed_topic_names=topics
            )
        )

    def heartbeat_answer(self) -> Any:
        answer = self.client.receive(ShareGroupHeartbeatRequest.API_KEY, ShareGroupHeartbeatRequest.LATEST_VERSION)
        if not answer.error_code:
            self._epoch = answer.member_epoch
        return answer

    def join(self, partitions: int) -> None:
        """Join, and wait until this many partitions are assigned."""
        deadline = time.monotonic() + _PATIENCE_S
        assigned = -1
        while assigned < partitions:
            self.client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 4)
            self.send_heartbeat()
            answer = self.heartbeat_answer()
            if (answer.error_code and answer.error_code not in _RETRIED) or time.monotonic() > deadline:
                raise RuntimeError(f"ShareGroupHeartbeat: error {answer.error_code}, {assigned} partitions")
            if answer.assignment is not None:
                assigned = sum(len(each.partitions) for each in answer.assignment.topic_partitions)
            if assigned < partitions:
                time.sleep(0.05)

    def acquire(self, partition: int, records: int) -> list[tuple[int, int]]:
        """Fetch, and return the ranges of offsets that were acquired."""
        asked = [FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(partition_index=partition)])]
        answer = self.client.call(
            ShareFetchRequest(
                group_id=self.group,
                member_id=self.member,
                share_session_epoch=self._session_epoch,
                max_wait_ms=1_000,
                min_bytes=1,
                max_bytes=50 << 20,
                max_records=records,
                batch_size=records,
                share_acquire_mode=_RECORD_LIMIT,
                topics=asked,
            )
        )
        if answer.error_code:
            raise RuntimeError(f"ShareFetch: error {answer.error_code} {answer.error_message}")
        self._session_epoch += 1
        found = [each for topic in answer.responses for each in topic.partitions if each.partition_index == partition]
        errors = [each.error_code for each in found if each.error_code]
        if errors:
            raise RuntimeError(f"ShareFetch of partition {partition}: error {errors[0]}")
        return [(one.first_offset, one.last_offset) for each in found for one in each.acquired_records]

    def accept(self, partition: int, first: int, last: int) -> None:
        self.send_accept(partition, first, last)
        self.accept_answer()

    def send_accept(self, partition: int, first: int, last: int) -> None:
        accepted = [AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])]
        named = [AcknowledgePartition(partition_index=partition, acknowledgement_batches=accepted)]
        self.client.send(
            ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.member,
                share_session_epoch=self._session_epoch,
                topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=named)],
            )
        )
        self._session_epoch += 1

    def accept_answer(self) -> None:
        answer = self.client.receive(ShareAcknowledgeRequest.API_KEY, ShareAcknowledgeRequest.LATEST_VERSION)
        error = answer.error_code or answer.responses[0].partitions[0].error_code
        if error:
            raise RuntimeError(f"ShareAcknowledge: error {error}")

    def close(self) -> None:
        self.client.close()


def _group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


# -- loads -------------------------------------------------------------------------------------------------------------


def java(bootstrap: str, topic: str, groups: list[str], records: int, mode: str) -> list[tuple[float, float]]:
    """Return of each group the milliseconds until its first record, and the records per second after it."""
    from testkit.oracle.kafka import kafka_libs

    command = ["java", "-Xmx256m", "-cp", f"{kafka_libs()}/*", str(_PROGRAM), bootstrap, topic, str(records), mode]
    done = subprocess.run([*command, *groups], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    found = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    return [(first, seen / nanoseconds * 1e9) for first, nanoseconds, seen in found]


def librdkafka(bootstrap: str, topic: str, groups: list[str], records: int, mode: str) -> list[tuple[float, float]]:
    """Return the same as `java`."""
    return [_librdkafka(bootstrap, topic, group, records, mode) for group in groups]


def _librdkafka(bootstrap: str, topic: str, group: str, records: int, mode: str) -> tuple[float, float]:
    consumer = share_consumer(bootstrap, group, mode)
    begin = time.perf_counter()
    first, seen = 0.0, 0
    consumer.subscribe([topic])
    while seen < records:
        polled = list(consumer.poll(timeout=0.5) or ())
        if polled and not first:
            first = time.perf_counter()
        if time.perf_counter() > begin + _PATIENCE_S:
            raise TimeoutError(f"{seen} of {records} records came")
        seen += len(polled)
        if mode == "explicit" and polled:
            for message in polled:
                consumer.acknowledge(message)
            errors = [error for error in consumer.commit_sync(30.0).values() if error is not None]
            if errors:
                raise RuntimeError(str(errors[0]))
    took = time.perf_counter() - first
    consumer.close()
    return (first - begin) * 1e3, seen / took


def share_consumer(bootstrap: str, group: str, mode: str) -> Any:
    from confluent_kafka import ShareConsumer

    return ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode})


#: (bootstrap servers, topic, groups, records of each, mode) -> what `java` says
Consume = Callable[[str, str, list[str], int, str], list[tuple[float, float]]]


def _consume(consume: Consume, mode: str, node: LoneNode, seconds: float) -> Found:
    topic, topic_id = new_topic(node)
    fill(node.address, topic_id, 0, RECORDS)
    group = _group()
    begin_at_the_start(node.address, [group])
    cpu = node.cpu_seconds()
    [(_, rate)] = consume(node.bootstrap, topic, [group], RECORDS, mode)
    return {"throughput": rate, "broker CPU, µs/record": (node.cpu_seconds() - cpu) / RECORDS * 1e6}


def _consume_of_three(consume: Consume, mode: str, cluster: Cluster, seconds: float) -> Found:
    topic = cluster.spread_topic(3)
    for partition, address in topic.leaders.items():
        fill(address, topic.topic_id, partition, RECORDS // 3)
    group = _group()
    address = topic.leaders[0]
    begin_at_the_start(address, [group])
    cpu = cluster.cpu_seconds()
    bootstrap = ",".join(cluster.address(number) for number in cluster.numbers)
    [(_, rate)] = consume(bootstrap, topic.name, [group], RECORDS, mode)
    return {"throughput": rate, "broker CPU, µs/record": (cluster.cpu_seconds() - cpu) / RECORDS * 1e6}


def _single_acknowledgements(node: LoneNode, seconds: float) -> Found:
    topic, topic_id = new_topic(node)
    fill(node.address, topic_id, 0, 50_000)
    group = _group()
    begin_at_the_start(node.address, [group])
    member = Member(node.address, group, topic, topic_id)
    member.join(1)
    latencies: list[float] = []
    warm = time.perf_counter() + 1.0
    end = warm + seconds
    while time.perf_counter() < end:
        for first, last in member.acquire(0, 500):
            for offset in range(first, last + 1):
                before = time.perf_counter()
                member.accept(0, offset, offset)
                after = time.perf_counter()
                if before > warm:
                    latencies.append(after - before)
    member.close()
    ordered = sorted(latencies)
    return {
        "acknowledged": len(ordered) / sum(ordered),
        "p50": ordered[len(ordered) // 2] * 1e6,
        "p99": ordered[int(len(ordered) * 0.99)] * 1e6,
    }


def _acknowledgements_of_many(node: LoneNode, seconds: float) -> Found:
    """Each member has one acknowledgement of one record under way, all in one share partition."""
    topic, topic_id = new_topic(node)
    fill(node.address, topic_id, 0, 400_000)
    group = _group()
    begin_at_the_start(node.address, [group])
    members = [Member(node.address, group, topic, topic_id) for _ in range(ACKNOWLEDGING)]
    members[0].join(1)
    acquired: dict[Member, list[int]] = {}
    acknowledged, took = 0, 0.0
    begin = time.perf_counter()
    while (now := time.perf_counter()) < begin + 1.0 + seconds:
        # Fetches are not measured, so all members fetch and then all acknowledge.
        for member in members:
            ranges = member.acquire(0, 100)
            acquired[member] = [offset for first, last in ranges for offset in range(first, last + 1)]
        before = time.perf_counter()
        for member in members:
            _accept_next(member, acquired[member])
        under_way, count = set(members), 0
        while under_way:
            for member in list(under_way):
                member.accept_answer()
                count += 1
                if acquired[member]:
                    _accept_next(member, acquired[member])
                else:
                    under_way.remove(member)
        if now > begin + 1.0:
            acknowledged += count
            took += time.perf_counter() - before
    for member in members:
        member.close()
    return {"acknowledged": acknowledged / took}


def _accept_next(member: Member, offsets: list[int]) -> None:
    offset = offsets.pop()
    member.send_accept(0, offset, offset)


def _end_to_end(mode: str, node: LoneNode, seconds: float) -> Found:
    from confluent_kafka import Producer

    topic, _ = new_topic(node)
    group = _group()
    begin_at_the_start(node.address, [group])
    consumer = share_consumer(node.bootstrap, group, mode)
    consumer.subscribe([topic])
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "acks": "all"})
    latencies: list[float] = []
    count = int(1000 * max(seconds, 3.0))

    def receive() -> None:
        while len(latencies) < count:
            polled = list(consumer.poll(timeout=5.0) or ())
            if not polled:
                return
            now = time.perf_counter()
            for message in polled:
                latencies.append(now - float(message.value() or b""))
                if mode == "explicit":
                    consumer.acknowledge(message)
            if mode == "explicit":
                consumer.commit_async()

    # The join and the first fetch are not measured.
    producer.produce(topic, repr(time.perf_counter()).encode())
    producer.flush()
    deadline = time.monotonic() + _PATIENCE_S
    while not (polled := list(consumer.poll(timeout=1.0) or ())):
        if time.monotonic() > deadline:
            raise TimeoutError("the first record did not come")
    if mode == "explicit":
        for message in polled:
            consumer.acknowledge(message)
    receiver = threading.Thread(target=receive)
    receiver.start()
    send_times(producer, topic, count)
    receiver.join()
    consumer.close()
    if len(latencies) < count:
        raise RuntimeError(f"{len(latencies)} of {count} records came")
    ordered = sorted(latencies[count // 10 :])
    return {"p50": ordered[len(ordered) // 2] * 1e3, "p95": ordered[int(len(ordered) * 0.95)] * 1e3}


def _first_records(consume: Consume, node: LoneNode, seconds: float) -> Found:
    topic, topic_id = new_topic(node)
    fill(node.address, topic_id, 0, 100)
    groups = [_group() for _ in range(NEW_GROUPS + 1)]
    begin_at_the_start(node.address, groups)
    # The first group makes the internal topics, unless an earlier row did.
    times = [first for first, _ in consume(node.bootstrap, topic, groups, 1, "implicit")][1:]
    return {"median": statistics.median(times), "worst": max(times)}


def _members(node: LoneNode, seconds: float) -> Found:
    node.start()
    topic, topic_id = new_topic(node, 100)
    group = _group()
    first = Member(node.address, group, topic, topic_id)
    first.join(100)
    members = [Member(node.address, group, topic, topic_id) for _ in range(MEMBERS - 1)]
    begin = time.perf_counter()
    for _ in range(2):
        for member in members:
            member.send_heartbeat()
        errors = [answer.error_code for answer in (each.heartbeat_answer() for each in members) if answer.error_code]
        if errors:
            raise RuntimeError(f"ShareGroupHeartbeat: {len(errors)} members got errors, the first is {errors[0]}")
    joined = time.perf_counter() - begin
    anonymous, resident = node.memory()
    for member in (first, *members):
        member.close()
    return {"joined": joined, "VmRSS": resident, "RssAnon": anonymous}


def _locks(node: LoneNode, seconds: float) -> Found:
    node.start()
    topic, topic_id = new_topic(node, LOCKING_PARTITIONS)
    for partition in range(LOCKING_PARTITIONS):
        fill(node.address, topic_id, partition, LOCKS + 1_000)
    group = _group()
    begin_at_the_start(node.address, [group])
    first = Member(node.address, group, topic, topic_id)
    first.join(LOCKING_PARTITIONS)
    # Each partition has a session of its own, which fetches nothing else. The members need not have joined.
    members = [Member(node.address, group, topic, topic_id) for _ in range(LOCKING_PARTITIONS)]
    for partition, member in enumerate(members):
        # The leader is loaded, and what is read to load it is not counted.
        member.acquire(partition, 1)
    before, _ = node.memory()
    locked = LOCKING_PARTITIONS
    for partition, member in enumerate(members):
        for start, last in member.acquire(partition, LOCKS):
            locked += last - start + 1
            # One record in the middle of each batch lets the whole batch have a state per offset.
            for offset in range(start + 500, last, 1_000):
                member.accept(partition, offset, offset)
    after, _ = node.memory()
    for member in (first, *members):
        member.close()
    return {"locks": locked, "RssAnon grows by": after - before}


def _warm_up(node: LoneNode, seconds: float) -> None:
    """Consume and acknowledge, because a JIT compiler optimises only then; both sides get the same load."""
    for mode in ("implicit", "explicit"):
        _consume(librdkafka, mode, node, seconds)
    _single_acknowledgements(node, seconds / 4)
    node.delete_topics()


QUEUES = Kind("share groups", QueueNode, _warm_up)
LARGE_QUEUES = Kind("share groups", QueueNode, _warm_up, alone=True)
_CLIENTS: dict[str, Consume] = {"Java": java, "librdkafka": librdkafka}
_GOALS = {"implicit": 1.0, "explicit": 1.5}


def _add(title: str, measure: Callable[[Any, float], Found], *figures: Figure, **fields: Any) -> None:
    kind = fields.pop("kind", QUEUES)
    part = "" if kind is QUEUES or kind is LARGE_QUEUES else f"{kind.name}, "
    SHARING.append(Measurement(f"{part}share groups, {title}", measure, figures, kind=kind, **fields))


for _mode, _goal in _GOALS.items():
    for _client, _load in _CLIENTS.items():
        _how = "implicit" if _mode == "implicit" else "commitSync per poll"
        _add(f"{_client}, {_how}", partial(_consume, _load, _mode), Figure("throughput", "records/s", target=_goal))
_add(
    "one record an acknowledgement",
    _single_acknowledgements,
    Figure("acknowledged", "records/s", target=3),
    Figure("p50", "µs", more_is_better=False, target=1),
    Figure("p99", "µs", more_is_better=False),
)
_add(
    f"one record an acknowledgement, {ACKNOWLEDGING} members",
    _acknowledgements_of_many,
    Figure("acknowledged", "records/s"),
)
for _mode in _GOALS:
    _add(
        f"end to end, librdkafka, 1,000 records/s, {_mode}",
        partial(_end_to_end, _mode),
        Figure("p50", "ms", more_is_better=False, target=2),
        Figure("p95", "ms", more_is_better=False),
    )
for _client, _load in _CLIENTS.items():
    _add(
        f"first record of a new group, {_client}",
        partial(_first_records, _load),
        Figure("median", "ms", more_is_better=False, at_most=300),
        Figure("worst", "ms", more_is_better=False, worst=True),
        most_rounds=1,
    )
_add(
    "1,000 members",
    _members,
    Figure("joined", "s", more_is_better=False),
    Figure("VmRSS", "MB", more_is_better=False, at_most=100),
    kind=LARGE_QUEUES,
    fresh=True,
    most_rounds=1,
)
_add(
    "1,000,000 locks in 112 partitions",
    _locks,
    Figure("RssAnon grows by", "MB", more_is_better=False, at_most=80),
    kind=LARGE_QUEUES,
    fresh=True,
    most_rounds=1,
)
for _mode, _goal in _GOALS.items():
    for _client, _load in _CLIENTS.items():
        _how = "implicit" if _mode == "implicit" else "commitSync per poll"
        _add(
            f"{_client}, {_how}",
            partial(_consume_of_three, _load, _mode),
            Figure("throughput", "records/s", target=_goal),
            kind=THREE_NODES,
        )
