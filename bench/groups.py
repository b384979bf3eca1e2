"""Groups: offset commits per second, a hundred members that join, ten thousand idle groups.

Commits are prebuilt requests of one offset each over ten groups, pipelined, or one at a time. Each joining member is a
connection that does what a consumer does, without its pauses: a heartbeat every 20 ms until the group is stable. Idle
groups have one member each that sends a heartbeat every three seconds, as consumers do.
"""

from __future__ import annotations

import heapq
import selectors
import struct
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import Any

from bench import raw
from bench.measurements import Figure, Measure, Measurement, new_topic
from bench.servers import Server
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from testkit.nodes.wire import frame_of

COMMIT_VERSION = 10
#: in an OffsetCommit 10 answer for one partition: correlation id, tags, throttle time, lengths, topic id, index
_COMMIT_ERROR_AT = 4 + 1 + 4 + 1 + 16 + 1 + 4
_SIZE = struct.Struct(">i")
_INT16 = struct.Struct(">h")

MEMBERS = 100
PARTITIONS = 200
IDLE_GROUPS = 10_000
IDLE_CONNECTIONS = 50
HEARTBEAT_SECONDS = 3.0
_PAUSE = 0.02

_RETRIED = frozenset({14, 15, 16})  # loading, not available, not the coordinator
_MEMBER_ID_REQUIRED = 79
_REBALANCE_IN_PROGRESS = 27
_ILLEGAL_GENERATION = 22

GROUPS: list[Measurement] = []


def _measurement(title: str, *figures: Figure, most_rounds: int | None = None) -> Callable[[Measure], Measure]:
    def add(function: Measure) -> Measure:
        GROUPS.append(Measurement(title, function, figures, most_rounds=most_rounds))
        return function

    return add


def ready(client: raw.Client, topic_id: bytes, groups: list[str]) -> None:
    """Wait until the offsets topic exists and its coordinators answer."""
    deadline = time.monotonic() + 60
    for group in groups:
        while True:
            client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
            answer = client.call(commit_request(group, topic_id, [(0, 1)]), COMMIT_VERSION)
            error = answer.topics[0].partitions[0].error_code
            if not error:
                break
            if error not in _RETRIED or time.monotonic() > deadline:
                raise RuntimeError(f"OffsetCommit of {group}: error {error}")
            time.sleep(0.02)


def commit_request(group: str, topic_id: bytes, offsets: list[tuple[int, int]]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                    for index, offset in offsets
                ],
            )
        ],
    )


# -- commits -----------------------------------------------------------------------------------------------------------


def commit(address: tuple[str, int], frames: list[bytes], *, in_flight: int, seconds: float) -> raw.Load:
    """Keep `in_flight` unanswered commits on one connection for a time."""
    client = raw.Client(address)
    sock = client.socket
    load = raw.Load()
    received = bytearray()
    cpu, start = time.process_time(), time.perf_counter()
    end = start + seconds
    number = outstanding = 0
    sock.sendall(b"".join(frames[index % len(frames)] for index in range(in_flight)))
    number = outstanding = in_flight
    sent = start
    while outstanding:
        data = sock.recv(262144)
        if not data:
            raise ConnectionError("the broker closed the connection")
        received += data
        position = answered = 0
        while len(received) - position >= 4:
            (size,) = _SIZE.unpack_from(received, position)
            if len(received) - position - 4 < size:
                break
            (error,) = _INT16.unpack_from(received, position + 4 + _COMMIT_ERROR_AT)
            if error:
                raise RuntimeError(f"OffsetCommit was answered with error {error}")
            position += 4 + size
            answered += 1
        del received[:position]
        load.requests += answered
        outstanding -= answered
        now = time.perf_counter()
        if in_flight == 1 and answered:
            load.latencies.append(now - sent)
        if now < end and answered:
            sent = now
            sock.sendall(b"".join(frames[(number + index) % len(frames)] for index in range(answered)))
            number += answered
            outstanding += answered
    load.seconds = time.perf_counter() - start
    load.driver_cpu = time.process_time() - cpu
    client.close()
    return load


