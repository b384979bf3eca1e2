"""One sender: tries again, follows the leader, and carries a queue of items with either policy."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.net.client import Disconnected
from pykbroker.node_to_controller.controller_sender import ControllerSender
from pykbroker.node_to_controller.keyed_queue import KeyedQueue, Second, Superseded
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from pykbroker_wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from tests.coordinator.fakes import Loop, as_loop
from tests.node_to_controller.fakes import FakeChannel, FakeLeadership

YES = ControllerRegistrationResponse()
NOT_CONTROLLER = ControllerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)


class Told:
    """A sender with a request to send until it is answered."""

    def __init__(self, leadership: FakeLeadership | None = None) -> None:
        self.loop = Loop()
        self.channel = FakeChannel(self.loop)
        self.leadership = leadership or FakeLeadership()
        self.untold = 1
        self.answers: list[Any] = []
        runtime: Any = SimpleNamespace(loop=as_loop(self.loop))
        self.sender = ControllerSender(
            runtime,
            self.channel,
            self.leadership,
            "Tests:",
            self.build,
            self.answered,
            timeout_ms=5_000,
            last_pause_ms=1_000,
        )
        self.sender.wake()
        self.loop.advance(0)

    def build(self) -> ControllerRegistrationRequest | None:
        return ControllerRegistrationRequest(controller_id=self.untold) if self.untold else None

    def answered(self, response: Any) -> None:
        self.answers.append(response)
        self.untold -= 1

    @property
    def sent(self) -> int:
        return len(self.channel.requests)


@pytest.mark.parametrize("failure", [NOT_CONTROLLER, Disconnected("gone"), TimeoutError()])
def test_a_failure_is_tried_again_after_a_pause(failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    with caplog.at_level(logging.INFO):
        told.channel.answer(failure)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("Tests: ControllerRegistration: ")
    assert caplog.messages[0].endswith("trying again in 100 ms")
    told.loop.advance(0.099)
    assert told.sent == 1
    told.loop.advance(0.001)
    assert told.sent == 2
    told.channel.answer(YES)
    assert told.answers == [YES]
    told.loop.advance(60)
    assert told.sent == 2
    assert not told.loop.sleeping()


def test_a_code_that_this_version_does_not_know_is_a_failure_like_others() -> None:
    told = Told()
    told.channel.answer(ControllerRegistrationResponse(error_code=9_999))
    told.loop.advance(0.1)
    assert told.sent == 2


def test_without_a_leader_it_waits_and_a_new_leader_is_asked_at_once() -> None:
    told = Told(FakeLeadership(None))
    told.loop.advance(60)
    assert told.sent == 0
    told.leadership.lead(2)
    told.loop.advance(0)
    assert told.sent == 1
    # The pause after a failure ends with a change of the leader.
    told.channel.answer(NOT_CONTROLLER)
    told.leadership.lead(None, 2)
    told.loop.advance(60)
    assert told.sent == 1
    told.leadership.lead(3, 2)
    told.loop.advance(0)
    assert told.sent == 2


def test_the_answer_of_a_former_leader_is_not_waited_for() -> None:
    """It may be cut off: without that its timeout would pass first."""
    told = Told()
    silent = told.channel.answers[0]
    told.leadership.lead(2, 2)
    told.loop.advance(0)
    assert silent.cancelled()
    assert told.sent == 2
    told.channel.answer(YES)
    assert told.answers == [YES]


def test_there_is_never_more_than_one_request_in_flight() -> None:
    told = Told()
    for _ in range(5):
        told.sender.wake()
        told.loop.advance(1)
    assert told.sent == 1
    told.untold = 2
    told.channel.answer(YES)
    told.loop.advance(0)
    assert told.sent == 2


def test_a_session_that_is_not_over_yet_is_said_once_and_is_nothing_to_warn_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    waits = ControllerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    with caplog.at_level(logging.INFO):
        for _ in range(12):
            told.channel.answer(waits)
            told.loop.advance(1)
    assert told.sent == 13
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "until the session of its last run is over" in record.getMessage()
    assert record.getMessage().endswith("trying again and again, at least every 1000 ms")


def test_a_failure_that_lasts_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    with caplog.at_level(logging.INFO):
        for _ in range(70):
            told.channel.answer(NOT_CONTROLLER)
            told.loop.advance(1)
    assert told.sent == 71
    # 100, 200, 400, 800 ms, then the longest pause, then one a minute later.
    assert len(caplog.records) == 6
    assert caplog.messages[-1].endswith("trying again in 1000 ms (59 more lines like it were left out)")


def test_what_is_closed_sends_nothing() -> None:
    told = Told()
    told.sender.close()
    told.loop.settle()
    assert told.channel.answers[0].cancelled()
    told.sender.wake()
    told.leadership.lead(2, 2)
    told.loop.advance(60)
    assert told.sent == 1
    assert not told.loop.sleeping()


class IsrChanges:
    """As a replica manager will use it: a queue that refuses, and AlterPartition."""

    TOPIC = b"t" * 16

    def __init__(self) -> None:
        self.loop = Loop()
        self.channel = FakeChannel(self.loop)
        self.leadership = FakeLeadership()
        self.queue: KeyedQueue[int, list[int], ResponsePartitionData] = KeyedQueue(Second.REFUSE)
        runtime: Any = SimpleNamespace(loop=as_loop(self.loop))
        self.sender = ControllerSender(
            runtime,
            self.channel,
            self.leadership,
            "ISR changes:",
            self.build,
            self.answered,
            timeout_ms=30_000,
            first_pause_ms=50,
            last_pause_ms=50,
        )
        self.results: list[tuple[int, int]] = []

    def submit(self, index: int, isr: list[int]) -> bool:
        def done(result: ResponsePartitionData | Superseded) -> None:
            assert not isinstance(result, Superseded)
            self.results.append((index, result.error_code))

        taken = self.queue.offer(index, isr, done)
        self.sender.wake()
        self.loop.advance(0)
        return taken

    def build(self) -> AlterPartitionRequest | None:
        items = self.queue.take(1_000)
        if not items:
            return None
        partitions = [RequestPartitionData(partition_index=index, new_isr=isr) for index, isr in items.items()]
        return AlterPartitionRequest(
            broker_id=1,
            broker_epoch=7,
            topics=[RequestTopicData(topic_id=self.TOPIC, partitions=partitions)],
        )

    def answered(self, response: AlterPartitionResponse) -> None:
        self.queue.answered({p.partition_index: p for topic in response.topics for p in topic.partitions})
        if self.queue:
            self.sender.wake()

    def asked(self) -> dict[int, list[int]]:
        return {p.partition_index: p.new_isr for t in self.channel.requests[-1].topics for p in t.partitions}

    def answer(self, codes: dict[int, int]) -> None:
        data = [ResponsePartitionData(partition_index=index, error_code=code) for index, code in codes.items()]
        self.channel.answer(AlterPartitionResponse(topics=[ResponseTopicData(topic_id=self.TOPIC, partitions=data)]))
        self.loop.advance(0)


def test_changes_of_the_isr_wait_for_each_other_and_survive_a_change_of_the_leader() -> None:
    isr = IsrChanges()
    assert isr.submit(0, [1])
    assert isr.submit(1, [1])
    assert not isr.submit(0, [1, 2])
    assert isr.asked() == {0: [1]}
    isr.leadership.lead(2, 2)
    isr.loop.advance(0)
    # The new leader is asked for all of it.
    assert isr.asked() == {0: [1], 1: [1]}
    assert not isr.submit(0, [1, 2])
    isr.answer({0: 0, 1: ErrorCode.INVALID_UPDATE_VERSION})
    assert isr.results == [(0, 0), (1, ErrorCode.INVALID_UPDATE_VERSION)]
    assert isr.submit(0, [1, 2])
    # The partitions that an answer leaves out are asked for again.
    isr.answer({})
    assert isr.asked() == {0: [1, 2]}
    isr.channel.answer(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert not isr.submit(0, [1])
    isr.loop.advance(0.05)
    assert isr.asked() == {0: [1, 2]}
    isr.answer({0: 0})
    assert isr.results[2:] == [(0, 0)]
    assert not isr.loop.sleeping()
