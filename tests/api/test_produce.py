"""Produce: the wait of each kind of acknowledgement, and the response if the awaited event does not come."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import produce
from pykbroker.net.connection import CloseConnection
from pykbroker.net.promise import Promise
from pykbroker.security.authorizer import AllowAll, Asker, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.api.broker_half import Denied, Half, through_bytes
from tests.replica.world import batch, topic_id

VERSION = ProduceRequest.MAX_VERSION


@pytest.fixture
def half() -> Half:
    return Half()


def request(name: str, *indexes: int, acks: int = -1, timeout_ms: int = 1_000, **fields: Any) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=batch(b"x", **fields)) for index in indexes or (0,)]
    data = TopicProduceData(topic_id=topic_id(name), partition_data=partitions)
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def answers(response: Any) -> list[tuple[ErrorCode, int]]:
    return [(ErrorCode(one.error_code), one.base_offset) for one in response.responses[0].partition_responses]


def came(answer: Promise) -> list[tuple[ErrorCode, int]]:
    return answers(through_bytes(answer.result(), VERSION))


def waits(half: Half, asked: ProduceRequest) -> Promise:
    answer = half.ask(produce, asked)
    assert isinstance(answer, Promise)
    half.loop.settle()
    assert not answer.done()
    return answer


def test_alone_all_is_one(half: Half) -> None:
    half.world.create("t", 2)
    for acks, offset in ((-1, 0), (1, 1)):
        assert answers(half.ask(produce, request("t", 0, 1, acks=acks))) == [(ErrorCode.NONE, offset)] * 2
    assert half.ask(produce, request("t", acks=0)) is None
    assert half.replicas.get("t", 0).log.log_end_offset == 3


def test_a_partition_that_is_not_there_is_told_before_acks_that_are_none(half: Half) -> None:
    half.world.create("t", 1)
    answered = answers(half.ask(produce, request("t", 0, 7, acks=2)))
    assert [error for error, _ in answered] == [ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_all_waits_for_the_replica_set(half: Half) -> None:
    half.world.create("t", 2, replicas=(1, 2))
    answer = waits(half, request("t", 0, 1))
    for index in (0, 1):
        assert not answer.done()
        half.replicas.get("t", index).note_fetched(2, 1)
    assert came(answer) == [(ErrorCode.NONE, 0)] * 2
    half.loop.settle()
    assert not half.loop.sleeping()


def test_a_duplicate_is_acknowledged_when_its_original_is_committed(half: Half) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    waits(half, request("t", **fields))
    again = waits(half, request("t", **fields))
    partition.note_fetched(2, 1)
    assert came(again) == [(ErrorCode.NONE, 0)]
    assert partition.log.log_end_offset == 1


def test_time_is_up(half: Half) -> None:
    half.world.create("t", 2, replicas=(1, 2))
    half.world.change(half.replicas.get("t", 1), isr=[1])
    answer = waits(half, request("t", 0, 1))
    half.loop.advance(1.1)
    assert came(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (ErrorCode.NONE, 0)]


def test_the_leadership_goes_meanwhile(half: Half) -> None:
    partition = half.world.create("t", replicas=(1, 2))
    half.with_broker(2)
    answer = waits(half, request("t"))
    half.world.change(partition, leader=2)
    assert came(answer) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_the_replica_set_becomes_too_small_meanwhile(half: Half) -> None:
    """It is not committed before there are enough replicas again (KIP-966)."""
    partition = half.world.create("t", replicas=(1, 2), min_insync_replicas="2")
    answer, other = waits(half, request("t")), waits(half, request("t", timeout_ms=5_000))
    half.world.change(partition, isr=[1])
    assert answers(half.ask(produce, request("t"))) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    half.loop.advance(1.1)
    assert came(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    partition.note_fetched(2, 2)
    assert not other.done()
    half.world.change(partition, isr=[1, 2])
    assert came(other) == [(ErrorCode.NONE, 1)]


def test_whose_connection_closes_leaves_no_timer(half: Half) -> None:
    half.world.create("t", replicas=(1, 2))
    waits(half, request("t")).cancel()
    half.loop.settle()
    assert not half.loop.sleeping()


def test_a_directory_that_fails_under_the_second_partition(half: Half) -> None:
    """Formerly the first partition got an exception, and the connection closed for an internal error."""
    half.world.create("t", 2, replicas=(1, 2))
    half.world.disk.fail_next("pwritev", errno.EIO, path_contains="t-1")
    answer = half.ask(produce, request("t", 0, 1))
    assert came(answer) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 2


def test_a_folder_of_another_topic_of_the_same_name(half: Half) -> None:
    """Formerly the refusal asked the missing log for its start, which was an internal error."""
    folder = half.world.log_dirs[0]
    folder.open_log("t", 0, b"another topic id", half.replicas.topic_config("t"), 0)
    half.world.create("t")
    assert answers(half.ask(produce, request("t"))) == [(ErrorCode.INCONSISTENT_TOPIC_ID, -1)]


def test_each_leader_is_named_once(half: Half) -> None:
    half.world.create("t", 3, replicas=(1, 2))
    for index in range(3):
        half.world.change(half.replicas.get("t", index), leader=2)
    half.with_broker(2)
    response = half.ask(produce, request("t", 0, 1, 2))
    assert [one.current_leader.leader_id for one in response.responses[0].partition_responses] == [2, 2, 2]
    assert [(one.node_id, one.host) for one in response.node_endpoints] == [(2, "host2")]


def test_without_an_answer_the_only_way_to_tell_is_to_close(half: Half) -> None:
    half.world.create("t")
    with pytest.raises(CloseConnection, match="t-5: UNKNOWN_TOPIC_OR_PARTITION"):
        half.ask(produce, _by_name("t", 5), 12)


def test_who_may_not_write(half: Half) -> None:
    half.world.create("t")
    half.services.authorizer = Denied((Operation.WRITE, Resource.TOPIC, "t"))
    assert answers(half.ask(produce, request("t"))) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]
    assert half.replicas.get("t", 0).log.log_end_offset == 0


def _by_name(name: str, index: int) -> ProduceRequest:
    asked = request(name, index, acks=0)
    asked.topic_data[0].name = name
    return asked


def test_topics_of_a_transaction_are_authorised_once(half: Half) -> None:
    half.world.create("t")
    asked: list[tuple[Operation, Resource, str]] = []

    class Counting(AllowAll):
        def authorize(
            self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False
        ) -> bool:
            asked.append((operation, resource, name))
            return True

    half.services.authorizer = Counting()
    # The coordinator refuses, because only the checks before that matter here.
    refuses = SimpleNamespace(enabled=True, verify=lambda *_, **__: {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING})
    half.services.verifier = cast(Any, refuses)
    transactional = request("t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    transactional.transactional_id = "id"
    assert answers(half.ask(produce, transactional)) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)]
    assert asked.count((Operation.WRITE, Resource.TOPIC, "t")) == 1
    assert asked.count((Operation.WRITE, Resource.TRANSACTIONAL_ID, "id")) == 1
