"""One node of the simulated cluster, which starts, stops, pauses and dies, and starts again with what its disk kept.

Responsible for its lives and for the faults of its disk. Tests that compare one life with the next derive a class from
`SimBroker`, and give it to the cluster.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pykbroker.config.load import load
from pykbroker.node.node import Node
from pykbroker.replica.partition import Partition
from pykbroker.storage.format import format_directories, read_format
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft.metadata_storage import format_voters
from pykbroker_raft.voters import ReplicaKey, VoterSet
from pykbroker_worlds.simulated.sim_node import forgetful
from pykbroker_worlds.simulated.world import SimRuntime, SimWorld

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
#: The capacity of a disk that is not full.
ROOM_BYTES = 1 << 40
_CHANGING = frozenset(
    {"create", "make_dir", "pwritev", "truncate", "fsync", "rename", "unlink", "remove_dir", "fsync_dir"}
)
#: Longer than any stop that goes well.
_LONGEST_STOP_SECONDS = 20.0


class DiskFaults:
    """The faults of one machine's disk; called before each call of the disk."""

    def __init__(self) -> None:
        #: paths under which every call fails
        self.dead: set[str] = set()
        self._calls_left = 0
        self._crash: Callable[[], bool] | None = None

    def crash_within(self, calls: int, crash: Callable[[], bool]) -> None:
        """Call `crash` before the changing call that comes after `calls` others. It returns whether the process has
        died."""
        self._calls_left, self._crash = calls, crash

    def no_crash(self) -> None:
        self._crash = None

    def __call__(self, operation: str, path: str) -> None:
        if self._crash is not None and operation in _CHANGING:
            self._calls_left -= 1
            if self._calls_left < 0:
                crash, self._crash = self._crash, None
                if crash():
                    _gone(operation, path)
        for directory in self.dead:
            if path.startswith(directory + "/") or path == directory:
                raise OSError(errno.EIO, f"{operation}: the disk is dead", path)


def _gone(operation: str, path: str) -> None:
    """A process that died in the middle of a callback changes nothing in the rest of it."""
    raise OSError(errno.EIO, f"{operation}: the process is dead", path)


