"""Coordinators of groups and transactions that move between Apache Kafka and pykbroker: each loads the other's records.

Node 1 is Apache Kafka, node 2 pykbroker; the controller is pykbroker's, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.mixed_cluster import kept_groups
from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.kept_groups import Kept
from compat_tests.mixed_cluster.members import Cluster, Member
from compat_tests.on_disk.estate import Asker
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from testkit.nodes.load import ONCE, Load
from testkit.nodes.nodes import GROUP, TRANSACTION, eventually
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

CONTROLLER, KAFKA, OURS = 10, 1, 2
OTHER = {KAFKA: OURS, OURS: KAFKA}
OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # Members of these wait for a coordinator of Apache Kafka.
    "group.share.session.timeout.ms": "60000",
    "group.streams.session.timeout.ms": "60000",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
}
CONSUMER_PROTOCOL = {"group.protocol": "consumer", "session.timeout.ms": None, "heartbeat.interval.ms": None}


@pytest.fixture(scope="module")
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    members = {
        CONTROLLER: Member("pykbroker", "controller"),
        KAFKA: Member("kafka", "broker"),
        OURS: Member("pykbroker", "broker"),
    }
    with new_cluster(members, settings=SETTINGS) as made:
        made.start_all()
        made.serving(KAFKA, OURS)
        for kind in (GROUP, TRANSACTION):
            coordinator(made, kind)
        yield made


def coordinator(cluster: Cluster, kind: int) -> int:
    """Return the node of the coordinator for the one partition, when all nodes return the same."""

    def look() -> int | None:
        found = set()
        for _, wire in cluster.wires():
            answer = wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])).coordinators[0]
            found.add(-1 if answer.error_code else answer.node_id)
        return found.pop() if len(found) == 1 and -1 not in found else None

    return eventually("all name the same coordinator", look)


def move_all(cluster: Cluster, to: int, *topics: str) -> None:
    for topic in topics or (OFFSETS, TRANSACTIONS):
        cluster.move(topic, to)
    assert {coordinator(cluster, kind) for kind in (GROUP, TRANSACTION)} == {to}


def members(cluster: Cluster, node: int) -> dict[str, Any]:
    """Return the members of the two groups with their assignments, once the coordinator has loaded them."""

    def look() -> dict[str, Any] | None:
        with Wire(cluster.address(node)) as wire:
            classic = wire.call(DescribeGroupsRequest(groups=["classic"])).groups[0]
            modern = wire.call(ConsumerGroupDescribeRequest(group_ids=["modern"])).groups[0]
        if classic.error_code or modern.error_code or classic.group_state != "Stable" or modern.group_state != "Stable":
            return None
        return {
            "classic": [(each.member_id, each.member_metadata, each.member_assignment) for each in classic.members],
            "modern": [
                (each.member_id, each.member_epoch, repr(each.assignment), each.subscribed_topic_names)
                for each in modern.members
            ],
            "epochs": (modern.group_epoch, modern.assignment_epoch),
        }

    return eventually("both groups are stable", look)


def test_groups_and_transactions_go_on_with_the_other_implementation(cluster: Cluster) -> None:
    topic = cluster.create("read", (KAFKA, OURS))
    cluster.create("transacted", (OURS, KAFKA))
    load = Load(cluster, [topic], ONCE)
    load.transact("transactional", "transacted")
    load.consume("classic", topic)
    load.consume("modern", topic, CONSUMER_PROTOCOL)
    with load:
        load.goes_on()
        move_all(cluster, KAFKA)
        load.goes_on()
        before = members(cluster, KAFKA)
        assert len(before["classic"]) == len(before["modern"]) == 1
        for node in (OURS, KAFKA, OURS):
            move_all(cluster, node)
            load.goes_on()
            # The members are those of the other coordinator, with the same epochs and assignments: no member rejoined.
            assert members(cluster, node) == before
        for victim in (OURS, KAFKA):
            cluster.kill(victim)
            load.goes_on()
            assert {coordinator(cluster, kind) for kind in (GROUP, TRANSACTION)} == {OTHER[victim]}
            cluster.start(victim)
            cluster.in_sync(topic, "transacted", OFFSETS, TRANSACTIONS)
            move_all(cluster, victim)
            load.goes_on()
    load.judge()
    groups, ids = ["classic", "modern"], ["transactional"]
    found: dict[int, Any] = {}
    for node in (KAFKA, OURS):
        move_all(cluster, node)
        asker = Asker(cluster.address(node))
        try:
            found[node] = (asker.groups(groups), asker.transactions(ids))
        finally:
            asker.close()
    assert found[KAFKA] == found[OURS]
    assert {kind for kind, _ in found[OURS][0].values()} == {"classic", "consumer"}
    for name in (OFFSETS, TRANSACTIONS, topic, "transacted"):
        cluster.same_logs(name)
    assert not cluster.complaints()


@pytest.mark.parametrize("node", [KAFKA, OURS], ids=["begun with Kafka", "begun with pykbroker"])
def test_an_open_transaction_moves(cluster: Cluster, node: int) -> None:
    """Begun with one coordinator and committed with the other, which writes its markers."""
    topic = cluster.create(f"moved-{node}", (node, OTHER[node]), (OTHER[node], node))
    move_all(cluster, node)
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"moved-{node}", "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 60_000})
    producer.init_transactions(60)
    for commit in (True, False):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % commit, partition=partition)
        assert producer.flush(60) == 0
        move_all(cluster, OTHER[coordinator(cluster, TRANSACTION)])
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    for partition, leader in cluster.leaders(topic).items():
        asker = Asker(cluster.address(leader))
        try:
            for committed in (False, True):

                def ended(of: int = partition, stable: bool = committed) -> bool:
                    return asker.offset_at(topic, of, -1, committed=stable)[0] == 4  # noqa: B023

                eventually("both transactions have ended", ended)
            assert len(asker.aborted(topic, partition, 0)[1]) == 1
        finally:
            asker.close()


def test_share_groups_go_on_and_streams_groups_wait_for_apache_kafka(cluster: Cluster) -> None:
    """At Kafka's default features. While pykbroker coordinates them their ids are refused with Kafka's errors, and the
    members of share groups continue in their epochs; when Apache Kafka coordinates again, so do all members."""
    topic = cluster.create("kept", (KAFKA, OURS))
    groups = Kept("sharing", "streaming", "shared", "streamed")
    move_all(cluster, KAFKA)
    with Wire(cluster.address(KAFKA)) as wire:
        for number in range(5):
            assert wire.produce(topic, batch(b"%d" % number)).error_code == ErrorCode.NONE
    asker, ours = Asker(cluster.address(KAFKA)), Asker(cluster.address(OURS))
    try:
        kept_groups.share_coordinator(asker)
        cluster.move(SHARES, KAFKA)
        kept_groups.join(asker, groups, topic)
        kept_groups.set_share_offset(asker, groups.no_longer_sharing, topic, 3)
        epochs = kept_groups.settled(asker, groups, topic)
        kept_groups.commit(asker, groups.streaming, topic, epochs[groups.streaming])
        listed = kept_groups.listed(asker)
        refused = {group: kept_groups.answers(asker, group, topic) for group in groups.with_members}
        stored = kept_groups.stored(asker, groups, topic)
        cluster.in_sync(OFFSETS, SHARES)
        end = asker.offset_at(OFFSETS, 0, -1)[0]

        move_all(cluster, OURS, OFFSETS, TRANSACTIONS, SHARES)
        ours.coordinated(GROUP, groups)
        here = kept_groups.listed(ours)
        assert {group: kind[:2] for group, kind in here.items()} == {group: kind[:2] for group, kind in listed.items()}
        for group in groups.with_members:
            assert kept_groups.answers(ours, group, topic) == refused[group]
        assert [kept_groups.delete(ours, group) for group in groups.with_members] == [ErrorCode.NON_EMPTY_GROUP] * 2
        assert ours.offset_at(OFFSETS, 0, -1)[0] == end, "nothing was written for what was refused"
        # A member of a streams group commits as before.
        kept_groups.commit(ours, groups.streaming, topic, epochs[groups.streaming])
        # A member of a share group sends its old epoch, and is not fenced. The offsets are those that Kafka wrote.
        beat = ours.ask(kept_groups.share_heartbeat(groups.sharing, epochs[groups.sharing], topic))
        assert (beat.error_code, beat.member_epoch) == (ErrorCode.NONE, epochs[groups.sharing])
        assert kept_groups.stored(ours, groups, topic) == stored
        kept_groups.set_share_offset(ours, groups.no_longer_sharing, topic, 4)

        move_all(cluster, KAFKA, OFFSETS, TRANSACTIONS, SHARES)
        asker.coordinated(GROUP, groups)
        kept_groups.share_coordinator(asker)
        # Each sends its old epoch, and is not fenced.
        after = kept_groups.settled(asker, groups, topic, epochs)
        assert all(after[group] >= epochs[group] for group in groups.with_members)
        assert kept_groups.stored(asker, groups, topic) == {**stored, "share": 4}
        back = kept_groups.listed(asker)
        assert {group: kind[:2] for group, kind in back.items()} == {group: kind[:2] for group, kind in listed.items()}
    finally:
        asker.close()
        ours.close()
    assert not cluster.complaints()