def _warm_commits(server: Server, frames: list[bytes], in_flight: int) -> None:
    """Commit until a second brings no more commits than the one before, because before the JIT compiles its code, a
    coordinator is thirty times slower (286/s in its first second, 6,500/s warm)."""
    before, still = 0.0, 0
    for _ in range(20):
        rate = commit(server.address, frames, in_flight=in_flight, seconds=1).requests_per_second
        still = still + 1 if rate < before * 1.05 else 0
        before = max(before, rate)
        if still == 2:
            return


def _commits(in_flight: int) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        _, topic_id = new_topic(server)
        groups = [f"bench-{uuid.uuid4().hex[:12]}" for _ in range(10)]
        client = raw.Client(server.address)
        ready(client, topic_id, groups)
        client.close()
        frames = [
            frame_of(commit_request(group, topic_id, [(0, 1)]), COMMIT_VERSION, client_id=raw.CLIENT_ID)
            for group in groups
        ]
        _warm_commits(server, frames, in_flight)
        cpu = server.cpu_seconds()
        load = commit(server.address, frames, in_flight=in_flight, seconds=seconds)
        found = {
            "commits/s": load.requests_per_second,
            "broker CPU, µs/commit": (server.cpu_seconds() - cpu) / load.requests * 1e6,
            "driver, share of a core": load.driver_share,
        }
        if load.latencies:
            found["p99"] = load.percentile(0.99) * 1000
        return found

    return measure


_measurement("OffsetCommit, 50 in flight", Figure("commits/s", "/s", target=2))(_commits(50))
_measurement(
    "OffsetCommit, 1 in flight",
    Figure("commits/s", "/s", target=2),
    Figure("p99", "ms", more_is_better=False, target=1),
)(_commits(1))


# -- members -----------------------------------------------------------------------------------------------------------

#: The steps of a member: it yields (request, version) and gets the response, or yields seconds to wait.
Script = Generator[Any, Any, None]


class _Runner:
    """Many members, each a generator on a connection of its own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._waiting: list[tuple[float, int]] = []
        self._lanes: list[tuple[raw.Client, Script, bytearray]] = []
        self._asked: dict[int, tuple[int, int]] = {}

    def add(self, script: Script) -> None:
        client = raw.Client(self._address)
        number = len(self._lanes)
        self._lanes.append((client, script, bytearray()))
        self._selector.register(client.socket, selectors.EVENT_READ, number)

    def run(self) -> None:
        """Run until every script has ended."""
        self._left = len(self._lanes)
        for number in range(len(self._lanes)):
            self._step(number, None)
        deadline = time.monotonic() + 120
        while self._left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._left} members were not done after two minutes")
            now = time.perf_counter()
            wait = max(0.0, self._waiting[0][0] - now) if self._waiting else 1.0
            for key, _ in self._selector.select(wait):
                self._receive(key.data)
            now = time.perf_counter()
            while self._waiting and self._waiting[0][0] <= now:
                self._step(heapq.heappop(self._waiting)[1], None)
        for client, _, _ in self._lanes:
            client.close()

    def _receive(self, number: int) -> None:
        client, _, received = self._lanes[number]
        data = client.socket.recv(262144)
        if not data:
            raise ConnectionError("the broker closed a connection")
        received += data
        if len(received) < 4 or len(received) < 4 + _SIZE.unpack_from(received)[0]:
            return
        key, version = self._asked[number]
        frame = bytes(received[4:])
        received.clear()
        self._step(number, decode_response(key, version, frame)[1])

    def _step(self, number: int, answer: Any) -> None:
        client, script, _ = self._lanes[number]
        try:
            asked = script.send(answer)
        except StopIteration:
            self._left -= 1
            return
        if isinstance(asked, float):
            heapq.heappush(self._waiting, (time.perf_counter() + asked, number))
            return
        request, version = asked
        self._asked[number] = client.send(request, version)


class _Group:
    """The driver's view of a group whose members it plays."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: member -> the generation (or epoch) in which it has its assignment
        self.generations: dict[int, int] = {}
        self.owned: dict[int, int] = {}
        self.rebalances = 0
        self.stable_at = 0.0

    def settled(self, members: int, generation: int) -> bool:
        return len(self.generations) == members and set(self.generations.values()) == {generation}


