"""The proof of a clean stop in whole nodes: a failed start leaves it, and a broker with all records may lead."""

from __future__ import annotations

import asyncio
import json

import pytest

from pykbroker.node.shared import StartError
from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import Layout, Quorum
from testkit.nodes.sim import Sim
from tests.simulation.stage import Stage, play

SIGN = "/data/.kafka_cleanshutdown"
#: Two brokers and a separate controller; every topic needs both brokers in sync.
LAYOUT = Layout(combined=0, brokers=2, controllers=1)
CONTROLLER = 3
SETTINGS = {
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "initial.broker.registration.timeout.ms": "5000",
}


def epoch_in_sign(disk: MemoryDisk) -> int | None:
    return json.loads(read_file(disk, SIGN))["brokerEpoch"] if disk.exists(SIGN) else None


async def all_stopped(stage: Stage) -> SimBroker:
    """Stop the brokers one after the other, then the controller. Return the broker that had all records."""
    cluster = stage.cluster
    await cluster.become_whole()
    await stage.peer("admin").create_topic("t", 1, replicas=2)
    for number in (1, 2, CONTROLLER):
        await cluster.nodes[number].stop()
    last = cluster.nodes[2]
    assert epoch_in_sign(last.disk) is not None
    return last


async def leads_again(stage: Stage, broker: SimBroker) -> None:
    """Check that the partition has a leader with only the controller and this broker."""
    await asyncio.gather(stage.cluster.nodes[CONTROLLER].start(), broker.start())
    partition = broker.node.loader.image.topics.partition("t", 0)
    assert partition is not None
    assert partition.leader == broker.number, partition
    await stage.cluster.nodes[1].start()
    await stage.cluster.become_whole()


async def _begun(broker: SimBroker) -> asyncio.Future[None]:
    """Start it, and let it look for a controller for a while."""
    starting = asyncio.ensure_future(broker.start())
    await asyncio.sleep(2)
    return starting


async def it_is_killed(stage: Stage, broker: SimBroker) -> None:
    starting = await _begun(broker)
    broker.kill(Survive.EVERYTHING)
    await starting


async def the_power_fails(stage: Stage, broker: SimBroker) -> None:
    starting = await _begun(broker)
    broker.kill(Survive.NOTHING)
    await starting


async def it_is_stopped(stage: Stage, broker: SimBroker) -> None:
    starting = await _begun(broker)
    await broker.stop()
    await starting


async def it_gives_up(stage: Stage, broker: SimBroker) -> None:
    with pytest.raises(StartError, match="unable to register"):
        await broker.start()


async def its_port_is_taken(stage: Stage, broker: SimBroker) -> None:
    other = stage.world.runtime(f"other {broker.starts}", MemoryDisk())
    taken = stage.world.network.listen(other, asyncio.Protocol, 9102)
    with pytest.raises(OSError, match="in use"):
        await broker.start()
    taken.close()


FAILURES = (it_is_killed, the_power_fails, it_is_stopped, it_gives_up, its_port_is_taken)


@pytest.mark.slow
def test_a_broker_stays_eligible_however_its_starts_fail_before_it_finds_a_controller() -> None:
    async def scenario(stage: Stage) -> None:
        broker = await all_stopped(stage)
        before = epoch_in_sign(broker.disk)
        for fail in FAILURES:
            await fail(stage, broker)
            assert epoch_in_sign(broker.disk) == before, fail.__name__
        await leads_again(stage, broker)

    play(scenario, Stage(1, overrides=SETTINGS, quorum=Quorum.STATIC, layout=LAYOUT))


@pytest.mark.slow
def test_a_broker_that_stops_between_its_registration_and_its_logs_stays_eligible() -> None:
    """The controller has a new epoch for it by then. Apache Kafka leaves the old one in the file."""

    async def scenario(stage: Stage) -> None:
        broker = await all_stopped(stage)
        before = epoch_in_sign(broker.disk)
        await stage.cluster.nodes[CONTROLLER].start()
        starting = asyncio.ensure_future(broker.start())
        registered = asyncio.Event()
        stage.world.after_event.append(lambda: registered.set() if _is_registered(broker) else None)
        await registered.wait()
        stage.world.after_event.pop()
        await broker.stop()
        await starting
        after = epoch_in_sign(broker.disk)
        assert after is not None
        assert after != before
        await broker.start()
        partition = broker.node.loader.image.topics.partition("t", 0)
        assert partition is not None
        assert partition.leader == broker.number, partition
        await stage.cluster.nodes[1].start()

    # A heartbeat may have begun a session, and the next start waits for its end.
    patient = {**SETTINGS, "initial.broker.registration.timeout.ms": "20000"}
    play(scenario, Stage(1, overrides=patient, quorum=Quorum.STATIC, layout=LAYOUT))


def _is_registered(broker: SimBroker) -> bool:
    half = broker.node._broker_loop if broker.is_alive else None
    return half is not None and half.broker_epoch != -1


@pytest.mark.slow
def test_a_whole_cluster_that_starts_cold_keeps_its_eligible_replicas() -> None:
    """The brokers start first, and the controller comes after they have tried for a while."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        broker = await all_stopped(stage)
        starting = [asyncio.ensure_future(cluster.nodes[number].start()) for number in (1, 2)]
        await asyncio.sleep(3)
        await cluster.nodes[CONTROLLER].start()
        await asyncio.gather(*starting)
        await cluster.become_whole()
        partition = broker.node.loader.image.topics.partition("t", 0)
        assert partition is not None
        assert {*partition.isr, *partition.elr} == {1, 2}, partition

    play(scenario, Stage(1, overrides=SETTINGS, quorum=Quorum.STATIC, layout=LAYOUT))


@pytest.mark.slow
def test_no_crash_of_a_node_finds_the_proof_beside_logs_that_have_changed() -> None:
    """The node dies, or loses power, before each operation of its disk, from a start to the end of the next stop."""
    sim = Sim()
    epochs: list[int | None] = []

    async def first(sim: Sim) -> None:
        await sim.create("t")
        await sim.produce("t", sim.batch(b"kept"))
        await sim.sim_node.stop()

    async def second(sim: Sim) -> None:
        await sim.sim_node.start()
        await sim.produce("t", sim.batch(b"new"))
        await sim.sim_node.stop()

    try:
        sim.run(first)
        disk = sim.disk
        before, kept = epoch_in_sign(disk), _partitions(disk)

        def look(operation: str, path: str) -> None:
            if operation == "open":
                return
            for survive in (Survive.EVERYTHING, Survive.NOTHING):
                after = disk.power_loss(survive)
                epochs.append(epoch_in_sign(after))
                assert epochs[-1] != before or _partitions(after) == kept, (operation, path)

        disk.interfere = look
        sim.run(second)
    finally:
        sim.close()
    found = list(dict.fromkeys(epochs))
    assert found[:2] == [before, None]
    assert epoch_in_sign(sim.disk) not in (before, None)


def _partitions(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.contents() if path.startswith("data/t-0/")}