class SimBroker:
    """A simulated node. `up` is True if it has started, and has neither stopped nor died since."""

    def __init__(self, world: SimWorld, number: int, properties: Mapping[str, str]) -> None:
        self.world = world
        self.number = number
        self.config = load(dict(properties))
        self.disk_faults = DiskFaults()
        self.disk = self._fitted(MemoryDisk(record=False, clock=world.now_ms))
        self.starts = 0
        self.up = False
        self._is_stopping = False
        #: the last life ended with the loss of unsynced data
        self.lost_power = False
        self.machine = f"machine {number}"
        #: the error with which it stopped by itself, or did not start
        self.failure: BaseException | None = None
        self._node: Node | None = None
        self._runtime: SimRuntime | None = None
        self._died: asyncio.Future[None] | None = None
        self._failing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"node {self.number}"

    def _fitted(self, disk: MemoryDisk) -> MemoryDisk:
        disk.evict = forgetful(self.world)
        disk.interfere = self.disk_faults
        return disk

    # -- before the first start ---------------------------------------------------------------------------------------

    def format(self, *, standalone: bool) -> ReplicaKey:
        """Format the directories for the first start; return the replica's key in the quorum."""
        rng = random.Random(f"{self.world.seed} format {self.number}")
        now_ms = self.world.now_ms()
        format_directories(self.disk, self.config, CLUSTER_ID, rng, now_ms=now_ms, standalone=standalone)
        formatted = read_format(self.disk, self.config, rng, now_ms=now_ms)
        return ReplicaKey(self.number, formatted.directory_ids[self.config.metadata_log_dir])

    def format_voters(self, voters: VoterSet) -> None:
        format_voters(self.disk, self.config.metadata_log_dir, voters, self.world.now_ms())

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    @property
    def runtime(self) -> SimRuntime:
        assert self._runtime is not None
        return self._runtime

    @property
    def is_alive(self) -> bool:
        """True if its process exists: it starts, runs, is paused or stops."""
        return self._runtime is not None and self._runtime.alive

    @property
    def runs(self) -> bool:
        """True if it is up and not paused."""
        return self.up and self.runtime.runs

    def what_it_sees(self) -> object:
        """Return a text for a message about a cluster that does not become whole."""
        if not self.up:
            return "down"
        image = self.node.loader.image
        brokers = {broker.id: (broker.epoch, broker.fenced) for broker in image.brokers.values()}
        state = self.node.services.lease.state.name if self.config.is_broker else "controller"
        return self.node.shared.quorum.leader_id, state, brokers, sorted(image.controllers)

    def led(self) -> list[Partition]:
        if not self.config.is_broker:
            return []
        return [partition for partition in self.node.services.replicas if partition.is_leader]

    # -- its lives ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start it; return when it serves or has died. Raises the errors of a start."""
        if self._failing is not None:
            await self._failing
        assert not self.is_alive, f"{self!r} is there already"
        self.starts += 1
        self.failure = None
        name = f"node {self.number} start {self.starts}"
        self.world.network.power_on(self.machine)
        runtime = self._runtime = self.world.runtime(name, self.disk, self.machine)
        self._died = self.world.loop.create_future()
        node = self._node = Node(self.config, runtime)
        node.on_fatal(lambda: self._failed(node))
        try:
            if not await self._do(node.start()):
                return
        except BaseException as error:
            if self._is_stopping:
                return  # the stop ends the process
            self.failure = error
            self._die()
            self.disk = self._fitted(self.disk.power_loss(Survive.EVERYTHING))
            raise
        self.up = True
        self.world.trace.note("started", self.number, self.starts, round(self.world.loop.time(), 6))
        await self.has_started()

    async def _do(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run something that the process itself does; return True if it lived long enough. Raises the errors of the
        work."""
        died = self._died
        assert died is not None
        task = self.runtime.loop.create_task(work)
        await asyncio.wait({task, died}, return_when=asyncio.FIRST_COMPLETED)
        if died.done():
            # It ends with the world: nothing of a dead process runs.
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            return False
        task.result()
        return True

    def kill(self, survive: Survive) -> None:
        """Kill the node. With EVERYTHING the process died and the page cache stays; any other value is a power loss."""
        if not self.is_alive:
            return
        self.is_killed(survive)
        rng = self.world.random
        self.disk_faults.no_crash()
        self._die(power=survive is not Survive.EVERYTHING)
        self.disk.interfere = _gone
        self.disk = self._fitted(self.disk.power_loss(survive, choose=lambda bound: rng.randrange(bound)))
        self.world.trace.note("killed", self.number, survive.name, round(self.world.loop.time(), 6))

    def _die(self, *, power: bool = False) -> None:
        self.up = False
        self.lost_power = power
        self.runtime.kill(power=power)
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    async def stop(self) -> None:
        """Shut down in a controlled way, unless it dies during that. A start that is under way ends."""
        self.up = False
        self._is_stopping = True
        self.will_stop()
        did_stop = await self._do(self.node.stop())
        self._is_stopping = False
        if did_stop:
            self._die()
            self.disk = self._fitted(self.disk.power_loss(Survive.EVERYTHING))
            self.world.trace.note("stopped", self.number, round(self.world.loop.time(), 6))

    def _failed(self, node: Node) -> None:
        """End the process when the node cannot continue, as the command line does. An error in `start` ends it
        there."""
        if self.up and node is self._node:
            self.up = False
            self.failure = self.node.fatal
            self._failing = self.world.loop.create_task(self._end_failed())

    async def _end_failed(self) -> None:
        self.world.trace.note("failed", self.number, str(self.failure), round(self.world.loop.time(), 6))
        try:
            async with asyncio.timeout(_LONGEST_STOP_SECONDS):
                await self._do(self.node.stop())
        finally:
            self._failing = None
            if self.is_alive:
                self._die()
                self.disk = self._fitted(self.disk.power_loss(Survive.EVERYTHING))

    def repair_disk(self) -> None:
        """End the faults of its disk, and give it room."""
        self.disk_faults.dead.clear()
        self.disk_faults.no_crash()
        self.disk.capacity_bytes = ROOM_BYTES

    # -- for those who watch lives ------------------------------------------------------------------------------------

    async def has_started(self) -> None:
        """Called at the end of a start that went well."""

    def is_killed(self, survive: Survive) -> None:
        """Called before the process dies by `kill`."""

    def will_stop(self) -> None:
        """Called before a controlled shutdown."""
