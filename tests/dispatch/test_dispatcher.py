"""From a frame to its handler and back: headers, versions, what cannot be decoded, and the one place after each
handler."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import rows
from pykbroker.crossing.hand_over import HandOver
from pykbroker.dispatch.dispatcher import Dispatcher, PendingAnswer
from pykbroker.dispatch.rows import On
from pykbroker.dispatch.services import BrokerServices
from pykbroker.metrics.registry import Metrics
from pykbroker.net.connection import CloseConnection
from pykbroker.net.promise import Promise
from pykbroker_wire import produce_single
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker_wire.messages.produce import ProduceRequest, ProduceResponse
from testkit.nodes.wire import frame_of
from tests.net.fakes import FakeLoop

HEARTBEAT = 12
PRODUCE = 0
PEER: Any = SimpleNamespace(client_host="127.0.0.1")


Made = Dispatcher[BrokerServices]


def make(inbox: HandOver[Any] | None = None) -> Made:
    loop = FakeLoop()
    runtime = SimpleNamespace(loop=loop, now_ms=lambda: int(loop.now * 1000))
    metrics = Metrics()
    services = SimpleNamespace(runtime=runtime, metrics=metrics, rows=rows(On.BROKER, metrics), inbox=inbox)
    made = Dispatcher(cast(BrokerServices, services))
    made.rows[HEARTBEAT].handle = lambda ctx, request: HeartbeatResponse(error_code=27)
    return made


def answered(made: Made, data: memoryview) -> bytes:
    buffers = made(PEER, data)
    assert isinstance(buffers, list)
    return b"".join(buffers)


@pytest.fixture
def dispatcher() -> Made:
    return make()


def frame(message: Any, version: int, correlation_id: int = 5) -> memoryview:
    return memoryview(bytearray(frame_of(message, version, correlation_id=correlation_id, client_id="me")))[4:]


HEART = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("version", range(5))
def test_a_request_is_answered_with_its_correlation_id(dispatcher: Made, version: int) -> None:
    answer = answered(dispatcher, frame(HEART, version, 77))
    assert decode_response(HEARTBEAT, version, answer[4:]) == (77, HeartbeatResponse(error_code=27))


def test_requests_are_counted_under_kafkas_name(dispatcher: Made) -> None:
    dispatcher(PEER, frame(HEART, 4))
    dispatcher(PEER, frame(HEART, 4))
    counted = dispatcher.services.metrics.snapshot()
    assert counted["kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Heartbeat"] == 2


def test_the_time_of_a_later_answer_is_counted(dispatcher: Made) -> None:
    loop = cast(FakeLoop, dispatcher.services.runtime.loop)
    future = loop.create_future()
    dispatcher.rows[HEARTBEAT].handle = lambda ctx, request: future
    pending = dispatcher(PEER, frame(HEART, 4))
    assert isinstance(pending, PendingAnswer)
    loop.now += 0.25
    pending.encode(HeartbeatResponse())
    counted = dispatcher.services.metrics.snapshot()
    assert counted["kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Heartbeat"] == 250
    assert counted["kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Heartbeat"] == 1


def test_what_the_other_loop_has_handed_over_is_taken_before_a_frame() -> None:
    """Also where this loop has stood still over the frame before, and nothing has called it in between."""
    seen: list[str] = []
    inbox = HandOver[str](lambda taken: None, seen.append)
    made = make(inbox=inbox)

    def handle(ctx: Any, request: Any) -> HeartbeatResponse:
        seen.append("handled")
        return HeartbeatResponse()

    made.rows[HEARTBEAT].handle = handle
    made(PEER, frame(HEART, 4))
    inbox.put("another leads")
    made(PEER, frame(HEART, 4))
    assert seen == ["handled", "another leads", "handled"]


@pytest.mark.parametrize("version", [-1, 5, 99, 32767])
def test_an_unknown_version_ends_the_connection(dispatcher: Made, version: int) -> None:
    data = bytearray(frame(HEART, 0))
    data[2:4] = version.to_bytes(2, "big", signed=True)
    with pytest.raises(CloseConnection, match=r"version|decoded"):
        dispatcher(PEER, memoryview(data))


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(dispatcher: Made) -> None:
    data = bytearray(frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4))
    data[2:4] = (99).to_bytes(2, "big")
    _, response = decode_response(18, 0, answered(dispatcher, memoryview(data))[4:])
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x27\x0f" + bytes(8), bytes(9), bytes(frame(HEART, 4))[:-4]])
def test_what_cannot_be_decoded_ends_the_connection(dispatcher: Made, data: bytes) -> None:
    with pytest.raises(CloseConnection):
        dispatcher(PEER, memoryview(bytearray(data)))


def test_an_api_that_is_not_served_ends_the_connection(dispatcher: Made) -> None:
    data = bytearray(frame(HEART, 0))
    data[0:2] = (52).to_bytes(2, "big")
    with pytest.raises(CloseConnection, match="not served"):
        dispatcher(PEER, memoryview(data))


def test_a_bug_in_a_handler_ends_the_connection_and_is_logged_once(
    dispatcher: Made, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ctx: Any, request: Any) -> Any:
        raise ZeroDivisionError

    dispatcher.rows[HEARTBEAT].handle = broken
    with pytest.raises(CloseConnection, match="internal error"):
        dispatcher(PEER, frame(HEART, 4))
    assert len(caplog.records) == 1


def fast_frame(topic: str | bytes) -> bytes:
    return produce_single.encode_answer(5, topic, 0, 17, -1, 0)


@pytest.mark.parametrize(("topic", "version"), [("orders", 12), (bytes(range(16)), 13)])
def test_the_fast_path_ends_where_every_request_ends(dispatcher: Made, topic: str | bytes, version: int) -> None:
    """A frame that `handle_frame` encoded leaves as it is, and is counted with its bytes."""
    row = dispatcher.rows[PRODUCE]
    row.handle_frame = lambda ctx, data, position: fast_frame(topic)
    request = frame(ProduceRequest(acks=1), version)
    _, response = decode_response(PRODUCE, version, answered(dispatcher, request)[4:])
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].base_offset == 17
    counted = dispatcher.services.metrics.snapshot()
    assert counted["kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce"] == 1
    assert counted["kafka.network:type=RequestMetrics,name=RequestBytes,request=Produce"] == len(request)


@pytest.mark.parametrize("result", [HeartbeatResponse(), None, fast_frame("orders")], ids=["message", "none", "frame"])
def test_an_answer_that_comes_later_ends_there_too(dispatcher: Made, result: Any) -> None:
    loop = cast(FakeLoop, dispatcher.services.runtime.loop)
    promise = Promise()
    dispatcher.rows[HEARTBEAT].handle = lambda ctx, request: promise
    pending = dispatcher(PEER, frame(HEART, 4))
    assert isinstance(pending, PendingAnswer)
    loop.now += 0.25
    assert bool(pending.encode(result)) == (result is not None)
    counted = dispatcher.services.metrics.snapshot()
    assert counted["kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Heartbeat"] == 250
    assert counted["kafka.network:type=RequestMetrics,name=RequestBytes,request=Heartbeat"] == len(frame(HEART, 4))


@pytest.mark.slow
def test_an_api_is_resolved_with_its_first_request() -> None:
    source = (
        "import sys, pykbroker.node.node\n"
        "from pykbroker.api import TABLE, rows\n"
        "from pykbroker.metrics.registry import Metrics\n"
        "from pykbroker.dispatch.rows import On\n"
        "served = rows(On.BROKER, Metrics())\n"
        "def resolved(): return [api.module for api in TABLE if f'pykbroker.api.{api.module}' in sys.modules]\n"
        "assert resolved() == [], resolved()\n"
        "assert served.find(9999) is None\n"
        "assert served.find(0) is served[0]\n"
        "assert resolved() == ['produce'], resolved()\n"
        # The modules that crc32c would load only to get its own version.
        "assert not {'email', 'zipfile', 'importlib.metadata'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True)
