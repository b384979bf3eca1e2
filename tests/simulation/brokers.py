"""Several nodes of one cluster in the simulated world: the first is the controller too, the others are brokers.

Responsible for starting, killing and restarting them on what their disks kept, and for comparing, at every restart,
what a node has rebuilt with what it had (T9). Replication between brokers is not there yet, so every partition has one
replica.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.load import development_profile, load
from pykbroker.node.node import Node
from pykbroker.replica.partition import Partition
from pykbroker.storage.format import format_directories
from pykbroker_log.memory_disk import MemoryDisk, Survive
from tests.simulation.cluster import forgetful, recovered
from tests.simulation.rebuilt import compare_producers, fresh_producers_agree, producers_of
from tests.simulation.world import SimRuntime, World

#: node 1 listens on 9092, its controller half on 9093, node 2 on 9102, ...
PORTS = {number: 9082 + 10 * number for number in range(1, 4)}
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class SimBroker:
    """One node that is started, killed and started again."""

    def __init__(self, world: World, number: int, overrides: Mapping[str, str]) -> None:
        self.world = world
        self.number = number
        self.disk = MemoryDisk(record=False, clock=world.now_ms)
        self.disk.evict = forgetful(world)
        self.starts = 0
        self.up = False
        properties = development_profile("/data", PORTS[1])
        if number > 1:
            properties |= {
                "process.roles": "broker",
                "node.id": str(number),
                "listeners": f"PLAINTEXT://localhost:{PORTS[number]}",
                "advertised.listeners": f"PLAINTEXT://localhost:{PORTS[number]}",
            }
        self._config = load({**properties, **overrides})
        self._node: Node | None = None
        self._runtime: SimRuntime | None = None
        #: what each log knew of its producers when the process died: (entries, log end)
        self._knew: dict[tuple[str, int], tuple[dict[int, tuple[int, ...]], int]] = {}

    async def start(self) -> None:
        self.starts += 1
        runtime = self._runtime = self.world.runtime(f"node {self.number} start {self.starts}", self.disk)
        if self.starts == 1:
            format_directories(self.disk, self._config, CLUSTER_ID, runtime.random, now_ms=runtime.now_ms())
        self._node = Node(self._config, runtime)
        await self._node.start()
        self.up = True
        self.world.trace.note("started", self.number, self.starts, round(self.world.loop.time(), 6))
        await self._compare()

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    def led(self) -> list[Partition]:
        replicas = self.node.services.replicas
        return [partition for partition in replicas if partition.is_leader]

    def kill(self, survive: Survive) -> None:
        """EVERYTHING: the process died and the page cache stays. Anything else: the power went out."""
        assert self._runtime is not None
        if survive is Survive.EVERYTHING and self.up:
            self._remember()
        else:
            self._knew.clear()
        self.up = False
        self._runtime.kill()
        rng = self.world.random
        self.disk = self.disk.power_loss(survive, choose=lambda bound: rng.randrange(bound))
        self.world.trace.note("killed", self.number, survive.name, round(self.world.loop.time(), 6))

    async def stop(self) -> None:
        self.up = False
        await self.node.stop()
        self._knew.clear()
        assert self._runtime is not None
        self._runtime.kill()
        self.disk = self.disk.power_loss(Survive.EVERYTHING)
        self.world.trace.note("stopped", self.number, round(self.world.loop.time(), 6))

    # -- T9 -----------------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        for partition in self.led():
            log = partition.log_if_open
            if log is not None:
                self._knew[partition.topic, partition.index] = producers_of(log), log.log_end_offset

    async def _compare(self) -> None:
        for partition in self.led():
            log = await recovered(partition)
            fresh_producers_agree(log)
            knew = self._knew.get((partition.topic, partition.index))
            if knew is not None and knew[1] == log.log_end_offset:
                compare_producers(str(partition), knew[0], producers_of(log))


class Cluster:
    """The brokers by their ids."""

    def __init__(self, world: World, count: int, overrides: Mapping[str, str]) -> None:
        self.world = world
        self.brokers = {number: SimBroker(world, number, overrides) for number in range(1, count + 1)}

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    async def stop(self) -> None:
        for number in sorted(self.brokers, reverse=True):
            if self.brokers[number].up:
                await self.brokers[number].stop()
