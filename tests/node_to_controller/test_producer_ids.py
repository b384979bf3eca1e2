"""Producer ids: each is given out once, blocks are requested in time, and no waiting caller is forgotten or kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker.node_to_controller.producer_ids import FIRST_PAUSE_MS, WAIT_SECONDS, ProducerIds
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from tests.node_to_controller.fakes import FakeLeadership
from tests.replica.world import World

LENGTH = 10


class Controller:
    """Gives out blocks of ten when the test says so."""

    def __init__(self) -> None:
        self.world = World()
        self.loop = self.world.loop
        self.asked: list[asyncio.Future[Any]] = []
        self.blocks = 0
        self.ids = ProducerIds(self.world.runtime, 1, lambda: 7, self, FakeLeadership())

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        assert request.broker_epoch == 7
        self.asked.append(self.world.runtime.loop.create_future())
        return self.asked[-1]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        (future,) = (one for one in self.asked if not one.done())
        start = self.blocks * LENGTH
        self.blocks += not code
        response = AllocateProducerIdsResponse(error_code=code, producer_id_start=start, producer_id_len=LENGTH)
        future.set_result(response)
        self.loop.advance(0)

    def take(self) -> int:
        taken = self.ids.take()
        self.loop.advance(0)
        assert isinstance(taken, int)
        return taken

    def wait(self) -> asyncio.Future[int]:
        taken = self.ids.take()
        self.loop.advance(0)
        assert isinstance(taken, asyncio.Future)
        return taken


@pytest.fixture
def controller() -> Controller:
    return Controller()


def test_ids_are_given_out_once_and_the_next_block_is_asked_for_in_time(controller: Controller) -> None:
    first = controller.wait()
    controller.answer()
    given = [first.result()] + [controller.take() for _ in range(8)]
    assert len(controller.asked) == 2
    controller.answer()
    given += [controller.take() for _ in range(9)]
    assert given == list(range(18))


def test_more_wait_than_a_block_has(controller: Controller) -> None:
    waiting = [controller.wait() for _ in range(25)]
    assert len(controller.asked) == 1
    for _ in range(3):
        controller.answer()
    assert [future.result() for future in waiting] == list(range(25))


def test_a_refusal_is_asked_again(controller: Controller) -> None:
    future = controller.wait()
    controller.answer(ErrorCode.STALE_BROKER_EPOCH)
    controller.loop.advance(FIRST_PAUSE_MS / 1000)
    controller.answer()
    assert future.result() == 0


def test_who_waits_too_long_is_told_and_forgotten(controller: Controller) -> None:
    """While there is no controller, each client that asks in vain stayed in memory."""
    futures = [controller.wait() for _ in range(3)]
    controller.loop.advance(WAIT_SECONDS)
    for future in futures:
        error = future.exception()
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not controller.ids._waiting


def test_an_id_is_not_given_to_who_has_left(controller: Controller) -> None:
    gone, stays = controller.wait(), controller.wait()
    gone.cancel()
    controller.loop.settle()
    assert len(controller.ids._waiting) == 1
    controller.answer()
    assert stays.result() == 0
    assert not controller.loop.sleeping()


def test_closing_ends_those_who_wait(controller: Controller) -> None:
    future = controller.wait()
    controller.ids.close()
    controller.loop.settle()
    assert future.cancelled()
    assert not controller.loop.sleeping()
