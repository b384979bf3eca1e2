"""The ends of partitions, asked of their leaders."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker.coordinator.group.share.share_lag import EndsOfLeaders
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.coordinator.fakes import Loop, as_loop

#: Partition 0 is led by broker 1, 1 and 2 by broker 2, 3 by broker 3, 4 by none.
LEADERS = {0: 1, 1: 2, 2: 2, 3: 3}


class Brokers:
    def __init__(self) -> None:
        self.loop = Loop()
        self.sent: list[tuple[int, ListOffsetsRequest, asyncio.Future[Any]]] = []
        self.ends = EndsOfLeaders(
            as_loop(self.loop),
            lambda partition: LEADERS.get(partition[1]),
            self.send,
            1_000,
        )

    def send(self, broker: int, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        assert timeout_ms == 1_000
        future: asyncio.Future[Any] = self.loop.create_future()
        self.sent.append((broker, request, future))
        return future

    def ask(self, *partitions: int) -> Any:
        return self.ends.latest([("t", partition) for partition in partitions])


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def response(**ends: int) -> ListOffsetsResponse:
    partitions = [
        ListOffsetsPartitionResponse(partition_index=int(name[1:]), offset=end, error_code=ErrorCode.NONE)
        for name, end in ends.items()
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


def test_partitions_without_a_leader_need_no_request(brokers: Brokers) -> None:
    assert brokers.ask(4) == [(ErrorCode.LEADER_NOT_AVAILABLE, -1)]
    assert brokers.ask() == []
    assert brokers.sent == []


def test_each_leader_gets_one_request_and_answers_stay_in_order(brokers: Brokers) -> None:
    answer = brokers.ask(3, 2, 0, 1, 4)
    assert [broker for broker, _, _ in brokers.sent] == [3, 2, 1]
    [(_, _, third), (_, request, second), (_, _, first)] = brokers.sent
    assert (request.replica_id, request.isolation_level) == (-1, 0)
    assert [(one.partition_index, one.timestamp) for one in request.topics[0].partitions] == [(2, -1), (1, -1)]
    second.set_result(response(p2=22, p1=21))
    third.set_result(response(p3=23))
    first.set_result(response(p0=10))
    brokers.loop.settle()
    assert [end for _, end in answer.result()] == [23, 22, 10, 21, -1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionError("gone"), ErrorCode.NETWORK_EXCEPTION),
        (TimeoutError(), ErrorCode.REQUEST_TIMED_OUT),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["connection", "timeout", "bug"],
)
def test_a_leader_that_does_not_answer(brokers: Brokers, error: Exception, code: ErrorCode) -> None:
    answer = brokers.ask(1, 0)
    brokers.sent[0][2].set_exception(error)
    brokers.sent[1][2].set_result(response(p0=10))
    brokers.loop.settle()
    assert answer.result() == [(code, -1), (ErrorCode.NONE, 10)]


def test_a_partition_that_the_answer_leaves_out(brokers: Brokers) -> None:
    answer = brokers.ask(1, 2)
    brokers.sent[0][2].set_result(response(p1=5))
    brokers.loop.settle()
    assert answer.result() == [(ErrorCode.NONE, 5), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_client_that_has_gone(brokers: Brokers) -> None:
    answer = brokers.ask(1)
    answer.cancel()
    brokers.loop.settle()
    brokers.sent[0][2].set_result(response(p1=5))
    brokers.loop.settle()
    assert answer.cancelled()
