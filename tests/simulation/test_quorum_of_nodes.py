"""Combined nodes and the current controller, in the simulated world: one event at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker_log.memory_disk import Survive
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

#: As in a real cluster: a session is longer than an election.
SESSIONS = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "9000"}


def on_three(scenario: Callable[[Stage], Awaitable[None]], quorum: Quorum, seed: int = 1) -> None:
    play(scenario, Stage(seed, 3, SESSIONS, quorum))


async def another_leads(stage: Stage, former: SimBroker) -> SimBroker:
    for _ in range(1_000):
        leader = stage.cluster.leader()
        if leader is not None and leader is not former:
            return leader
        await asyncio.sleep(0.05)
    raise AssertionError("no other node leads the quorum")


@pytest.mark.parametrize("quorum", [Quorum.STATIC, Quorum.DYNAMIC])
def test_heartbeats_go_on_at_the_new_controller(quorum: Quorum) -> None:
    """No live broker is fenced while the leader of the quorum changes again and again."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        fenced: set[int] = set()
        killed: set[int] = set()

        class Watch:
            def publish(self, delta: object, old: object, new: object) -> None:
                for broker in cluster.brokers.values():
                    image = broker.node.loader.image
                    fenced.update(known.id for known in image.brokers.values() if known.fenced)

        for _ in range(4):
            former = cluster.leader()
            assert former is not None
            fenced.clear()
            watch = Watch()
            others = [broker for broker in cluster.brokers.values() if broker is not former]
            for broker in others:
                broker.node.loader.add_publisher(watch, catch_up=False)
            former.kill(Survive.EVERYTHING)
            killed.add(former.number)
            await another_leads(stage, former)
            await asyncio.sleep(20)
            assert fenced == {former.number}
            for broker in others:
                assert broker.node.services.lease.state is BrokerState.RUNNING
            await former.start()
            await cluster.become_whole()
        assert len(killed) > 1

    on_three(scenario, quorum)


@pytest.mark.parametrize("quorum", [Quorum.STATIC, Quorum.DYNAMIC])
def test_a_forwarded_request_finds_the_new_controller(quorum: Quorum) -> None:
    """The request waited for the node's own half for 30 s. The former controller is cut off, and does not report
    that."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        former = cluster.leader()
        assert former is not None
        stage.world.network.cut_off(former.machine)
        began = stage.world.loop.time()
        for number in sorted(set(cluster.brokers) - {former.number}):
            admin = stage.peer(f"admin {number}")
            admin.only = number
            await admin.create_topic(f"from-{number}", 2)
        assert stage.world.loop.time() - began < 15
        assert cluster.leader() is not former
        stage.world.network.cut_off()
        await cluster.become_whole()
        # A former controller forwards requests too.
        admin = stage.peer("admin of the former")
        admin.only = former.number
        await admin.create_topic("from-the-former", 3)
        leaders = [await admin.leader(("from-the-former", index)) for index in range(3)]
        assert sorted(leaders) == [1, 2, 3]

    on_three(scenario, quorum)


def test_a_combined_node_that_is_no_voter_finds_the_quorum_by_its_bootstrap_servers() -> None:
    """The key had no effect on combined nodes. Node 2 is formatted without initial controllers."""

    async def scenario(stage: Stage) -> None:
        await stage.cluster.become_whole()
        node = stage.cluster.brokers[2].node
        assert node.shared.quorum.leader_id == 1
        assert sorted(node.loader.image.controllers) == [1, 2]
        assert not node.shared.quorum.node.is_voter

    play(scenario, Stage(1, 2, SESSIONS, Quorum.JOINED))


@pytest.mark.parametrize("quorum", [Quorum.STATIC, Quorum.DYNAMIC])
def test_a_node_that_stopped_leading_is_let_go_by_the_one_that_leads(quorum: Quorum) -> None:
    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        former = cluster.leader()
        assert former is not None
        former.node.shared.quorum.resign()
        leader = await another_leads(stage, former)
        await former.stop()
        assert leader.node.loader.image.brokers[former.number].fenced
        await former.start()
        await cluster.become_whole()

    on_three(scenario, quorum)
