"""The common part of scenarios with groups and transactions: a world, a cluster, its faults, and the end of a run.

A scenario is a coroutine over a `Stage`. `play` runs it to its end on one seed; the same seed is the same trace.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import MetadataImage
from pykbroker_log.checkpoints import decode_offsets
from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import Survive
from pykbroker_worlds.history.events import Forgot, History, Log, Place
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import Layout, Quorum, SimCluster
from pykbroker_worlds.simulated.world import SimWorld
from tests.simulation.clients.base import Peer
from tests.simulation.clients.reader import Reader
from tests.simulation.compared_broker import ComparedBroker
from tests.simulation.rebuilt import contents_of_groups, contents_of_transactions, coordinators_agree

SIMULATED_SECONDS = 900.0
#: Small, so that a run rolls segments and crosses index entries; short, so that timeouts happen in it.
OVERRIDES = {
    "log.roll.ms": "1500",
    "log.index.interval.bytes": "256",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
#: Only coordinators' logs are compacted, all the time; tombstones and markers stay for a day.
COMPACTED = {
    "log.roll.ms": "400",
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
#: Tombstones go soon too. Not for runs that compare transactions: state that only a marker contains goes with it.
FORGETFUL = {**COMPACTED, "log.cleaner.delete.retention.ms": "300"}


class Stage:
    """One run."""

    def __init__(
        self,
        seed: int,
        brokers: int = 1,
        overrides: dict[str, str] | None = None,
        quorum: Quorum = Quorum.ALONE,
        layout: Layout | None = None,
        make_node: Callable[[SimWorld, int, Mapping[str, str]], SimBroker] = ComparedBroker,
    ) -> None:
        self.world = SimWorld(seed)
        self.random = self.world.random
        self.cluster = SimCluster(self.world, brokers, {**OVERRIDES, **(overrides or {})}, quorum, layout, make_node)
        self.history = History()
        self._background: list[asyncio.Future[Any]] = []

    # -- background work ----------------------------------------------------------------------------------------------

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run until `hush`, or until it is cancelled; its errors are raised there."""
        task = asyncio.ensure_future(work)
        self._background.append(task)
        return task

    async def hush(self) -> None:
        """End the work in the background."""
        for task in self._background:
            task.cancel()
        results = await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def together(self, *work: Awaitable[Any]) -> None:
        """Wait until all have ended; raise the first error of any of them, or of the background, at once."""
        tasks = [asyncio.ensure_future(one) for one in work]
        waiting: set[asyncio.Future[Any]] = set(tasks)
        try:
            while waiting:
                watched = waiting | {task for task in self._background if not task.done()}
                done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled():
                        task.result()
                waiting -= done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def compacted_logs(self) -> int:
        """Return how many logs have been compacted, at the end of a run."""
        path = "/data/cleaner-offset-checkpoint"
        disks = [broker.disk for broker in self.cluster.brokers.values() if broker.disk.exists(path)]
        return sum(offset > 0 for disk in disks for offset in decode_offsets(read_file(disk, path)).values())

    # -- faults -------------------------------------------------------------------------------------------------------

    async def crashes(self, count: int, *, power_loss: bool = False, pause: float = 2.0) -> None:
        """Nodes are killed or stopped, and started again; those of a quorum are also cut off from each other, the
        leader too."""
        rng = self.random
        is_quorum = self.cluster.quorum is not Quorum.ALONE
        for _ in range(count):
            await asyncio.sleep(rng.uniform(0.01, pause))
            broker = rng.choice(list(self.cluster.brokers.values()))
            if is_quorum and rng.random() < 0.5:
                broker = self.cluster.leader() or broker
            self.agree()
            if is_quorum and rng.random() < 0.4:
                await self._cut_off(broker)
                continue
            if rng.random() < (0.3 if is_quorum else 0.15) and (is_quorum or len(self.cluster.brokers) == 1):
                await broker.stop()
            elif power_loss:
                broker.kill(rng.choice([Survive.NOTHING, Survive.CHOSEN, Survive.EVERYTHING]))
            else:
                broker.kill(Survive.EVERYTHING)
            await asyncio.sleep(rng.uniform(0, 0.3))
            started = self.history.now()
            await broker.start()
            self.history.record(Forgot(started=started, code=0, node=broker.number))
            self.watch_coordinators(broker)
            self.agree()

    def watch_coordinators(self, broker: SimBroker) -> None:
        """Record when the node's group coordinators begin again, from now until the node ends."""
        broker.node.loader.add_publisher(_NotesNewEpochs(self.history, broker.number), catch_up=False)

    async def _cut_off(self, broker: SimBroker) -> None:
        """Clients can reach the node, the other nodes cannot."""
        seconds = self.random.uniform(0.2, 5.0)
        self.world.trace.note("cut off", broker.number, round(seconds, 6))
        self.world.network.cut_off(broker.machine)
        await asyncio.sleep(seconds)
        self.world.network.cut_off()

    async def full_disks(self, count: int) -> None:
        """Some appends fail as on a full disk. Only one topic is affected: a node does not survive if the metadata log,
        which is on the same disk, has no room."""
        rng = self.random
        for _ in range(count):
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            broker = rng.choice(list(self.cluster.brokers.values()))
            folder = rng.choice(["__transaction_state", "__consumer_offsets", "orders"])
            if broker.up:
                broker.disk.fail_next(
                    "pwritev",
                    errno.ENOSPC,
                    path_contains=f"/{folder}-",
                    skip=rng.randint(0, 3),
                    count=rng.randint(1, 4),
                )
                self.world.trace.note("full", broker.number, folder)

    # -- agreement at any moment --------------------------------------------------------------------------------------

    def agree(self) -> None:
        """Check that a reload of any coordinator would change nothing."""
        for broker in self.cluster.brokers.values():
            if broker.up:
                agree(broker)

    async def look_now_and_then(self, pause: float = 1.0) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.05, pause))
            self.agree()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def logs(self, places: list[Place]) -> tuple[dict[Place, Log], dict[Place, int]]:
        """Return the contents of the logs, and their last stable offsets; consumers of both kinds read them too."""
        logs: dict[Place, Log] = {}
        stable: dict[Place, int] = {}
        for place in places:
            name = f"last {place[0]}-{place[1]}"
            for committed in (True, False):
                await Reader(
                    self.cluster, self.history, f"{name} {committed}", place, committed_only=committed
                ).read_all()
            reader = Reader(self.cluster, self.history, name, place, committed_only=False)
            logs[place] = await reader.whole_log()
            stable[place] = reader.last_stable_offset
        return logs, stable

    def peer(self, name: str) -> Peer:
        return Peer(self.cluster, self.history, name)


