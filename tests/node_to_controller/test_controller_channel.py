"""Where a request to the controller goes, decided for each; a connection for each purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykbroker.net.client import Disconnected
from pykbroker.node_to_controller.controller_channel import ControllerChannel, NoController
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.apis import APIS
from pykbroker_wire.headers import RequestHeader, encode_response
from pykbroker_wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pykbroker_wire.messages.envelope import EnvelopeRequest
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld
from tests.node_to_controller.fakes import FakeLeadership

ENVELOPE = EnvelopeRequest(request_data=b"", client_host_address=b"\x7f\0\0\1")
HEARTBEAT = BrokerHeartbeatRequest(broker_id=9, broker_epoch=1)


class _Server(asyncio.Protocol):
    """Answers heartbeats, and never an Envelope."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.controller.connections += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) - 4 >= (size := int.from_bytes(self._buffer[:4], "big")):
            frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
            header, _ = RequestHeader.decode(memoryview(frame))
            response: Any
            match APIS[header.api_key].name:
                case "ApiVersions":
                    response = ApiVersionsResponse(
                        api_keys=[
                            ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
                            for key, api in APIS.items()
                        ]
                    )
                case "BrokerHeartbeat":
                    response = BrokerHeartbeatResponse()
                    self.controller.heartbeats += 1
                case _:
                    self.controller.envelopes += 1
                    continue
            answer = encode_response(
                header.correlation_id, header.api_key, header.version, response.encode(header.version)
            )
            self._transport.write(b"".join(answer))


class Controller:
    """A controller of another node."""

    def __init__(self, world: SimWorld, port: int) -> None:
        self.connections = self.heartbeats = self.envelopes = 0
        self._runtime = world.runtime(f"controller {port}", MemoryDisk(record=False))
        self._port = port

    async def listen(self) -> None:
        listening = await self._runtime.listen(lambda: _Server(self), "localhost", self._port, 1)
        await listening.serve()


class Play:
    """Node 9, which is a controller too, and two other controllers."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.leadership = FakeLeadership()
        self.controllers = {number: Controller(self.world, port) for number, port in self.leadership.ports.items()}
        self.local: list[Any] = []
        self.runtime: SimRuntime = self.world.runtime("node 9", MemoryDisk(record=False))

    def channel(self) -> ControllerChannel:
        return ControllerChannel(
            self.runtime, self.leadership, self.leadership, "broker-9", local=lambda request: self.called(request)
        )

    def called(self, request: Any) -> BrokerHeartbeatResponse:
        self.local.append(request)
        return BrokerHeartbeatResponse(is_caught_up=True)

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def play() -> None:
            for controller in self.controllers.values():
                await controller.listen()
            await scenario()

        self.world.loop.run_until_complete(asyncio.wait_for(play(), 1_000))
        self.world.loop.close()


@pytest.fixture
def play() -> Play:
    return Play()


def test_each_request_goes_to_the_controller_of_the_moment(play: Play) -> None:
    channel = play.channel()

    async def scenario() -> None:
        await channel.send(HEARTBEAT, 1_000)
        assert play.controllers[1].heartbeats == 1
        play.leadership.lead(9)
        answer = await channel.send(HEARTBEAT, 1_000)
        assert answer.is_caught_up
        assert play.local == [HEARTBEAT]
        # This node has a controller half, which no longer leads.
        play.leadership.lead(2)
        await channel.send(HEARTBEAT, 1_000)
        assert play.controllers[2].heartbeats == 1
        play.leadership.lead(None)
        with pytest.raises(NoController):
            await channel.send(HEARTBEAT, 1_000)
        assert play.local == [HEARTBEAT]
        play.leadership.lead(2)
        channel.close()
        with pytest.raises(NoController):
            await channel.send(HEARTBEAT, 1_000)

    play.leadership.ports[9] = 0
    play.run(scenario)


def test_what_waits_for_a_former_leader_fails_when_there_is_another(play: Play) -> None:
    channel = play.channel()

    async def scenario() -> None:
        waiting = channel.send(ENVELOPE, 30_000)
        await asyncio.sleep(0.1)
        assert play.controllers[1].envelopes == 1
        play.leadership.lead(None)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        play.leadership.lead(3)
        with pytest.raises(Disconnected):
            await waiting
        channel.close()

    play.run(scenario)


def test_a_slow_forwarded_request_delays_no_heartbeat(play: Play) -> None:
    """They shared a connection, and answers come in the order of the requests."""
    forwarding, lifecycle = play.channel(), play.channel()

    async def scenario() -> None:
        slow = forwarding.send(ENVELOPE, 30_000)
        for _ in range(10):
            await lifecycle.send(HEARTBEAT, 1_000)
        assert not slow.done()
        assert play.controllers[1].connections >= 2
        with pytest.raises(TimeoutError):
            await slow
        forwarding.close()
        lifecycle.close()

    play.run(scenario)
