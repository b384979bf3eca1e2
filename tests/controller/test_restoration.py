"""The controller of a cluster that was put back to an earlier state: nothing is handed out a second time."""

from __future__ import annotations

import pytest

from pykbroker.controller.brokers import allocate_producer_ids, register_broker
from pykbroker.controller.restoration import restoration_records
from pykbroker.controller.result import Result
from pykbroker.controller.topics import create_topics
from pykbroker.metadata.image import NO_LEADER
from pykbroker.metadata.restored import Restored
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.controller.test_brokers import register, registration
from tests.controller.world import Pure


def restored(pure: Pure, **changes: int) -> Restored:
    limits = {"end_offset": pure.offset, "leader_epoch": 40, "group_epoch": 0, "producer_id": 5_001}
    return Restored(**(limits | changes))


def cluster() -> Pure:
    """Return the state of a cluster of three brokers with a topic."""
    pure = Pure()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=3)])
    pure.apply(create_topics(pure.state, request, set()))
    return pure


def test_every_partition_waits_for_a_leader_with_a_higher_epoch() -> None:
    pure = cluster()
    before = pure.state.image.topics.by_name["t"].partitions
    pure.apply(Result(None, restoration_records(pure.state, restored(pure))))
    for index, partition in pure.state.image.topics.by_name["t"].partitions.items():
        assert partition == before[index]._replace(
            leader=NO_LEADER, leader_epoch=41, partition_epoch=before[index].partition_epoch + 1
        )
    assert all(broker.fenced for broker in pure.state.image.brokers.values())


def test_the_next_block_of_producer_ids_is_a_new_one() -> None:
    pure = cluster()
    pure.apply(Result(None, restoration_records(pure.state, restored(pure))))
    epoch = register(pure, 4)
    assert pure.apply(allocate_producer_ids(pure.state, 4, epoch)).first == 5_001


def test_the_next_controller_writes_the_records_no_second_time() -> None:
    pure = cluster()
    limits = restored(pure)
    pure.apply(Result(None, restoration_records(pure.state, limits)))
    assert restoration_records(pure.state, limits) == []


def test_a_partition_that_has_a_higher_epoch_already_stays() -> None:
    pure = cluster()
    before = pure.state.image.topics
    pure.apply(Result(None, restoration_records(pure.state, restored(pure, leader_epoch=-1))))
    assert pure.state.image.topics == before


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_new_incarnation_need_not_wait_for_the_session_of_a_process_that_has_ended(has_ended: bool) -> None:
    pure = cluster()
    pure.state.restart_sessions(pure.now_ms, ended_before=pure.offset if has_ended else 0)
    request = registration(1, incarnation_id=b"n" * 16)
    if has_ended:
        register_broker(pure.state, request, pure.now_ms, pure.offset)
        return
    with pytest.raises(KafkaError) as refused:
        register_broker(pure.state, request, pure.now_ms, pure.offset)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
