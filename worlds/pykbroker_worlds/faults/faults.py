"""Applies planned faults to a cluster, each at its time, and repairs everything at the end.

Responsible for choosing the node of a fault, for keeping nodes' lives apart (one that is down is not stopped), and for
the budget of disks that may lose something (`_may_die`). Every fault is recorded in the story.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pykbroker_log.memory_disk import Survive
from pykbroker_worlds.faults.fault_plan import Fault, Kind, Who
from pykbroker_worlds.faults.timeline import Timeline
from pykbroker_worlds.simulated.network import USUAL, Delay, Way, both_ways
from pykbroker_worlds.simulated.sim_broker import ROOM_BYTES, SimBroker
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from pykbroker_worlds.simulated.world import SimRuntime

CLIENTS = "clients"
#: The room that is left on a disk that counts as full.
_LEFT_BYTES = 3_000


class Faults:
    """`run` applies the faults, `heal` ends those that are left."""

    def __init__(
        self,
        faults: Sequence[Fault],
        cluster: SimCluster,
        data_topic: str | None,
        *,
        seconds: float,
        flushes: bool = False,
        clients: Sequence[str] = (CLIENTS,),
    ) -> None:
        """`faults` are in the order of their times. `data_topic` is the one whose leaders `Who.LEADER` means, None for
        all topics that are not internal. `seconds` is the length of `run`. With `flushes` each append is flushed before
        it is acknowledged. `clients`: the machines of clients."""
        self._clients = list(clients)
        self._faults = faults
        self._seconds = seconds
        self._flushes = flushes
        self._cluster = cluster
        self._world = cluster.world
        self._network = cluster.world.network
        self._data_topic = data_topic
        #: nodes that a fault has stopped, until it has started them again
        self._taken: set[int] = set()
        #: the broker whose disk may have lost something
        self._lossy: SimBroker | None = None
        self._kept_dead: SimBroker | None = None
        self._timeline = Timeline(self._world.loop)

    # -- the plan -----------------------------------------------------------------------------------------------------

    async def run(self, tasks: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Begin each fault at its time; `tasks` runs one concurrently with the others."""
        await self._timeline.run(self._faults, self._seconds, self._do, tasks)

    async def heal(self, keep_dead: SimBroker | None = None) -> None:
        """End every fault. `keep_dead` stays as it is."""
        self._kept_dead = keep_dead
        self._timeline.end()
        # Let everything that waits for the end run first.
        await asyncio.sleep(0.05)
        for node in self._cluster.nodes.values():
            if node is keep_dead:
                # A start that its disk refused is tried again after a second, and ends then.
                await _until(lambda node=node: node.number not in self._taken)  # type: ignore[misc]
                continue
            node.repair_disk()
            await _until(lambda node=node: not self._is_taken_or_failing(node))  # type: ignore[misc]
            if not node.is_alive:
                await self._start(node)
        assert not self._taken, self._taken

    def _is_taken_or_failing(self, node: SimBroker) -> bool:
        return node.number in self._taken or (node.is_alive and not node.up)

    def _tell(self, fault: Fault, node: SimBroker | None, text: str) -> None:
        self._world.tell("fault" if node is None else f"node {node.number}", f"fault {fault.number}: {text}")

    # -- choosing the node --------------------------------------------------------------------------------------------

    def _node(self, fault: Fault) -> SimBroker | None:
        """Return the node for a fault, or None if no node may have it."""
        cluster, rng = self._cluster, random.Random(fault.draw)
        candidates = [node for node in cluster.nodes.values() if node.up and node.number not in self._taken]
        if not candidates:
            return None
        wanted: list[SimBroker] = []
        if fault.who is Who.CONTROLLER:
            wanted = [node for node in candidates if node.node.shared.quorum.is_leader]
        elif fault.who is not Who.ANY:
            is_data = fault.who is Who.LEADER
            wanted = [
                node
                for node in candidates
                if any(self._is_data(partition.topic) == is_data for partition in node.led())
            ]
        return rng.choice(wanted or candidates)

    def _is_data(self, topic: str) -> bool:
        return topic == self._data_topic if self._data_topic is not None else not topic.startswith("__")

    def _machines(self) -> list[str]:
        return [node.machine for node in self._cluster.nodes.values()]

    def _others(self, node: SimBroker, *, clients: bool) -> list[str]:
        others = [machine for machine in self._machines() if machine != node.machine]
        return [*others, *self._clients] if clients else others

    # -- faults -------------------------------------------------------------------------------------------------------

    async def _do(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL | Kind.STOP | Kind.KILL_AT_DISK | Kind.POWER | Kind.POWER_AT_DISK:
                await self._end_a_life(fault)
            case Kind.KILL_ALL:
                await self._kill_all(fault)
            case Kind.PAUSE:
                await self._pause(fault)
            case Kind.ISOLATE | Kind.ONE_WAY | Kind.SPLIT | Kind.BRIDGE | Kind.NO_CLIENTS | Kind.FLAP:
                await self._silence(fault)
            case Kind.SLOW_LINK | Kind.RESET | Kind.LOSE_CONNECTIONS | Kind.REFUSE:
                await self._disturb(fault)
            case Kind.SLOW_DISK | Kind.FULL_DISK | Kind.DEAD_DISK:
                await self._spoil_disk(fault)
            case Kind.CLOCK:
                self._set_clock(fault)
            case Kind.RESIGN:
                for node in self._cluster.nodes.values():
                    if node.runs and node.node.shared.quorum.is_leader:
                        self._tell(fault, node, "resigns as the leader of the quorum")
                        node.node.shared.quorum.resign()

    # -- lives --------------------------------------------------------------------------------------------------------

    async def _end_a_life(self, fault: Fault) -> None:
        lossy = fault.kind in (Kind.POWER, Kind.POWER_AT_DISK)
        node = self._node(fault)
        if node is None or (fault.kind is not Kind.STOP and not self._may_die(node, lossy=lossy)):
            return
        self._taken.add(node.number)
        try:
            survive = Survive.EVERYTHING
            if lossy:
                survive = random.Random(fault.draw).choice([Survive.NOTHING, Survive.IN_ORDER, Survive.IN_ORDER])
            if fault.kind is Kind.STOP:
                self._tell(fault, node, "stops")
                await node.stop()
            elif fault.kind in (Kind.KILL_AT_DISK, Kind.POWER_AT_DISK):
                await self._crash_at_disk(fault, node, survive)
            else:
                self._kill(fault, node, survive)
            await self._timeline.last(fault.seconds)
            await self._start(node)
        finally:
            self._taken.discard(node.number)

    async def _crash_at_disk(self, fault: Fault, node: SimBroker, survive: Survive) -> None:
        crashed = asyncio.Event()

        def crash() -> bool:
            self._world.loop.call_soon(crashed.set)
            # The fault may no longer lose anything, or kill, because of what happened since it began.
            if not self._may_die(node):
                self._tell(fault, node, "does not die: another may have lost something since")
                return False
            may_lose = survive is Survive.EVERYTHING or self._may_die(node, lossy=True)
            self._kill(fault, node, survive if may_lose else Survive.EVERYTHING, "at a call of its disk, ")
            return True

        node.disk_faults.crash_within(int(fault.level * 60), crash)
        try:
            async with asyncio.timeout(3.0):
                await crashed.wait()
        except TimeoutError:
            node.disk_faults.no_crash()

    def _kill(self, fault: Fault, node: SimBroker, survive: Survive, where: str = "") -> None:
        if survive is not Survive.EVERYTHING and node.number in self._cluster.brokers:
            self._lossy = node
        self._tell(fault, node, f"dies {where}and {survive.value} survives")
        node.kill(survive)

    async def _start(self, node: SimBroker) -> None:
        """Start the node until it is up: a start that dies or fails because of a fault is tried again. `keep_dead` is
        not started."""
        while not node.up and node is not self._kept_dead:
            if node.is_alive:
                await asyncio.sleep(0.1)
                continue
            self._world.tell(f"node {node.number}", "starts")
            try:
                await node.start()
            except Exception as error:
                # Its disk is dead or full: the process ends, and is started again later.
                if not node.disk_faults.dead and node.disk.capacity_bytes >= ROOM_BYTES:
                    raise
                self._world.tell(f"node {node.number}", f"does not start: {error}")
                await self._timeline.last(1.0)
                if self._timeline.is_over:
                    node.repair_disk()

    async def _kill_all(self, fault: Fault) -> None:
        nodes = [
            node
            for node in self._cluster.nodes.values()
            if node.up and node.number not in self._taken and self._may_die(node)
        ]
        self._tell(fault, None, f"nodes {[node.number for node in nodes]} die")
        self._taken.update(node.number for node in nodes)
        rng = random.Random(fault.draw)
        for node in nodes:
            node.kill(Survive.EVERYTHING)

        async def back(node: SimBroker) -> None:
            try:
                await self._timeline.last(rng.uniform(0.0, fault.seconds))
                await self._start(node)
            finally:
                self._taken.discard(node.number)

        await asyncio.gather(*(back(node) for node in nodes))

    async def _pause(self, fault: Fault) -> None:
        node = self._node(fault)
        if node is None:
            return
        first, second = node.runtime, node.runtime.second
        # The whole process, or one of its loops, which may stand still for longer than a session.
        stands = None if second is None else (None, second, first)[fault.draw % 3]
        what = (
            "is paused" if stands is None else f"has a {'broker' if stands is second else 'control'} loop that stands"
        )
        seconds = fault.seconds if stands is None else 3 * fault.seconds
        self._tell(fault, node, f"{what} for {seconds:.2f} s")
        self._taken.add(node.number)
        try:
            if stands is None:
                first.pause()
            else:
                stands.stand_still()
            await self._timeline.last(seconds)
        finally:
            first.resume()
            self._taken.discard(node.number)
        self._tell(fault, node, "goes on")

    def _may_die(self, node: SimBroker, *, lossy: bool = False) -> bool:
        """Return True if it may die now without the loss of an acknowledged record.

        A broker that comes back without a clean stop is removed from the ISR and from the ELR, whatever its disk has.
        So while one may have lost something, no other may die; and one may lose something if all others are in every
        ISR.
        """
        if self._flushes or node.number not in self._cluster.brokers:
            return True
        others = [other for other in self._cluster.brokers.values() if other is not node]
        if lossy:
            return all(self.has_everything(other) for other in others)
        before = self._lossy
        return before is None or before is node or self.has_everything(before)

    def has_everything(self, node: SimBroker) -> bool:
        """Return True if the broker's present life is in the ISR of every partition of which it is a replica, and its
        disk will not stop it."""
        if not node.up or node.disk_faults.dead or node.disk.capacity_bytes < ROOM_BYTES:
            return False
        controller = self._cluster.leader()
        if controller is None:
            return False
        image = controller.node.loader.image
        known = image.brokers.get(node.number)
        if known is None or known.incarnation_id != node.node.shared.incarnation_id or known.fenced:
            return False
        return all(
            node.number in partition.isr
            for topic in image.topics.by_name.values()
            for partition in topic.partitions.values()
            if node.number in partition.replicas
        )

    # -- network ------------------------------------------------------------------------------------------------------

    def _ways(self, fault: Fault, node: SimBroker, rng: random.Random) -> tuple[list[Way], str]:
        """Return the ways that become silent, and their text for the story."""
        clients = fault.level < 0.3
        others = self._others(node, clients=clients)
        match fault.kind:
            case Kind.ONE_WAY:
                some = others if fault.level < 0.6 else rng.sample(others, rng.randint(1, len(others)))
                if rng.random() < 0.5:
                    return [(node.machine, other) for other in some], f"what it sends to {some} is lost"
                return [(other, node.machine) for other in some], f"what {some} send to it is lost"
            case Kind.SPLIT | Kind.BRIDGE:
                machines = self._machines()
                rng.shuffle(machines)
                middle = len(machines) // 2 + rng.randint(0, len(machines) % 2)
                if fault.kind is Kind.BRIDGE:
                    bridge, *rest = machines
                    middle = max(1, len(rest) // 2)
                    return both_ways(rest[:middle], rest[middle:]), f"{rest[:middle]} | {bridge} | {rest[middle:]}"
                return both_ways(machines[:middle], machines[middle:]), f"{machines[:middle]} | {machines[middle:]}"
            case Kind.NO_CLIENTS:
                return both_ways([node.machine], self._clients), "clients do not reach it"
            case _:
                return both_ways([node.machine], others), "is isolated" + (" from clients, too" if clients else "")

    async def _silence(self, fault: Fault) -> None:
        node = self._node(fault)
        if node is None:
            return
        rng = random.Random(fault.draw)
        ways, text = self._ways(fault, node, rng)
        self._tell(fault, node, f"{text} for {fault.seconds:.2f} s")
        resets = rng.choice([0.0, 0.5, 1.0])
        if fault.kind is not Kind.FLAP:
            self._network.silence(ways)
            await self._timeline.last(fault.seconds)
            self._network.restore(ways, resets=resets)
        else:
            for _ in range(rng.randint(3, 8)):
                self._network.silence(ways)
                await self._timeline.last(rng.uniform(0.01, 0.6))
                self._network.restore(ways, resets=resets)
                await self._timeline.last(rng.uniform(0.01, 0.6))
                if self._timeline.is_over:
                    break
        self._tell(fault, node, "the network is whole again")

    async def _disturb(self, fault: Fault) -> None:
        node = self._node(fault)
        if node is None:
            return
        rng, network = random.Random(fault.draw), self._network
        others = self._others(node, clients=True)
        match fault.kind:
            case Kind.SLOW_LINK:
                some = rng.sample(others, rng.randint(1, len(others)))
                most = 0.01 * 100**fault.level
                ways = both_ways([node.machine], some)
                self._tell(fault, node, f"up to {most:.3f} s to {some} for {fault.seconds:.2f} s")
                network.slow(ways, Delay(most / 10, most, 0.05))
                await self._timeline.last(fault.seconds)
                network.slow(ways, USUAL)
            case Kind.RESET:
                for other in others:
                    if rng.random() < 0.7:
                        count = network.reset(node.machine, other)
                        self._tell(fault, node, f"{count} connections with {other} are reset")
            case Kind.LOSE_CONNECTIONS:
                self._tell(fault, node, f"connections are silent for {fault.seconds:.2f} s")
                for other in others:
                    network.lose_one(node.machine, other, fault.seconds)
            case _:
                self._tell(fault, node, f"refuses connections for {fault.seconds:.2f} s")
                network.refuse(node.machine)
                if fault.level < 0.7:
                    for other in others:
                        network.reset(node.machine, other)
                await self._timeline.last(fault.seconds)
                network.accept(node.machine)
                self._tell(fault, node, "accepts connections")

    # -- disks and clocks ---------------------------------------------------------------------------------------------

    async def _spoil_disk(self, fault: Fault) -> None:
        node = self._node(fault)
        if node is None:
            return
        if fault.kind is Kind.SLOW_DISK:
            slowest = 0.01 * 200**fault.level
            self._tell(fault, node, f"an fsync takes up to {slowest:.3f} s for {fault.seconds:.2f} s")
            runtime = node.runtime
            runtime.fsync_seconds = (slowest / 4, slowest)
            await self._timeline.last(fault.seconds)
            runtime.fsync_seconds = SimRuntime.fsync_seconds
            return
        if not self._may_die(node):
            return
        self._taken.add(node.number)
        try:
            if fault.kind is Kind.FULL_DISK:
                self._tell(fault, node, f"its disk is full for {fault.seconds:.2f} s")
                node.disk.capacity_bytes = node.disk.used_bytes + int(fault.level * _LEFT_BYTES)
                await self._timeline.last(fault.seconds)
            else:
                directories = node.config.log_dirs
                directory = directories[-1] if fault.level < 0.6 else directories[0]
                self._tell(fault, node, f"{directory} fails for {fault.seconds:.2f} s")
                node.disk_faults.dead.add(directory)
                await self._timeline.last(fault.seconds)
            node.repair_disk()
            if fault.kind is Kind.DEAD_DISK:
                # A directory comes back only with the process.
                await _until(lambda: node.up or not node.is_alive)
                if node.up:
                    self._tell(fault, node, "is started anew, its disk works again")
                    await node.stop()
            await self._start(node)
        finally:
            node.repair_disk()
            self._taken.discard(node.number)

    def _set_clock(self, fault: Fault) -> None:
        node = self._node(fault)
        if node is not None:
            rng = random.Random(fault.draw)
            skew = rng.choice([rng.randint(-500, 500), rng.randint(-3_600_000, 3_600_000)])
            node.runtime.skew_ms = skew
            self._tell(fault, node, f"its clock is wrong by {skew} ms")


async def _until(condition: Callable[[], bool]) -> None:
    """Wait until it holds. It is polled, because nodes do not signal it."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
