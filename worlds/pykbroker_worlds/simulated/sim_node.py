"""One node alone in the simulated world: it is started, killed, and started again with what its disk kept.

sim_broker.py is a node of a cluster, with more ways to die.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from pykbroker.config.load import development_profile, load
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.replica.partition import Partition
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld

PORT = 9092


async def recovered(partition: Partition) -> PartitionLog:
    """Return a partition's log as soon as its node has recovered it; the node serves other partitions in the
    meantime."""
    done = asyncio.Event()
    partition.when_recovered(done.set)
    await done.wait()
    return partition.log


def forgetful(world: SimWorld) -> Callable[[], bool]:
    """For one read in twenty, report that its file is no longer in memory."""
    chance = random.Random(f"{world.seed} cold")
    return lambda: chance.random() < 0.05


class SimNode:
    """One node that is started, killed, and started again with what its disk kept."""

    def __init__(self, world: SimWorld, overrides: dict[str, str] | None = None) -> None:
        self.world = world
        self.disk = MemoryDisk(record=False, clock=world.now_ms)
        self.disk.evict = forgetful(world)
        self.starts = 0
        self._overrides = overrides or {}
        self._node: Node | None = None
        self._runtime: SimRuntime | None = None

    async def start(self) -> None:
        self.starts += 1
        self._runtime = self.world.runtime(f"node {self.starts}", self.disk)
        properties = {**development_profile("/data", PORT), **self._overrides}
        self._node = Node(load(properties), self._runtime, options=StartOptions(may_format=self.starts == 1))
        await self._node.start()
        self.world.trace.note("started", self.starts, round(self.world.loop.time(), 6))

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    def kill(self, survive: Survive) -> None:
        """Kill the node. With EVERYTHING the process died and the page cache stays; any other value is a power loss."""
        assert self._runtime is not None
        self._runtime.kill()
        rng = self.world.random
        self.disk = self.disk.power_loss(survive, choose=lambda bound: rng.randrange(bound))
        self.world.trace.note("killed", survive.name, round(self.world.loop.time(), 6))

    async def stop(self) -> None:
        await self.node.stop()
        assert self._runtime is not None
        self._runtime.kill()
        self.disk = self.disk.power_loss(Survive.EVERYTHING)
        self.world.trace.note("stopped", round(self.world.loop.time(), 6))
