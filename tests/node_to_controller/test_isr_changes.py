"""Changes of ISRs are asked for until the controller has decided them, one of a partition at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.metrics.registry import Counter
from pykbroker.net.client import Disconnected
from pykbroker.node_to_controller.isr_changes import FIRST_PAUSE_MS, IsrChanges
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.coordinator.fakes import as_loop
from tests.node_to_controller.fakes import FakeChannel, FakeLeadership

T, U = b"t" * 16, b"u" * 16


class Asking:
    def __init__(self) -> None:
        self.channel = FakeChannel()
        self.loop = self.channel.loop
        self.leadership = FakeLeadership()
        self.failures = Counter("failures")
        self.broker_epoch = 7
        runtime: Any = SimpleNamespace(loop=as_loop(self.loop))
        self.changes = IsrChanges(runtime, 1, lambda: self.broker_epoch, self.channel, self.leadership, self.failures)
        self.answers: list[tuple[bytes, int, ErrorCode]] = []

    def submit(self, topic_id: bytes, index: int, partition_epoch: int = 0) -> None:
        def answered(answer: ResponsePartitionData) -> None:
            self.answers.append((topic_id, answer.partition_index, ErrorCode(answer.error_code)))

        change = RequestPartitionData(partition_index=index, partition_epoch=partition_epoch)
        self.changes.submit(topic_id, change, answered)

    def answer(self, *about: tuple[bytes, int, ErrorCode], code: ErrorCode = ErrorCode.NONE) -> None:
        topics = [
            ResponseTopicData(
                topic_id=topic_id, partitions=[ResponsePartitionData(partition_index=index, error_code=error)]
            )
            for topic_id, index, error in about
        ]
        self.channel.answer(AlterPartitionResponse(error_code=code, topics=topics))
        self.loop.advance(0)

    def asked(self) -> dict[bytes, list[int]]:
        """The newest request."""
        request: AlterPartitionRequest = self.channel.requests[-1]
        return {topic.topic_id: [one.partition_index for one in topic.partitions] for topic in request.topics}


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_what_is_due_in_one_turn_goes_in_one_request(asking: Asking) -> None:
    asking.submit(T, 0)
    asking.submit(U, 0)
    asking.submit(T, 3)
    asking.loop.advance(0)
    assert len(asking.channel.requests) == 1
    assert asking.asked() == {T: [0, 3], U: [0]}
    request: AlterPartitionRequest = asking.channel.requests[0]
    assert (request.broker_id, request.broker_epoch) == (1, 7)
    answers = [(T, 0, ErrorCode.NONE), (U, 0, ErrorCode.FENCED_LEADER_EPOCH), (T, 3, ErrorCode.INELIGIBLE_REPLICA)]
    asking.answer(*answers)
    assert sorted(asking.answers) == sorted(answers)
    asking.loop.advance(10)
    assert len(asking.channel.requests) == 1
    assert not asking.loop.sleeping()


def test_one_request_is_in_flight_and_the_rest_goes_with_the_next(asking: Asking) -> None:
    asking.submit(T, 0)
    asking.loop.advance(0)
    asking.submit(T, 1)
    asking.submit(T, 2)
    asking.loop.advance(1)
    assert len(asking.channel.requests) == 1
    asking.answer((T, 0, ErrorCode.NONE))
    assert asking.asked() == {T: [1, 2]}


def test_a_second_change_of_a_partition_is_not_attempted(asking: Asking) -> None:
    asking.submit(T, 0)
    asking.submit(T, 0, 5)
    assert asking.answers == [(T, 0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    asking.loop.advance(0)
    asking.answer((T, 0, ErrorCode.NONE))
    assert asking.answers[1:] == [(T, 0, ErrorCode.NONE)]
    asking.submit(T, 0, 5)
    asking.loop.advance(0)
    assert asking.asked() == {T: [0]}


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, None])
def test_what_is_not_decided_is_asked_again_after_a_pause(asking: Asking, code: ErrorCode | None) -> None:
    """`code` is None if the answer leaves the partition out."""
    asking.submit(T, 0)
    asking.submit(U, 0)
    asking.loop.advance(0)
    asking.answer((U, 0, ErrorCode.NONE), *([] if code is None else [(T, 0, code)]))
    assert asking.answers == [(U, 0, ErrorCode.NONE)]
    assert asking.failures.value == 1
    assert len(asking.channel.requests) == 1
    asking.loop.advance(FIRST_PAUSE_MS / 1000)
    assert asking.asked() == {T: [0]}
    asking.answer((T, 0, ErrorCode.NONE))
    assert asking.answers[1:] == [(T, 0, ErrorCode.NONE)]


def test_a_refused_request_is_asked_again_with_the_newest_broker_epoch(asking: Asking) -> None:
    asking.submit(T, 0)
    asking.loop.advance(0)
    asking.broker_epoch = 8
    asking.answer(code=ErrorCode.STALE_BROKER_EPOCH)
    asking.loop.advance(FIRST_PAUSE_MS / 1000)
    assert (asking.asked(), asking.channel.requests[-1].broker_epoch) == ({T: [0]}, 8)


def test_without_an_answer_it_is_asked_again_and_a_new_controller_at_once(asking: Asking) -> None:
    asking.submit(T, 0)
    asking.loop.advance(0)
    asking.channel.answer(Disconnected("gone"))
    asking.loop.advance(FIRST_PAUSE_MS / 1000)
    assert len(asking.channel.requests) == 2
    asking.leadership.lead(2, 2)
    asking.loop.advance(0)
    assert len(asking.channel.requests) == 3
    assert asking.asked() == {T: [0]}
    asking.answer((T, 0, ErrorCode.NONE))
    assert asking.answers == [(T, 0, ErrorCode.NONE)]


def test_closed_it_asks_no_more(asking: Asking) -> None:
    asking.submit(T, 0)
    asking.changes.close()
    asking.loop.advance(1)
    assert not asking.channel.requests
