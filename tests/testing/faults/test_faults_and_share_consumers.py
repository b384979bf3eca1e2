"""Share consumers under injected faults on every API of share groups: librdkafka's, and ours of the command line.

Each record comes at least once, and what was acknowledged is done in the end, whatever a fault has done in between.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import confluent_kafka
import pytest

import pykbroker
from pykbroker.tools.cluster import configs, share_groups
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings, PartitionName
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.share_group_reader import ShareGroupReader, WantedShare
from pykbroker.tools.cluster.share_member_session import ACCEPT
from testkit.clients import wait_until

PATIENCE_SECONDS = 120.0
PARTITIONS = 2
RECORDS = 40

#: api, the rule, and how often it acts
Fault = tuple[str, dict[str, Any], int]
OF_CLIENTS: tuple[Fault, ...] = (
    ("ShareGroupHeartbeat", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, 2),
    ("ShareGroupHeartbeat", {"disconnect": True, "carried_out": True}, 1),
    ("ShareFetch", {"error": "SHARE_SESSION_NOT_FOUND"}, 2),
    ("ShareFetch", {"error": "INVALID_SHARE_SESSION_EPOCH"}, 1),
    ("ShareFetch", {"error": "NOT_LEADER_OR_FOLLOWER"}, 2),
    ("ShareFetch", {"disconnect": True, "carried_out": True}, 2),
    ("ShareFetch", {"delay_ms": 300}, 1),
    ("ShareAcknowledge", {"disconnect": True}, 1),
)
#: A broker sends these to itself, too, over a connection.
BETWEEN_BROKERS: tuple[Fault, ...] = tuple(
    (api, {"between_brokers": True, **rule}, times)
    for api, rule, times in (
        ("InitializeShareGroupState", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, 2),
        ("InitializeShareGroupState", {"disconnect": True, "carried_out": True}, 1),
        ("ReadShareGroupState", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, 1),
        ("ReadShareGroupState", {"disconnect": True}, 1),
        ("WriteShareGroupState", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, 1),
        ("WriteShareGroupState", {"disconnect": True, "carried_out": True}, 1),
        ("ReadShareGroupStateSummary", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, 1),
    )
)


def names(faults: tuple[Fault, ...]) -> list[str]:
    return [f"{api}-{rule.get('error', next(reversed(rule)))}" for api, rule, _ in faults]


class Queue:
    """A topic with records, and a group that begins with the first of them."""

    def __init__(self, broker: pykbroker.Broker) -> None:
        self.broker = broker
        name = f"q{time.time_ns()}"
        self.topic, self.group = name, f"group-{name}"
        broker.create_topic(name, partitions=PARTITIONS)
        for number in range(RECORDS):
            broker.produce(name, b"%d" % number, partition=number % PARTITIONS)
        with self.asked() as cluster:
            # An answer that a rule changes has locked its records.
            values = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
            changes = configs.changes_of(values)
            configs.alter(cluster, (configs.ResourceKind.GROUP, self.group), changes)

    def asked(self) -> AskedCluster:
        return AskedCluster(ClusterSettings((self.broker.bootstrap_servers,)))

    def lag(self) -> int:
        """Return the records that are not done."""
        with self.asked() as cluster:
            found = share_groups.positions(cluster, self.group)
        lags = [None if isinstance(one, AskFailed) else one.lag for one in found.values()]
        return sum(RECORDS // PARTITIONS if lag is None else lag for lag in lags)

    def by_librdkafka(self) -> set[int]:
        """Consume until every value has come, and acknowledge everything."""
        consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": self.group,
                "share.acknowledgement.mode": "explicit",
                "reconnect.backoff.ms": 20,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        found: set[int] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < RECORDS or self.lag():
            assert time.monotonic() < deadline, f"{len(found)} of {RECORDS} records came, {self.lag()} are not done"
            for message in consumer.poll(timeout=0.2) or ():
                if message.error() is None:
                    found.add(int(message.value() or -1))
                    consumer.acknowledge(message)
            consumer.commit_sync(5.0)
        consumer.close()
        return found

    def by_ours(self) -> set[int]:
        found: set[int] = set()
        refused: list[PartitionName] = []

        def on_acknowledged(place: PartitionName, offsets: Sequence[int], error: AskFailed | None) -> None:
            if error is not None:
                refused.append(place)

        with self.asked() as cluster:
            wanted = WantedShare(self.group, [self.topic], ACCEPT)
            reader = ShareGroupReader(cluster, replace(wanted, follows=True), on_acknowledged)
            deadline = time.monotonic() + PATIENCE_SECONDS
            for batch in reader.batches():
                assert time.monotonic() < deadline, f"{len(found)} of {RECORDS} records came"
                found |= {int(bytes(record.value or b"")) for record in batch}
                if len(found) == RECORDS:
                    break
            reader.close()
            if refused:
                # Refused records come again, and are accepted now.
                again = ShareGroupReader(cluster, wanted, on_acknowledged)
                found |= {int(record.value) for batch in again.batches() for record in batch if record.value}
                again.close()
        return found


Consume = Callable[[Queue], set[int]]
CLIENTS: dict[str, Consume] = {"librdkafka": Queue.by_librdkafka, "ours": Queue.by_ours}


def check_through_fault(queue: Queue, client: str, fault: Fault) -> None:
    api, rule, times = fault
    added = queue.broker.faults.add(api, times=times, **rule)
    assert CLIENTS[client](queue) == set(range(RECORDS))
    wait_until(lambda: queue.lag() == 0, "every record is done")
    assert added.acted == times


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", OF_CLIENTS, ids=names(OF_CLIENTS))
def test_a_fault_of_a_request_of_clients(broker: pykbroker.Broker, client: str, fault: Fault) -> None:
    check_through_fault(Queue(broker), client, fault)


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("fault", BETWEEN_BROKERS, ids=names(BETWEEN_BROKERS))
def test_a_fault_of_a_request_to_share_coordinators(broker: pykbroker.Broker, client: str, fault: Fault) -> None:
    check_through_fault(Queue(broker), client, fault)


@pytest.mark.slow
def test_questions_about_groups_and_changes_are_sent_again(broker: pykbroker.Broker) -> None:
    queue = Queue(broker)
    apis = (
        "ShareGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"
    )  # fmt: skip
    faults = [broker.faults.add(api, error="COORDINATOR_LOAD_IN_PROGRESS", times=2) for api in apis]
    with queue.asked() as asked:
        share_groups.alter_starts(asked, queue.group, {(queue.topic, 0): 3})
        (found,) = share_groups.described(asked, [queue.group]).values()
        assert not isinstance(found, AskFailed)
        position = share_groups.positions(asked, queue.group)[queue.topic, 0]
        assert not isinstance(position, AskFailed)
        assert position.start == 3
        assert share_groups.delete_offsets(asked, queue.group, [queue.topic]) == (None, {queue.topic: None})
    assert [fault.acted for fault in faults] == [2, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        {"error": "COORDINATOR_LOAD_IN_PROGRESS"},
        {"error": "NOT_COORDINATOR"},
        {"disconnect": True, "carried_out": True},
    ],
    ids=lambda rule: next(iter(rule.values())),
)
def test_a_state_is_deleted_although_the_share_coordinator_fails(
    broker: pykbroker.Broker, rule: dict[str, Any]
) -> None:
    queue = Queue(broker)
    with queue.asked() as asked:
        share_groups.alter_starts(asked, queue.group, {(queue.topic, 0): 3, (queue.topic, 1): 4})
        fault = broker.faults.add("DeleteShareGroupState", between_brokers=True, times=2, **rule)
        assert share_groups.delete_offsets(asked, queue.group, [queue.topic]) == (None, {queue.topic: None})
        assert fault.acted == 2
        assert share_groups.positions(asked, queue.group) == {}
        left = share_groups.positions(asked, queue.group, [(queue.topic, 0), (queue.topic, 1)])
        starts = {place: None if isinstance(one, AskFailed) else one.start for place, one in left.items()}
        assert starts == {(queue.topic, 0): None, (queue.topic, 1): None}, "the share coordinator has no state"
    # The group begins with the first record again.
    assert queue.by_ours() == set(range(RECORDS))


@pytest.mark.long(amount="six faults at once, from each of 20 seeds")
@pytest.mark.parametrize("client", CLIENTS)
def test_many_faults_at_once(broker: pykbroker.Broker, client: str) -> None:
    for seed in range(20):
        queue, chance = Queue(broker), random.Random(seed)
        for api, rule, times in chance.sample([*OF_CLIENTS, *BETWEEN_BROKERS], 6):
            broker.faults.add(api, times=chance.randint(1, times), **rule)
        assert CLIENTS[client](queue) == set(range(RECORDS)), f"seed {seed}"
        wait_until(lambda: queue.lag() == 0, f"every record of seed {seed} is done")  # noqa: B023
        broker.faults.clear()