def _classic(group: _Group, number: int, members: int) -> Script:
    """Join, sync, heartbeat; rejoin at each rebalance, until all members are in one generation."""
    member_id = ""
    while True:
        join = JoinGroupRequest(
            group_id=group.name,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        )
        answer = yield join, 9
        if answer.error_code == _MEMBER_ID_REQUIRED:
            member_id = answer.member_id
            continue
        if answer.error_code:
            raise RuntimeError(f"JoinGroup: error {answer.error_code}")
        member_id, generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == member_id:
            group.rebalances += 1
            assignments = [
                SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"x") for member in answer.members
            ]
        answer = yield (
            SyncGroupRequest(
                group_id=group.name,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
            5,
        )
        if answer.error_code in (_REBALANCE_IN_PROGRESS, _ILLEGAL_GENERATION):
            continue
        if answer.error_code:
            raise RuntimeError(f"SyncGroup: error {answer.error_code}")
        group.generations[number] = generation
        if group.settled(members, generation):
            group.stable_at = time.perf_counter()
        while True:
            if group.stable_at:
                return
            yield _PAUSE
            if group.stable_at:
                return
            heartbeat = HeartbeatRequest(group_id=group.name, generation_id=generation, member_id=member_id)
            answer = yield heartbeat, 4
            if answer.error_code in (_REBALANCE_IN_PROGRESS, _ILLEGAL_GENERATION):
                break
            if answer.error_code:
                raise RuntimeError(f"Heartbeat: error {answer.error_code}")


def _consumer(group: _Group, number: int, members: int, topic: str) -> Script:
    """Send heartbeats of KIP-848 and own the assigned partitions, until all members are in one epoch and own all."""
    member_id, epoch = uuid.uuid4().hex, 0
    owned: list[RequestTopicPartitions] = []
    first = True
    while True:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group.name,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if first else -1,
            subscribed_topic_names=[topic] if first else None,
            topic_partitions=owned,
        )
        first = False
        answer = yield request, 1
        if answer.error_code:
            raise RuntimeError(f"ConsumerGroupHeartbeat: error {answer.error_code} {answer.error_message}")
        epoch = answer.member_epoch
        if answer.assignment is not None:
            owned = [
                RequestTopicPartitions(topic_id=each.topic_id, partitions=list(each.partitions))
                for each in answer.assignment.topic_partitions
            ]
        group.generations[number] = epoch
        group.owned[number] = sum(len(each.partitions) for each in owned)
        if group.settled(members, epoch) and sum(group.owned.values()) == PARTITIONS and not group.stable_at:
            group.stable_at = time.perf_counter()
        if group.stable_at:
            return
        yield _PAUSE
        if group.stable_at:
            return


def _joins(make: Callable[[_Group, int, int, str], Script]) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        topic, topic_id = new_topic(server, PARTITIONS)
        group = _Group(f"bench-{uuid.uuid4().hex[:12]}")
        client = raw.Client(server.address)
        ready(client, topic_id, [f"{group.name}-other"])
        client.close()
        runner = _Runner(server.address)
        for number in range(MEMBERS):
            runner.add(make(group, number, MEMBERS, topic))
        cpu, start = server.cpu_seconds(), time.perf_counter()
        runner.run()
        found = {
            "stable after": group.stable_at - start,
            "broker CPU, s": server.cpu_seconds() - cpu,
        }
        if group.rebalances:
            found["rebalances"] = float(group.rebalances)
        return found

    return measure


