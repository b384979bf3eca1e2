# ruff: noqa: ASYNC110  # time is virtual here, so polling costs nothing
"""The faults of a run of the cluster stay within what the cluster promises to survive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_worlds.faults.fault_plan import Fault, Kind, Who
from pykbroker_worlds.faults.faults import Faults
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

TOPIC = "orders"
#: It waits for a call of the disk that changes something.
KILL = Fault(number=1, at=0.0, kind=Kind.KILL_AT_DISK, who=Who.ANY, seconds=1.0, level=0.0, draw=0)


def on_three(scenario: Callable[[Stage, Faults], Awaitable[None]]) -> None:
    async def begin(stage: Stage) -> None:
        await stage.cluster.become_whole()
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
        answer = await stage.peer("client").anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        await until(lambda: all(map(faults.has_everything, stage.cluster.brokers.values())))
        await scenario(stage, faults)

    stage = Stage(1, 3, quorum=Quorum.STATIC)
    faults = Faults([], stage.cluster, TOPIC, seconds=0.0)
    play(begin, stage)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


def test_no_other_dies_at_its_disk_while_one_may_have_lost_something() -> None:
    async def scenario(stage: Stage, faults: Faults) -> None:
        _, two, three = stage.cluster.brokers.values()
        waiting = asyncio.ensure_future(faults._crash_at_disk(KILL, two, Survive.EVERYTHING))
        await asyncio.sleep(0)
        faults._kill(KILL, three, Survive.NOTHING)
        await waiting
        assert two.up
        assert any("does not die" in text for _, _, text in stage.world.story)

        await three.start()
        await until(lambda: faults.has_everything(three))
        await faults._crash_at_disk(KILL, two, Survive.EVERYTHING)
        assert not two.is_alive
        await two.start()

    on_three(scenario)


def test_none_loses_something_while_the_disk_of_another_fails() -> None:
    """The other node dies of the failure, whether it may or not."""

    async def scenario(stage: Stage, faults: Faults) -> None:
        one, two, _ = stage.cluster.brokers.values()
        room = two.disk.capacity_bytes
        assert faults._may_die(one, lossy=True)
        two.disk.capacity_bytes = two.disk.used_bytes + 1_000_000
        assert not faults._may_die(one, lossy=True)
        two.disk.capacity_bytes = room
        two.disk_faults.dead.add("/other")
        assert not faults._may_die(one, lossy=True)
        two.disk_faults.dead.clear()
        assert faults._may_die(one, lossy=True)

    on_three(scenario)
