"""The controller of a cluster that was put back to an earlier state: nothing is handed out a second time."""

from __future__ import annotations

import pytest

from pykbroker.controller.brokers import allocate_producer_ids, register_broker
from pykbroker.controller.heartbeats import BrokerSession
from pykbroker.controller.restoration import restoration_records
from pykbroker.controller.result import Result
from pykbroker.controller.topics import create_topics
from pykbroker.metadata.image import NO_LEADER
from pykbroker.metadata.restored import Restored
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.controller.test_brokers import register, registration
from tests.controller.world import Pure

LIMITS = Restored(end_offset=100, leader_epoch=40, group_epoch=0, producer_id=5_001)


def create(pure: Pure, name: str) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=3)])
    pure.apply(create_topics(pure.state, request, set()))


def cluster() -> Pure:
    """Return the state of a cluster of three brokers with a topic that was put back. Its log ended at offset 100."""
    before = Pure()
    create(before, "t")
    pure = Pure(0, restored=LIMITS)
    pure.state.reset(before.state.checkpoint())
    pure.offset = LIMITS.end_offset
    return pure


def restore(pure: Pure) -> None:
    pure.apply(Result(None, restoration_records(pure.state)))


def test_every_partition_waits_for_a_leader_with_a_higher_epoch() -> None:
    pure = cluster()
    before = pure.state.image.topics.by_name["t"].partitions
    restore(pure)
    for index, partition in pure.state.image.topics.by_name["t"].partitions.items():
        assert partition == before[index]._replace(
            leader=NO_LEADER, leader_epoch=41, partition_epoch=before[index].partition_epoch + 1
        )
    assert all(broker.fenced for broker in pure.state.image.brokers.values())


def test_the_next_block_of_producer_ids_is_a_new_one() -> None:
    pure = cluster()
    restore(pure)
    epoch = register(pure, 4)
    assert pure.apply(allocate_producer_ids(pure.state, 4, epoch)).first == LIMITS.producer_id


def test_the_next_controller_writes_the_records_no_second_time() -> None:
    pure = cluster()
    restore(pure)
    assert restoration_records(pure.state) == []


def test_a_new_topic_begins_with_a_higher_epoch_too() -> None:
    pure = Pure(restored=LIMITS)
    create(pure, "new")
    partitions = pure.state.image.topics.by_name["new"].partitions.values()
    assert {partition.leader_epoch for partition in partitions} == {41}


def test_a_broker_of_the_state_registers_anew_at_once_and_its_replicas_stay_in_sync() -> None:
    pure = cluster()
    pure.state.restart_sessions(pure.now_ms)
    restore(pure)
    in_sync = [partition.isr for partition in pure.state.image.topics.by_name["t"].partitions.values()]
    for broker_id in range(3):
        register(pure, broker_id, incarnation_id=bytes((7, broker_id)) * 8)
    assert [partition.isr for partition in pure.state.image.topics.by_name["t"].partitions.values()] == in_sync


def test_a_second_process_with_the_id_of_a_new_one_is_refused() -> None:
    pure = cluster()
    restore(pure)
    epoch = register(pure, 1, incarnation_id=b"a" * 16)
    pure.state.sessions.touch(BrokerSession(1, epoch), pure.now_ms)
    with pytest.raises(KafkaError) as refused:
        register_broker(pure.state, registration(1, incarnation_id=b"b" * 16), pure.now_ms, pure.offset)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
