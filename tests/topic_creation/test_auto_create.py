"""Topics that come into being by being asked for: what is said when they cannot."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.dispatch.topic_creations import TopicCreations
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.runtime.line_limit import EVERY_SECONDS, LineLimit
from pykbroker.topic_creation.auto_create import create_missing, ensure_topic
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tests.controller.world import node_config
from tests.coordinator.fakes import Loop, as_loop

FULL = "The disk of the controller is full."


class FullController:
    """A broker whose controller refuses each topic."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.asked = 0
        self.services: Any = SimpleNamespace(
            config=node_config(),
            runtime=SimpleNamespace(loop=as_loop(self.loop)),
            metadata=MetadataLoader(),
            quorum=SimpleNamespace(is_only_voter=True),
            controller_channel=self,
            topic_creations=TopicCreations(LineLimit(self.loop.time)),
        )

    def send(self, request: CreateTopicsRequest, timeout_ms: int) -> asyncio.Future[CreateTopicsResponse]:
        self.asked += 1
        answer: asyncio.Future[CreateTopicsResponse] = self.loop.create_future()
        code = ErrorCode.KAFKA_STORAGE_ERROR
        answer.set_result(
            CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(name=topic.name, error_code=code, error_message=FULL)
                    for topic in request.topics
                ]
            )
        )
        return answer


@pytest.fixture
def broker(caplog: pytest.LogCaptureFixture) -> FullController:
    caplog.set_level(logging.INFO, "pykbroker.topic_creation.auto_create")
    return FullController()


def test_a_refused_internal_topic_is_said_once_a_minute_however_often_a_client_asks(
    broker: FullController, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        future = ensure_topic(broker.services, "__consumer_offsets")
        broker.loop.advance(0.1)
        assert future.result() is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.asked == 50
    assert caplog.messages == [
        "Sent auto-creation request for __consumer_offsets to the active controller.",
        f"Auto creation of topic __consumer_offsets failed: {FULL}",
    ]
    caplog.clear()
    broker.loop.advance(EVERY_SECONDS)
    ensure_topic(broker.services, "__consumer_offsets")
    broker.loop.advance(0)
    more = "(49 more lines like it were left out)"
    assert [message.endswith(more) for message in caplog.messages] == [True, True]


def test_names_that_a_client_invents_do_not_fill_the_log(
    broker: FullController, caplog: pytest.LogCaptureFixture
) -> None:
    create_missing(broker.services, [f"t{number}" for number in range(100)])
    broker.loop.advance(0)
    create_missing(broker.services, ["another"])
    broker.loop.advance(0)
    refused = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in refused] == [f"Auto creation of topic t0 failed: {FULL}"]
    assert max(map(len, caplog.messages)) < 400
