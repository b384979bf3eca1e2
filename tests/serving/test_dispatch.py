"""From a frame to its handler and back: headers, versions, what cannot be decoded, and the one place after each
handler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import On
from pykbroker.metrics.registry import Metrics
from pykbroker.net.connection import CloseConnection
from pykbroker.serving.dispatch import Dispatcher, PendingAnswer
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import decode_response, encode_request
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.net.fakes import FakeLoop, connect, feed, make_listener

HEARTBEAT = 12


@pytest.fixture
def dispatcher() -> Dispatcher:
    loop = FakeLoop()
    runtime = SimpleNamespace(loop=loop, now_ms=lambda: int(loop.now * 1000))
    services = SimpleNamespace(runtime=runtime, metrics=Metrics())
    made = Dispatcher(cast(Any, services), On.BROKER)
    made.rows[HEARTBEAT].handle = lambda ctx, request: HeartbeatResponse(error_code=27)
    return made


def frame(message: Any, version: int, correlation_id: int = 5) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(message.API_KEY, version, correlation_id, "me", message))))[4:]


HEART = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("version", range(5))
def test_a_request_is_answered_with_its_correlation_id(dispatcher: Dispatcher, version: int) -> None:
    answer = dispatcher(None, frame(HEART, version, 77))
    assert decode_response(HEARTBEAT, version, b"".join(answer)[4:]) == (77, HeartbeatResponse(error_code=27))


def test_requests_are_counted_under_kafkas_name(dispatcher: Dispatcher) -> None:
    dispatcher(None, frame(HEART, 4))
    dispatcher(None, frame(HEART, 4))
    counted = dispatcher.services.metrics.snapshot()
    assert counted["kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Heartbeat"] == 2


def test_the_time_of_a_later_answer_is_counted(dispatcher: Dispatcher) -> None:
    loop = cast(FakeLoop, dispatcher.services.runtime.loop)
    future = loop.create_future()
    dispatcher.rows[HEARTBEAT].handle = lambda ctx, request: future
    pending = dispatcher(None, frame(HEART, 4))
    assert isinstance(pending, PendingAnswer)
    loop.now += 0.25
    pending.encode(HeartbeatResponse())
    counted = dispatcher.services.metrics.snapshot()
    assert counted["kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Heartbeat"] == 250
    assert counted["kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Heartbeat"] == 1


@pytest.mark.parametrize("version", [-1, 5, 99, 32767])
def test_an_unknown_version_ends_the_connection(dispatcher: Dispatcher, version: int) -> None:
    data = bytearray(frame(HEART, 0))
    data[2:4] = version.to_bytes(2, "big", signed=True)
    with pytest.raises(CloseConnection, match=r"version|decoded"):
        dispatcher(None, memoryview(data))


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(dispatcher: Dispatcher) -> None:
    data = bytearray(frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4))
    data[2:4] = (99).to_bytes(2, "big")
    _, response = decode_response(18, 0, b"".join(dispatcher(None, memoryview(data)))[4:])
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x27\x0f" + bytes(8), bytes(9), bytes(frame(HEART, 4))[:-4]])
def test_what_cannot_be_decoded_ends_the_connection(dispatcher: Dispatcher, data: bytes) -> None:
    with pytest.raises(CloseConnection):
        dispatcher(None, memoryview(bytearray(data)))


def test_an_api_that_is_not_served_ends_the_connection(dispatcher: Dispatcher) -> None:
    data = bytearray(frame(HEART, 0))
    data[0:2] = (52).to_bytes(2, "big")
    with pytest.raises(CloseConnection, match="not served"):
        dispatcher(None, memoryview(data))


def test_a_bug_in_a_handler_ends_the_connection_and_is_logged_once(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ctx: Any, request: Any) -> Any:
        raise ZeroDivisionError

    dispatcher.rows[HEARTBEAT].handle = broken
    with pytest.raises(CloseConnection, match="internal error"):
        dispatcher(SimpleNamespace(client_host="127.0.0.1"), frame(HEART, 4))
    assert len(caplog.records) == 1


def test_a_throttled_client_is_told_and_not_read_meanwhile(dispatcher: Dispatcher) -> None:
    """The seam of quotas: KIP-219."""
    listener = make_listener(dispatcher)
    dispatcher.throttle = lambda ctx: 1500
    timers: list[tuple[float, Any]] = []
    loop = dispatcher.services.runtime.loop
    cast(Any, loop).call_later = lambda delay, callback: timers.append((delay, callback))
    connection, transport = connect(listener)
    feed(connection, len(frame(HEART, 4)).to_bytes(4, "big") + bytes(frame(HEART, 4)))
    _, response = decode_response(HEARTBEAT, 4, bytes(transport.written)[4:])
    assert isinstance(response, HeartbeatResponse)
    assert response.throttle_time_ms == 1500
    assert not transport.reading
    ((delay, unmute),) = timers
    assert delay == 1.5
    unmute()
    assert transport.reading