class _NotesNewEpochs:
    """A publisher that gets the metadata after the coordinators (metadata.loader.Publisher)."""

    def __init__(self, history: History, node: int) -> None:
        self._history = history
        self._node = node

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        if self._epochs(old) != self._epochs(new):
            self._history.record(Forgot(started=self._history.now(), code=0, node=self._node))

    def _epochs(self, image: MetadataImage) -> list[tuple[int, int]]:
        """Return the epochs of the partitions whose groups this node coordinates."""
        topic = image.topics.by_name.get("__consumer_offsets")
        partitions = topic.partitions if topic else {}
        return [
            (index, partition.leader_epoch) for index, partition in partitions.items() if partition.leader == self._node
        ]


def agree(broker: SimBroker) -> None:
    services = broker.node.services
    now_ms = broker.world.now_ms()
    coordinators_agree(services.groups.coordinator, contents_of_groups, now_ms)
    coordinators_agree(services.transactions.coordinator, contents_of_transactions, now_ms)


def play(scenario: Callable[[Stage], Awaitable[None]], stage: Stage) -> SimWorld:
    """Run a scenario to its end; raises AssertionError if a check fails."""
    asyncio.set_event_loop(None)
    loop = stage.world.loop

    async def run() -> None:
        await stage.cluster.start()
        for broker in stage.cluster.brokers.values():
            stage.watch_coordinators(broker)
        await scenario(stage)
        await stage.cluster.stop()

    try:
        loop.run_until_complete(asyncio.wait_for(run(), SIMULATED_SECONDS))
    finally:
        stage.world.end()
    return stage.world
