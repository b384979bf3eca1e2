"""Requests that go on to the controller: what is asked again, and what is not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from pykbroker.api import rows
from pykbroker.net.client import Disconnected
from pykbroker.net.connection import CloseConnection
from pykbroker.serving import forwarding
from pykbroker.serving.dispatch import Dispatcher, ForwardedResponse
from pykbroker.serving.rows import On
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import encode_request
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_topics import CreateTopicsRequest
from pykbroker_wire.messages.envelope import EnvelopeResponse
from tests.api.broker_half import Half


class Wire:
    """A dispatcher with one client. `frame` is what a connection hands over."""

    def __init__(self) -> None:
        self.half = Half()
        self.half.services.rows = rows(On.BROKER, self.half.services.metrics)
        self.dispatcher = Dispatcher(self.half.services, forwarding.forward)
        self.peer = self.half.context(ApiVersionsRequest()).peer

    def frame(self, request: Any, version: int | None = None) -> memoryview:
        chosen = request.MAX_VERSION if version is None else version
        return memoryview(b"".join(encode_request(request.API_KEY, chosen, 9, "me", request))[4:])

    def send(self, request: Any, version: int | None = None) -> Any:
        return self.dispatcher(self.peer, self.frame(request, version))


@pytest.fixture
def wire() -> Wire:
    return Wire()


class Channel:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.sent: list[asyncio.Future[Any]] = []
        wire.half.services.controller_channel = cast(Any, self)

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        self.sent.append(self.wire.half.services.runtime.loop.create_future())
        return self.sent[-1]


@pytest.fixture
def channel(wire: Wire) -> Channel:
    return Channel(wire)


def test_a_forwarded_answer_leaves_as_it_came(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest())
    channel.sent[0].set_result(EnvelopeResponse(response_data=b"\x00\x00\x00\x09the answer"))
    wire.half.loop.settle()
    assert isinstance(pending.future.result(), ForwardedResponse)
    assert b"".join(pending.encode(pending.future.result())) == b"\x00\x00\x00\x0e\x00\x00\x00\x09the answer"


def test_while_the_controller_moves_it_is_asked_again(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest())
    outcomes: list[Any] = [EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), Disconnected("gone")]
    for count, outcome in enumerate(outcomes, 1):
        assert len(channel.sent) == count
        if isinstance(outcome, Exception):
            channel.sent[-1].set_exception(outcome)
        else:
            channel.sent[-1].set_result(outcome)
        wire.half.loop.advance(forwarding.RETRY_SECONDS)
    channel.sent[-1].set_result(EnvelopeResponse(response_data=b"\x00\x00\x00\x09"))
    wire.half.loop.settle()
    assert isinstance(pending.future.result(), ForwardedResponse)


def test_a_bug_of_the_controller_is_not_asked_for_again(
    wire: Wire, channel: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """It was, twenty times a second for half a minute, and nobody was told what it was."""
    pending = wire.send(CreateTopicsRequest())
    with caplog.at_level(logging.ERROR):
        channel.sent[0].set_exception(ZeroDivisionError())
        wire.half.loop.settle()
    assert isinstance(pending.future.exception(), CloseConnection)
    assert "ZeroDivisionError" in caplog.text
    wire.half.loop.advance(1)
    assert len(channel.sent) == 1


def test_whose_client_has_left_is_not_asked_for_again(wire: Wire, channel: Channel) -> None:
    pending = wire.send(CreateTopicsRequest())
    pending.future.cancel()
    channel.sent[0].set_exception(Disconnected("gone"))
    wire.half.loop.advance(1)
    assert len(channel.sent) == 1