_measurement(
    f"{MEMBERS} members join, classic protocol",
    Figure("stable after", "s", more_is_better=False, target=1),
)(_joins(lambda group, number, members, topic: _classic(group, number, members)))
_measurement(
    f"{MEMBERS} members join, {PARTITIONS} partitions, consumer protocol (KIP-848)",
    Figure("stable after", "s", more_is_better=False, target=1),
)(_joins(_consumer))


# -- idle groups -------------------------------------------------------------------------------------------------------


def _idle(names: list[str], beating_seconds: float, count: list[int]) -> Script:
    """Play the only member of each of these groups: it joins all of them, then they send heartbeats in turn."""
    members: list[tuple[str, str, int]] = []
    for name in names:
        member_id = ""
        while True:
            answer = yield (
                JoinGroupRequest(
                    group_id=name,
                    session_timeout_ms=45_000,
                    rebalance_timeout_ms=60_000,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
                ),
                9,
            )
            member_id = answer.member_id
            if not answer.error_code:
                break
            if answer.error_code in _RETRIED:
                yield _PAUSE
            elif answer.error_code != _MEMBER_ID_REQUIRED:
                raise RuntimeError(f"JoinGroup: error {answer.error_code}")
        generation = answer.generation_id
        answer = yield (
            SyncGroupRequest(
                group_id=name,
                generation_id=generation,
                member_id=member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")],
            ),
            5,
        )
        if answer.error_code:
            raise RuntimeError(f"SyncGroup: error {answer.error_code}")
        members.append((name, member_id, generation))
    count[0] += 1
    while count[0] < IDLE_CONNECTIONS:
        yield _PAUSE
    if not count[1]:
        count[1] = 1
    begin = time.perf_counter()
    interval = HEARTBEAT_SECONDS / len(members)
    for number, (name, member_id, generation) in enumerate(_endless(members)):
        due = begin + number * interval
        now = time.perf_counter()
        if now - begin > beating_seconds:
            break
        if due > now:
            yield due - now
        answer = yield HeartbeatRequest(group_id=name, generation_id=generation, member_id=member_id), 4
        if answer.error_code:
            raise RuntimeError(f"Heartbeat: error {answer.error_code}")
        count[2] += 1
    for name, member_id, _ in members:
        yield LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=member_id)]), 5


def _endless(members: list[tuple[str, str, int]]) -> Iterator[tuple[str, str, int]]:
    while True:
        yield from members


@_measurement(
    f"{IDLE_GROUPS:,} groups of one member, a heartbeat every 3 s",
    Figure("broker CPU, share of a core", "", more_is_better=False, target=1),
    most_rounds=1,
)
def idle_groups(server: Server, seconds: float) -> dict[str, float]:
    _, topic_id = new_topic(server)
    prefix = f"bench-{uuid.uuid4().hex[:12]}"
    client = raw.Client(server.address)
    ready(client, topic_id, [prefix])
    client.close()
    runner = _Runner(server.address)
    names = [f"{prefix}-{number}" for number in range(IDLE_GROUPS)]
    # [connections that have joined all groups, 1 if the heartbeats have begun, heartbeats]
    count = [0, 0, 0]
    duration = max(2 * HEARTBEAT_SECONDS, seconds)
    observed: list[tuple[float, float]] = []

    def observe() -> Script:
        """Record the broker's CPU time when the heartbeats begin, and shortly before they end."""
        while not count[1]:
            yield _PAUSE
        observed.append((time.perf_counter(), server.cpu_seconds()))
        yield duration - 0.2
        observed.append((time.perf_counter(), server.cpu_seconds()))

    runner.add(observe())
    for first in range(IDLE_CONNECTIONS):
        runner.add(_idle(names[first::IDLE_CONNECTIONS], duration, count))
    start = time.perf_counter()
    runner.run()
    (began, before), (ended, after) = observed
    return {
        "broker CPU, share of a core": (after - before) / (ended - began),
        "heartbeats/s": count[2] / duration,
        "all joined after, s": began - start,
    }
