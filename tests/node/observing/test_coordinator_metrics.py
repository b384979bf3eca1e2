"""The metrics of coordinators change with what real clients do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from pykbroker.testing import Broker
from pykbroker_wire.messages import offset_delete
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.project import ROOT

pytestmark = pytest.mark.slow

GROUP = "kafka.server:type=group-coordinator-metrics,name="
OLD = "kafka.coordinator.group:type=GroupMetadataManager,name="
SHARE = "kafka.server:type=share-coordinator-metrics,name="
TRANSACTION = "kafka.server:type=transaction-coordinator-metrics,name="


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started, Wire(started.bootstrap_servers) as wire:
        wire.create("t", partitions=2)
        wire.produce("t", batch(b"a", b"b"))
        yield started


def consumer(broker: Broker, group: str, protocol: str) -> confluent_kafka.Consumer:
    """Return a consumer that has received a record."""
    made = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe(["t"])
    eventually("a record", lambda: made.poll(1.0))
    return made


def changes(broker: Broker, act: Callable[[], object]) -> dict[str, float]:
    """Return which counters of groups an act changes, and by how much."""
    before = broker.metrics()
    act()
    after = broker.metrics()
    return {
        name.removeprefix(GROUP): after[name] - before[name]
        for name in after
        if name.startswith(GROUP) and name.endswith("-count") and after[name] != before[name]
    }


def test_a_classic_group(broker: Broker) -> None:
    before = broker.metrics()
    assert before[f"{GROUP}group-count,protocol=classic"] == before[f"{OLD}NumGroups"] == 0
    made: list[confluent_kafka.Consumer] = []
    changed = changes(broker, lambda: made.append(consumer(broker, "g", "classic")))
    assert changed == {"group-completed-rebalance-count": 1}
    with_member = broker.metrics()
    assert with_member[f"{GROUP}group-count,protocol=classic"] == with_member[f"{OLD}NumGroups"] == 1
    assert with_member[f"{GROUP}classic-group-count,state=Stable"] == with_member[f"{OLD}NumGroupsStable"] == 1
    assert with_member[f"{GROUP}num-partitions,state=active"] >= 1
    assert with_member[f"{GROUP}partition-load-time-max"] >= with_member[f"{GROUP}partition-load-time-avg"] >= 0
    assert with_member[f"{GROUP}group-completed-rebalance-rate"] > 0
    offsets = [TopicPartition("t", 0, 1), TopicPartition("t", 1, 0)]
    changed = changes(broker, lambda: made[0].commit(offsets=offsets, asynchronous=False))
    assert changed == {"offset-commit-count": 2, "offset-count": 2}
    assert broker.metrics()[f"{OLD}NumOffsets"] == 2
    made[0].close()
    empty = broker.metrics()
    assert empty[f"{OLD}NumGroupsEmpty"] == 1
    assert empty[f"{GROUP}classic-group-count,state=Stable"] == 0
    with Wire(broker.bootstrap_servers) as wire:
        assert changes(broker, lambda: delete_offset(wire)) == {"offset-deletion-count": 1, "offset-count": -1}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_consumer_groups(["g"])["g"].result(60)
    assert broker.metrics()[f"{OLD}NumGroups"] == 0


def commit_of(group: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=group, topics=[topic])


def delete_offset(wire: Wire) -> None:
    asked = offset_delete.OffsetDeleteRequestTopic(
        name="t", partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    )
    assert wire.call(offset_delete.OffsetDeleteRequest(group_id="g", topics=[asked])).error_code == 0


def test_a_consumer_group(broker: Broker) -> None:
    made: list[confluent_kafka.Consumer] = []
    changed = changes(broker, lambda: made.append(consumer(broker, "g", "consumer")))
    assert changed == {"consumer-group-rebalance-count": 1}
    with_member = broker.metrics()
    assert with_member[f"{GROUP}group-count,protocol=consumer"] == 1
    assert with_member[f"{GROUP}consumer-group-count,state=Stable"] == 1
    made[0].close()
    assert broker.metrics()[f"{GROUP}consumer-group-count,state=Empty"] == 1


def test_a_transaction(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(60)
    assert broker.metrics()[f"{TRANSACTION}partition-load-time-max"] >= 0
    made = consumer(broker, "g", "classic")

    def commit() -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], made.consumer_group_metadata(), 60)
        producer.commit_transaction(60)

    assert changes(broker, commit) == {"offset-commit-count": 1, "offset-count": 1}
    made.close()


def test_the_page_lists_each_metric(broker: Broker) -> None:
    """Some exist only once something has happened."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").partition("## Members of share groups")[0]
    listed = {
        name.partition("{")[0]
        for row in page.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    kinds = (GROUP, OLD, TRANSACTION, SHARE)
    found = {
        name.removeprefix(kind).partition(",")[0]
        for name in broker.metrics()
        for kind in kinds
        if name.startswith(kind)
    }
    later = {"write-latency-avg", "write-latency-max", "last-pruned-offset"}
    later |= {"partition-load-time-avg", "partition-load-time-max"}
    assert found <= listed
    assert listed <= found | later


def test_many_groups_are_counted_beside_requests(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        find = FindCoordinatorRequest(coordinator_keys=["g"])
        eventually("a coordinator", lambda: wire.call(find).coordinators[0].error_code == 0)
        committed = 3_000
        for number in range(committed):
            wire.send(commit_of(f"g{number}"), 9)
        for _ in range(committed):
            wire.read_frame()
    found = broker.metrics()
    assert found[f"{GROUP}classic-group-count,state=Empty"] == found[f"{OLD}NumOffsets"] == committed
    assert found[f"{GROUP}offset-commit-count"] == committed
