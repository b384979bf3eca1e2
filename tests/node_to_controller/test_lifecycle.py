"""From nothing to RUNNING and out again: lifecycle, controller and loader together."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.api import broker_heartbeat, broker_registration, controller_registration
from pykbroker.controller.result import Result
from pykbroker.controller.topics import create_topics
from pykbroker.dispatch.context import RequestContext
from pykbroker.metadata.image import Endpoint
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.node_to_controller.controller_lifecycle import ControllerRegistration
from pykbroker.security.authorizer import AllowAll
from pykbroker.security.peer_session import ANONYMOUS
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.broker_registration import BrokerRegistrationResponse
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.stored.metadata import NoOpRecord
from tests.controller.world import CLUSTER_ID, DirectChannel, World, node_config
from tests.coordinator.fakes import Loop, as_loop
from tests.node_to_controller.fakes import FakeChannel
from tests.node_to_controller.membership import Membership

PEER: Any = SimpleNamespace(
    session=ANONYMOUS, client_host="127.0.0.1", listener_name="CONTROLLER", security_protocol="PLAINTEXT"
)
HANDLERS: dict[int, Any] = {62: broker_registration, 63: broker_heartbeat, 70: controller_registration}


def channel(world: World) -> DirectChannel:
    services = world.services()
    services.authorizer = AllowAll()

    def call(request: Any) -> Any:
        ctx = RequestContext(PEER, services, request.API_KEY, request.MAX_VERSION, 0, None, 0)
        return HANDLERS[request.API_KEY].handle(ctx, request)

    return DirectChannel(call)


def lifecycle_of(world: World, to: DirectChannel, incarnation: bytes = b"i" * 16, node_id: int = 1) -> Membership:
    return Membership(
        world.runtime, world.config, to, world.loader, CLUSTER_ID, node_id=node_id, incarnation_id=incarnation
    )


ENDPOINTS = [Endpoint("PLAINTEXT", "localhost", 9092, 0)]


@pytest.mark.asyncio
async def test_a_combined_node_starts_without_waiting(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    to = channel(world)
    lifecycle = lifecycle_of(world, to)
    began = world.runtime.loop.time()
    lifecycle.start(ENDPOINTS)
    await asyncio.sleep(0.01)
    assert lifecycle.state == BrokerState.STARTING
    await world.lead()
    await lifecycle.caught_up
    assert world.loader.image.brokers[1].fenced
    await lifecycle.ready_to_unfence()
    assert world.runtime.loop.time() - began < 0.1
    assert int(lifecycle.state) == BrokerState.RUNNING
    broker = world.loader.image.brokers[1]
    assert not broker.fenced
    assert broker.epoch == lifecycle.broker_epoch
    line = "[BrokerLifecycleManager id=1] The broker has been unfenced. Transitioning from RECOVERY to RUNNING."
    assert line not in caplog.messages
    lifecycle.announce_running()
    assert caplog.messages.count(line) == 1
    lifecycle.stop()
    world.close()


@pytest.mark.asyncio
async def test_controlled_shutdown_moves_leaderships_and_ends() -> None:
    world = World()
    lifecycle = lifecycle_of(world, channel(world))
    await world.lead()
    lifecycle.start(ENDPOINTS)
    await lifecycle.ready_to_unfence()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    await world.controller.submit("create", lambda state, now_ms: create_topics(state, request, {"t"}))
    assert world.loader.image.topics.by_name["t"].partitions[0].leader == 1
    await lifecycle.begin_controlled_shutdown()
    partition = world.loader.image.topics.by_name["t"].partitions[0]
    assert partition.leader == -1
    assert (partition.isr, partition.elr) == ((), (1,))
    assert partition.leader_epoch == 1
    assert world.loader.image.brokers[1].fenced
    world.close()


@pytest.mark.asyncio
async def test_no_client_is_told_of_a_cluster_without_the_broker_that_stops() -> None:
    """librdkafka then forgets the broker's address, and has no other to ask when it is back."""
    world = World()
    lifecycle = lifecycle_of(world, channel(world))
    await world.lead()
    lifecycle.start(ENDPOINTS)
    await lifecycle.ready_to_unfence()
    loop = world.runtime.loop
    said: list[str] = []
    seen: set[tuple[bool, bool]] = set()

    def look() -> None:
        """As a request would that comes in between."""
        seen.add((world.loader.image.brokers[1].fenced, bool(said)))
        if not lifecycle.shutdown_granted.done():
            loop.call_soon(look)

    look()
    await lifecycle.begin_controlled_shutdown(lambda: said.append("no more"))
    assert said
    assert seen == {(False, False), (True, True)}
    world.close()


