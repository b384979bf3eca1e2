"""The metrics of coordinators are those of Apache Kafka: the same names, and the same counts after the same acts."""

from __future__ import annotations

import re

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from compat_tests.metrics.kafkas_metrics import kafkas_metrics, sorted_tags
from pykbroker.testing import Broker
from pykbroker_wire.messages import (
    initialize_share_group_state,
    offset_delete,
    read_share_group_state,
    share_group_heartbeat,
    write_share_group_state,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import ApacheKafka

pytestmark = pytest.mark.slow

TYPES = (
    "kafka.server:type=group-coordinator-metrics",
    "kafka.server:type=share-coordinator-metrics",
    "kafka.server:type=transaction-coordinator-metrics",
    "kafka.coordinator.group:type=GroupMetadataManager",
)
SHARE = 2
#: Records of share states are deleted soon, so that the metric about that is there.
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1000",
    "share.coordinator.snapshot.update.records.per.snapshot": "0",
}
#: Metrics that Apache Kafka has from 4.4 on.
NEW_IN_4_4 = re.compile("name=(classic-group-count|offset-count)(,|$)")
#: The metrics that pykbroker does not have, and why is in docs/metrics.md.
LEFT_OUT = (
    "event-queue-size",
    "event-queue-time-ms-.*",
    "thread-idle-ratio-avg",
    "background-.*",
    "batch-buffer-cache-.*",
    "streams-group-.*",
)
#: The counts that the same acts change in the same way.
SAME = (
    "kafka.server:type=group-coordinator-metrics,name=offset-commit-count",
    "kafka.server:type=group-coordinator-metrics,name=offset-deletion-count",
    "kafka.server:type=group-coordinator-metrics,name=offset-expiration-count",
    "kafka.server:type=group-coordinator-metrics,name=group-completed-rebalance-count",
    "kafka.server:type=group-coordinator-metrics,name=consumer-group-rebalance-count",
    "kafka.server:type=share-coordinator-metrics,name=write-total",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
)
PRUNED = "kafka.server:type=share-coordinator-metrics,name=last-pruned-offset,topic=__share_group_state,partition=0"


class Acts:
    """Clients of groups, share states and transactions, one after another."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self) -> None:
        with Wire(self.bootstrap) as wire:
            wire.create("t", partitions=2)
            wire.produce("t", batch(b"a", b"b"))
            self.consume("classic", TopicPartition("t", 0, 1), TopicPartition("t", 1, 0))
            self.consume("consumer", TopicPartition("t", 0, 2))
            self.delete_offset(wire)
            self.write_states(wire)
            self.share(wire)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "x"})
        producer.init_transactions(60)

    def consume(self, protocol: str, *offsets: TopicPartition) -> None:
        made = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{protocol}-group",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        made.subscribe(["t"])
        eventually("a record", lambda: made.poll(1.0))
        made.commit(offsets=list(offsets), asynchronous=False)
        made.close()

    def delete_offset(self, wire: Wire) -> None:
        asked = [offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (1, 7)]
        topics = [offset_delete.OffsetDeleteRequestTopic(name="t", partitions=asked)]
        request = offset_delete.OffsetDeleteRequest(group_id="classic-group", topics=topics)
        assert wire.call(request).error_code == 0

    def share(self, wire: Wire) -> None:
        """Join a share group."""
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id="share-group", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        )
        eventually("a member of a share group", lambda: wire.call(request).error_code == 0)

    def write_states(self, wire: Wire) -> None:
        """Write the state of a share partition twice, and let a new leader read it."""
        topic_id = next(topic.topic_id for topic in wire.call(MetadataRequest(topics=None)).topics if topic.name == "t")
        find = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[f"states:{uuid_to_str(topic_id)}:0"])
        eventually("a share coordinator", lambda: wire.call(find).coordinators[0].error_code == 0)

        def initialized() -> bool:
            module = initialize_share_group_state
            data = module.PartitionData(partition=0, state_epoch=1, start_offset=0)
            topics = [module.InitializeStateData(topic_id=topic_id, partitions=[data])]
            answer = wire.call(module.InitializeShareGroupStateRequest(group_id="states", topics=topics))
            return bool(answer.results[0].partitions[0].error_code == 0)

        eventually("a state", initialized)
        for start in (1, 2):
            module = write_share_group_state
            data = module.PartitionData(partition=0, state_epoch=1, leader_epoch=0, start_offset=start)
            topics = [module.WriteStateData(topic_id=topic_id, partitions=[data])]
            answer = wire.call(module.WriteShareGroupStateRequest(group_id="states", topics=topics))
            assert answer.results[0].partitions[0].error_code == 0
        read = read_share_group_state
        asked = read.PartitionData(partition=0, leader_epoch=5)
        reading = [read.ReadStateData(topic_id=topic_id, partitions=[asked])]
        answer = wire.call(read.ReadShareGroupStateRequest(group_id="states", topics=reading))
        assert answer.results[0].partitions[0].error_code == 0


def test_the_metrics_are_kafkas(kafka: ApacheKafka, broker: Broker) -> None:
    def theirs() -> dict[str, float]:
        return kafkas_metrics(kafka.pid, [pattern for each in TYPES for pattern in (each, f"{each},*")])

    def ours() -> dict[str, float]:
        return {sorted_tags(name): value for name, value in broker.metrics().items() if name.startswith(TYPES)}

    Acts(broker.bootstrap_servers).run()
    mine = ours()
    Acts(kafka.bootstrap).run()
    mine |= eventually("pykbroker has deleted records", lambda: with_pruned(ours()))
    found = eventually("Apache Kafka has deleted records", lambda: with_pruned(theirs()))
    assert {name for name in mine.keys() - found.keys() if not NEW_IN_4_4.search(name)} == set()
    missing = found.keys() - mine.keys()
    for pattern in LEFT_OUT:
        matched = {name for name in missing if re.search(f"name={pattern}(,|$)", name)}
        assert matched, pattern
        missing -= matched
    assert missing == set()
    same = [sorted_tags(name) for name in SAME]
    assert {name: mine[name] for name in same} == {name: found[name] for name in same}
    rebalances = sorted_tags("kafka.server:type=group-coordinator-metrics,name=share-group-rebalance-count")
    assert mine[rebalances] > 0
    assert found[rebalances] > 0


def with_pruned(found: dict[str, float]) -> dict[str, float] | None:
    return found if sorted_tags(PRUNED) in found else None
