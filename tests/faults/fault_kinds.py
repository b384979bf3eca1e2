"""The faults of the nodes of a `FaultedTrio` while clients write and read. Each kind undoes its fault before it ends.
The check for lost records comes at the end of a run.

`KINDS` is the table. A call of `serves` marks where clients must make progress while the fault lasts.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker_wire.primitives import uuid_from_str
from testkit.nodes.load import Load
from testkit.nodes.nodes import PATIENCE_SECONDS, eventually
from testkit.nodes.processes import run_here
from testkit.nodes.trio import CLUSTER_ID, NUMBERS
from testkit.nodes.wire import TOPIC, Wire, batch
from tests.faults.faulted_trio import SMALL_DISK_BYTES, WITH_SMALL_DISK, FaultedTrio
from tests.faults.packet_switch import CLIENTS, Weather, pairs

#: The number of bounces of one fault in a round by hand.
BOUNCES = 5
#: longer than a broker's session, and than the fetch timeout of the quorum
LONG_SECONDS = 6.0
#: Longer than a controller waits for a broker to come back (liveness/peer_ends.py). When the network is whole again,
#: packets that it has kept may still end a connection.
RETURN_SECONDS = 1.0
#: within message.timestamp.after.max.ms of Apache Kafka's default
HOUR_SECONDS = 3_000


@dataclass(slots=True)
class Stand:
    """The cluster, its clients, and the chance of this run."""

    trio: FaultedTrio
    load: Load
    rng: random.Random
    topics: list[str]
    bounces: int

    def leader(self) -> int:
        return self.trio.leaders(self.topics[0])[0]

    def settle(self, for_seconds: float = 0.0) -> None:
        """Everything is up, every replica in sync for so long, and every client goes on."""
        for process in list(self.trio.running.values()):
            process.ready(PATIENCE_SECONDS)
        self.trio.in_sync(*self.topics, for_seconds=for_seconds)
        self.load.goes_on()

    @contextmanager
    def weather(self, weather: Weather) -> Iterator[None]:
        assert self.trio.switch is not None
        self.trio.switch.set(weather)
        try:
            yield
        finally:
            self.trio.switch.set(Weather())


Fault = Callable[[Stand, int], None]
"""It happens to this node."""


# Processes


def stopped(stand: Stand, number: int) -> None:
    assert stand.trio.stop(number) == 0
    stand.load.goes_on()
    stand.trio.start(number)


def killed(stand: Stand, number: int) -> None:
    stand.trio.kill(number)
    stand.load.goes_on()
    stand.trio.start(number)


def _bounced(role: Callable[[Stand], int], clean: bool, stand: Stand, number: int) -> None:
    """Each time the node that has the role by then."""
    for _ in range(stand.bounces):
        number = role(stand)
        if clean:
            assert stand.trio.stop(number) == 0
        else:
            stand.trio.kill(number)
        stand.trio.start(number).ready(PATIENCE_SECONDS)
        stand.trio.in_sync(*stand.topics)


def two_killed(stand: Stand, number: int) -> None:
    other = number % len(NUMBERS) + 1
    os.kill(stand.trio.running[number].pid, signal.SIGKILL)
    for each in (other, number):
        stand.trio.kill(each)
    for each in (number, other):
        stand.trio.start(each)


def all_killed(stand: Stand, number: int) -> None:
    for process in stand.trio.running.values():
        os.kill(process.pid, signal.SIGKILL)
    for each in NUMBERS:
        stand.trio.kill(each)
    for each in NUMBERS:
        stand.trio.start(each)


def paused(stand: Stand, number: int) -> None:
    with stand.trio.paused(number):
        time.sleep(LONG_SECONDS)
        stand.load.goes_on()


def paused_for_a_moment(stand: Stand, number: int) -> None:
    with stand.trio.paused(number):
        time.sleep(1)


# Disks


def directory_fails(stand: Stand, number: int) -> None:
    """The second directory fails. Its replicas go offline and the node stays. Then the directory comes back empty."""
    trio = stand.trio
    second, taken = trio.second(number), trio.folder / "taken"
    second.rename(taken)

    def is_offline() -> bool:
        with Wire(trio.address(number)) as wire:
            results = wire.call(DescribeLogDirsRequest(topics=None)).results
        return {each.log_dir: each.error_code for each in results}.get(str(second)) == ErrorCode.KAFKA_STORAGE_ERROR

    eventually("the directory is offline", is_offline)
    stand.load.goes_on()
    assert trio.stop(number) == 0
    second.mkdir()
    arguments = ["--cluster-id", CLUSTER_ID, "--ignore-formatted", "--no-initial-controllers"]
    done = run_here("format", str(trio.files[number]), *arguments)
    assert done.returncode == 0, done.stderr
    trio.start(number)
    shutil.rmtree(taken)


def disk_full(stand: Stand, number: int) -> None:
    """Leaders on it refuse writes, followers on it stand still, until there is room again."""
    trio = stand.trio

    def said(words: str) -> int:
        return trio.running[number].log.read_text(errors="replace").count(words)

    before, found = said("the disk is full"), os.statvfs(trio.second(number))
    used = (found.f_blocks - found.f_bavail) * found.f_frsize
    trio.resize_small_disk(used + (64 << 10))
    try:
        eventually("the disk is full", lambda: said("the disk is full") > before)
        time.sleep(2)
    finally:
        trio.resize_small_disk(SMALL_DISK_BYTES)


def wiped(stand: Stand, number: int) -> None:
    """It comes back with empty disks: the metadata from a snapshot, the records from the leaders; and it votes."""
    before = stand.trio.voters()[number]
    stand.trio.kill(number)
    stand.load.goes_on()
    stand.trio.wipe(number)
    stand.trio.start(number).ready(PATIENCE_SECONDS)
    eventually("the new disk votes", lambda: stand.trio.voters().get(number) not in (None, before))
    stand.trio.all_vote()


# The controller's work


def unclean_truncation(stand: Stand, number: int) -> None:
    """A leader is elected that lacks records which a consumer has read. The consumer gets an error, and the old leader
    truncates its records."""
    trio, other = stand.trio, number % len(NUMBERS) + 1
    topic = f"unclean-{stand.rng.randrange(1 << 32)}"
    trio.create(topic, (number, other))
    third = next(each for each in NUMBERS if each not in (number, other))
    with Wire(trio.address(third)) as wire:
        assert not wire.alter(TOPIC, topic, {"min.insync.replicas": "1"}).error_code
    with Wire(trio.address(number)) as wire:
        assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
    consumer = Consumer(
        {
            "bootstrap.servers": trio.bootstrap,
            "group.id": "sees-truncation",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 200,
            # For the controller, a broker that was killed and fenced too early leads once more. The client asks it for
            # the end of an epoch, and asks no other leader until that request's time is over.
            "socket.timeout.ms": 4_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> bytes | KafkaError | None:
        message = consumer.poll(0.2)
        return None if message is None else message.error() or message.value()

    try:
        eventually("the first record is read", lambda: read() == b"kept")
        trio.kill(other)
        eventually("one replica is left", lambda: trio.partitions(topic, third)[0].isr_nodes == [number])
        with Wire(trio.address(number)) as wire:
            for value in (b"lost", b"lost too"):
                assert wire.produce(topic, batch(value)).error_code == ErrorCode.NONE
        eventually("the last record is read", lambda: read() == b"lost too")
        trio.kill(number)
        trio.start(other).ready(PATIENCE_SECONDS)
        unclean = ElectLeadersRequest(
            election_type=1, topic_partitions=[TopicPartitions(topic=topic, partitions=[0])], timeout_ms=10_000
        )

        def elected() -> bool:
            with Wire(trio.address(third)) as wire:
                wire.call(unclean)
            return trio.partitions(topic, third)[0].leader_id == other

        eventually("the other replica leads", elected)
        with Wire(trio.address(other)) as wire:
            assert wire.produce(topic, batch(b"new")).error_code == ErrorCode.NONE
            assert wire.values(topic) == [b"kept", b"new"]

        def truncated() -> bool:
            said = read()
            return isinstance(said, KafkaError) and said.code() in (
                KafkaError._LOG_TRUNCATION,
                KafkaError._AUTO_OFFSET_RESET,
                KafkaError.OFFSET_OUT_OF_RANGE,
            )

        eventually("the consumer hears of the truncation", truncated)
        trio.start(number).ready(PATIENCE_SECONDS)
        trio.in_sync(topic)
        assert b"lost" not in trio.same_logs(topic)
    finally:
        consumer.close()


def reassigned_with_bounces(stand: Stand, number: int) -> None:
    """A partition of two replicas moves while the node that it moves to is killed twice."""
    trio = stand.trio
    before = trio.partitions("moves")[0].replica_nodes
    target = next(each for each in NUMBERS if each not in before)
    wanted = [target, before[0]]
    topic = ReassignableTopic(name="moves", partitions=[ReassignablePartition(partition_index=0, replicas=wanted)])
    with Wire(trio.address(before[0])) as wire:
        answer = wire.call(AlterPartitionReassignmentsRequest(topics=[topic]))
    assert answer.error_code == ErrorCode.NONE, answer
    for _ in range(2):
        trio.kill(target)
        trio.start(target).ready(PATIENCE_SECONDS)
    eventually("the partition has moved", lambda: trio.partitions("moves")[0].replica_nodes == wanted)


def voter_removed(stand: Stand, number: int) -> None:
    """And it adds itself again (controller.quorum.auto.join.enable)."""
    trio = stand.trio
    directory = uuid_from_str(trio.voters()[number])
    request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=number, voter_directory_id=directory)

    def removed() -> bool:
        with Wire(trio.address(number % len(NUMBERS) + 1)) as wire:
            return wire.call(request).error_code in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)

    eventually("the voter is removed", removed)
    stand.load.goes_on()
    trio.all_vote()


# The network


def _others(number: int) -> list[int]:
    return [each for each in NUMBERS if each != number]


def cut_off(stand: Stand, number: int) -> None:
    """From nodes and clients."""
    with stand.weather(Weather(cut=pairs([number], [*_others(number), CLIENTS]))):
        time.sleep(LONG_SECONDS)
        stand.load.goes_on()


def cut_off_from_nodes(stand: Stand, number: int) -> None:
    """Clients still reach it: it must acknowledge nothing that the others do not have."""
    with stand.weather(Weather(cut=pairs([number], _others(number)))):
        time.sleep(LONG_SECONDS)


def heard_by_none(stand: Stand, number: int) -> None:
    """It receives from the other nodes, and they do not receive from it."""
    with stand.weather(Weather(cut=pairs([number], _others(number), both_ways=False))):
        time.sleep(LONG_SECONDS)


def bridged(stand: Stand, number: int) -> None:
    """Two nodes do not reach each other, and both reach the third."""
    one, other = _others(number)
    with stand.weather(Weather(cut=pairs([one], [other]))):
        time.sleep(LONG_SECONDS)


def slow(stand: Stand, number: int) -> None:
    with stand.weather(Weather(delay_ms=40, jitter_ms=40)):
        time.sleep(2)
        stand.load.goes_on()


def lossy(stand: Stand, number: int) -> None:
    with stand.weather(Weather(loss=0.03, delay_ms=1, jitter_ms=2)):
        time.sleep(2)
        stand.load.goes_on()


# Clocks


def _clock_jumps(seconds: int, stand: Stand, number: int) -> None:
    """To there, and back."""
    for ahead in (seconds, 0):
        stand.trio.set_clock_ahead(number, ahead)
        time.sleep(1)
        stand.load.goes_on()


# The table


def of_leader(stand: Stand) -> int:
    return stand.leader()


def of_controller(stand: Stand) -> int:
    return stand.trio.active()


def of_any(stand: Stand) -> int:
    return stand.rng.choice(NUMBERS)


def of_small_disk(stand: Stand) -> int:
    return WITH_SMALL_DISK


def of_second_or_third(stand: Stand) -> int:
    """Node 1 was formatted as the first voter."""
    return stand.rng.choice((2, 3)) if not stand.trio.may_mount else 2


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    fault: Fault
    victim: Callable[[Stand], int] = of_any
    needs_network: bool = False
    needs_mount: bool = False
    #: nodes may say ERROR, since something is wrong with a disk of theirs
    is_an_error: bool = False


KINDS = (
    Kind("clean stop of the leader", stopped, of_leader),
    Kind("clean stop of the controller", stopped, of_controller),
    Kind("hard kill of the leader", killed, of_leader),
    Kind("hard kill of the controller", killed, of_controller),
    Kind("clean bounces of the leader", partial(_bounced, of_leader, True), of_leader),
    Kind("clean bounces of the controller", partial(_bounced, of_controller, True), of_controller),
    Kind("hard bounces of the leader", partial(_bounced, of_leader, False), of_leader),
    Kind("hard bounces of the controller", partial(_bounced, of_controller, False), of_controller),
    Kind("two killed", two_killed),
    Kind("all killed", all_killed),
    Kind("leader stands still", paused, of_leader),
    Kind("controller stands still", paused, of_controller),
    Kind("a node stands still for a moment", paused_for_a_moment),
    Kind("a directory fails", directory_fails, of_second_or_third, is_an_error=True),
    Kind("a disk is full", disk_full, of_small_disk, needs_mount=True, is_an_error=True),
    Kind("wiped disks", wiped),
    Kind("unclean truncation", unclean_truncation),
    Kind("reassignment with bounces", reassigned_with_bounces),
    Kind("a voter is removed", voter_removed),
    Kind("leader cut off", cut_off, of_leader, needs_network=True),
    Kind("controller cut off", cut_off, of_controller, needs_network=True),
    Kind("leader cut off from nodes", cut_off_from_nodes, of_leader, needs_network=True),
    Kind("heard by none", heard_by_none, needs_network=True),
    Kind("two nodes apart", bridged, needs_network=True),
    Kind("slow network", slow, needs_network=True),
    Kind("lossy network", lossy, needs_network=True),
    Kind("clock of the controller jumps ahead", partial(_clock_jumps, HOUR_SECONDS), of_controller),
    Kind("clock of the leader jumps back", partial(_clock_jumps, -HOUR_SECONDS), of_leader),
)