@pytest.mark.asyncio
async def test_a_new_incarnation_raises_leader_epochs() -> None:
    world = World()
    first = lifecycle_of(world, channel(world))
    await world.lead()
    first.start(ENDPOINTS)
    await first.ready_to_unfence()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    await world.controller.submit("create", lambda state, now_ms: create_topics(state, request, {"t"}))
    first.stop()
    # Killed; another controller, so the old session does not stand in the way.
    world.controller.state.sessions.clear()
    second = lifecycle_of(world, channel(world), b"j" * 16)
    second.start(ENDPOINTS)
    await second.caught_up
    fenced = world.loader.image.topics.by_name["t"].partitions[0]
    # It may have lost unsynced records, so it is no longer eligible, but it was the last leader.
    assert (fenced.leader, fenced.leader_epoch) == (-1, 1)
    assert (fenced.isr, fenced.elr, fenced.last_known_elr) == ((), (), (1,))
    await second.ready_to_unfence()
    again = world.loader.image.topics.by_name["t"].partitions[0]
    assert (again.leader, again.leader_epoch, again.isr) == (1, 2, (1,))
    assert second.broker_epoch > first.broker_epoch
    second.stop()
    world.close()


@pytest.mark.asyncio
async def test_the_controller_registers_once() -> None:
    world = World()
    to = channel(world)
    registration = ControllerRegistration(
        runtime=world.runtime, channel=to, metadata=world.loader, node_id=1, incarnation_id=b"c" * 16
    )
    registration.start([Endpoint("CONTROLLER", "localhost", 9093, 0)])
    await world.lead()
    await world.loader.when(lambda image: 1 in image.controllers)
    await asyncio.sleep(0.01)
    assert len(to.sent) == 1
    assert world.loader.image.controllers[1].endpoints["CONTROLLER"].port == 9093
    registration.stop()
    world.close()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_broker_whose_controllers_are_gone_ends_its_shutdown_with_its_session() -> None:
    """The last of several nodes that stop at once no longer has a controller."""
    world = World(node_config(broker__session__timeout__ms="300", broker__heartbeat__interval__ms="100"))
    lifecycle = lifecycle_of(world, channel(world))
    await world.lead()
    lifecycle.start(ENDPOINTS)
    await lifecycle.ready_to_unfence()
    world.quorum.lead(None)
    world.controller.stop()
    await lifecycle.begin_controlled_shutdown()
    assert int(lifecycle.state) == BrokerState.SHUTTING_DOWN
    assert not world.loader.image.brokers[1].fenced


@pytest.mark.asyncio
async def test_what_was_not_committed_is_dropped_with_the_leadership() -> None:
    world = World()
    lifecycle = lifecycle_of(world, channel(world))
    await world.lead()
    lifecycle.start(ENDPOINTS)
    await lifecycle.ready_to_unfence()
    world.quorum.automatic = False
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    future = world.controller.submit("create", lambda state, now_ms: create_topics(state, request, {"t"}))
    reading = world.controller.read("read", lambda state: "t" in state.image.topics.by_name)
    assert "t" in world.controller.state.image.topics.by_name
    assert not future.done()
    world.quorum.lead(2)
    for waiting in (future, reading):
        with pytest.raises(KafkaError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert "t" not in world.controller.state.image.topics.by_name
    assert world.controller.state.image.brokers == world.loader.image.brokers
    with pytest.raises(KafkaError):
        await world.controller.submit("late", lambda state, now_ms: Result(None))
    world.quorum.lose_uncommitted()
    world.quorum.automatic = True
    await world.lead()
    answer = await world.controller.submit("create", lambda state, now_ms: create_topics(state, request, {"t"}))
    assert answer.topics[0].error_code == 0
    lifecycle.stop()
    world.close()


@pytest.mark.asyncio
async def test_a_read_waits_for_what_it_shows() -> None:
    world = World()
    await world.lead()
    world.quorum.automatic = False
    answer = world.controller.read("read", lambda state: 1)
    assert answer.done()
    world.controller._run("noop", lambda state, now_ms: Result(None, [NoOpRecord()]))
    answer = world.controller.read("read", lambda state: 2)
    assert not answer.done()
    world.quorum.commit()
    assert await answer == 2
    world.close()


def test_a_registration_that_has_to_wait_is_tried_again_every_second() -> None:
    """As it waits for the end of its last session. With pauses that double up to the session's length, it came up to
    4.4 s later than it could."""
    loop = Loop()
    to = FakeChannel(loop)
    loader = MetadataLoader()
    loader.handle_leader(2, 1)
    runtime: Any = SimpleNamespace(loop=as_loop(loop))
    lifecycle = Membership(runtime, node_config(), to, loader, CLUSTER_ID)
    lifecycle.start(ENDPOINTS)
    loop.advance(0)
    sent_at: list[float] = []
    while len(sent_at) < 12:
        sent_at.append(loop.time())
        to.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
        asked = len(to.requests)
        while len(to.requests) == asked:
            loop.advance(0.05)
    pauses = [after - before for before, after in pairwise(sent_at)]
    assert max(pauses) < 1.1
    lifecycle.stop()
