"""Several nodes of one cluster in the simulated world: the first is the controller too and the others are brokers, or
each is both and they form a quorum.

Responsible for starting, killing and restarting them on what their disks kept, and for comparing, at every restart,
what a node has rebuilt with what it had (T9). Replication between brokers is not there yet, so every partition has one
replica.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from enum import Enum

from pykbroker.config.load import development_profile, load
from pykbroker.node.node import Node
from pykbroker.replica.partition import Partition
from pykbroker.storage.format import format_directories, read_format
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft.metadata_storage import format_voters
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from tests.simulation.cluster import forgetful, recovered
from tests.simulation.rebuilt import compare_producers, fresh_producers_agree, producers_of
from tests.simulation.world import SimRuntime, World

#: node 1 listens on 9092, its controller half on 9093, node 2 on 9102, ...
PORTS = {number: 9082 + 10 * number for number in range(1, 4)}
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class Quorum(Enum):
    """The voters of the cluster."""

    #: node 1
    ALONE = "alone"
    #: every node, by controller.quorum.voters
    STATIC = "static"
    #: every node, by what the directories were formatted with (KIP-853)
    DYNAMIC = "dynamic"
    #: node 1; the others are controllers too, and find it by controller.quorum.bootstrap.servers
    JOINED = "joined"


def _controller(number: int) -> str:
    return f"localhost:{PORTS[number] + 1}"


def _properties(number: int, count: int, quorum: Quorum) -> dict[str, str]:
    properties = development_profile("/data", PORTS[number]) | {"node.id": str(number)}
    if quorum in (Quorum.ALONE, Quorum.JOINED):
        properties["controller.quorum.bootstrap.servers"] = _controller(1)
        if number > 1 and quorum is Quorum.ALONE:
            listener = {"listeners": f"PLAINTEXT://localhost:{PORTS[number]}"}
            properties |= {"process.roles": "broker", **listener, "advertised.listeners": listener["listeners"]}
        return properties
    numbers = range(1, count + 1)
    if quorum is Quorum.STATIC:
        del properties["controller.quorum.bootstrap.servers"]
        properties["controller.quorum.voters"] = ",".join(f"{n}@{_controller(n)}" for n in numbers)
    else:
        properties["controller.quorum.bootstrap.servers"] = ",".join(_controller(n) for n in numbers)
    return properties


class SimBroker:
    """One node that is started, killed and started again."""

    def __init__(self, world: World, number: int, properties: Mapping[str, str]) -> None:
        self.world = world
        self.number = number
        self.disk = MemoryDisk(record=False, clock=world.now_ms)
        self.disk.evict = forgetful(world)
        self.starts = 0
        self.up = False
        self.machine = f"machine {number}"
        self._config = load(dict(properties))
        self._node: Node | None = None
        self._runtime: SimRuntime | None = None
        #: what each log knew of its producers when the process died: (entries, log end)
        self._knew: dict[tuple[str, int], tuple[dict[int, tuple[int, ...]], int]] = {}

    def format(self, quorum: Quorum) -> ReplicaKey:
        """For the first start; returns what the quorum will call it."""
        rng = random.Random(f"{self.world.seed} format {self.number}")
        alone = quorum is Quorum.ALONE or (quorum is Quorum.JOINED and self.number == 1)
        format_directories(self.disk, self._config, CLUSTER_ID, rng, now_ms=self.world.now_ms(), standalone=alone)
        formatted = read_format(self.disk, self._config, rng, now_ms=self.world.now_ms())
        return ReplicaKey(self.number, formatted.directory_ids["/data"])

    def format_voters(self, voters: VoterSet) -> None:
        format_voters(self.disk, "/data", voters, self.world.now_ms())

    async def start(self) -> None:
        self.starts += 1
        name = f"node {self.number} start {self.starts}"
        runtime = self._runtime = self.world.runtime(name, self.disk, self.machine)
        self._node = Node(self._config, runtime)
        await self._node.start()
        self.up = True
        self.world.trace.note("started", self.number, self.starts, round(self.world.loop.time(), 6))
        await self._compare()

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    def what_it_sees(self) -> object:
        """For a message about a cluster that does not come together."""
        if not self.up:
            return "down"
        image = self.node.loader.image
        lifecycle = self.node.services.lifecycle
        brokers = {broker.id: (broker.epoch, broker.fenced) for broker in image.brokers.values()}
        return self.node.shared.quorum.leader_id, lifecycle.state.name, brokers, sorted(image.controllers)

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

    def __init__(self, world: World, count: int, overrides: Mapping[str, str], quorum: Quorum = Quorum.ALONE) -> None:
        self.world = world
        self.quorum = quorum
        self.brokers = {
            number: SimBroker(world, number, {**_properties(number, count, quorum), **overrides})
            for number in range(1, count + 1)
        }

    async def start(self) -> None:
        keys = {number: broker.format(self.quorum) for number, broker in self.brokers.items()}
        if self.quorum is Quorum.ALONE:
            for broker in self.brokers.values():
                await broker.start()
            return
        if self.quorum is Quorum.DYNAMIC:
            voters = VoterSet.of(
                VoterNode(key, (Endpoint("CONTROLLER", "localhost", PORTS[number] + 1),))
                for number, key in keys.items()
            )
            for broker in self.brokers.values():
                broker.format_voters(voters)
        # None of them comes up before a majority is there.
        await asyncio.gather(*(broker.start() for broker in self.brokers.values()))

    def leader(self) -> SimBroker | None:
        """The node that leads the quorum, in the opinion of a majority."""
        opinions = [broker.node.shared.quorum.leader_id for broker in self.brokers.values() if broker.up]
        named = {number for number in opinions if number is not None and 2 * opinions.count(number) > len(self.brokers)}
        return self.brokers[named.pop()] if named else None

    def is_whole(self) -> bool:
        """Every broker is registered as it is now and serves, and so is every controller, as every node sees it."""
        leader = self.leader()
        if leader is None or not all(broker.up for broker in self.brokers.values()):
            return False
        voters = [1] if self.quorum is Quorum.ALONE else list(self.brokers)
        for seer in self.brokers.values():
            image = seer.node.loader.image
            for number, broker in self.brokers.items():
                shared = broker.node.shared
                known, controller = image.brokers.get(number), image.controllers.get(number)
                if known is None or known.incarnation_id != shared.incarnation_id or not image.broker_is_active(number):
                    return False
                if number in voters and (controller is None or controller.incarnation_id != shared.incarnation_id):
                    return False
        return True

    async def become_whole(self, seconds: float = 60.0) -> None:
        """When all faults are over. B4, B7: without a word from outside every node is a member again."""
        end = self.world.loop.time() + seconds
        while not self.is_whole():
            assert self.world.loop.time() < end, {n: broker.what_it_sees() for n, broker in self.brokers.items()}
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for number in sorted(self.brokers, reverse=True):
            if self.brokers[number].up:
                await self.brokers[number].stop()
