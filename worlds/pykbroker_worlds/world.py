"""`World`: a cluster of pykbroker, the user's applications and everything that may happen to them, from one seed.

Responsible for what a person's test holds: applications, brokers and their faults, the store, effects, and the end of a
run. Not responsible for how a world works (simulated/).
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pykbroker.testing.clock import duration_ms
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_worlds import replacements
from pykbroker_worlds.apps import App, AppFailed, AppProcess, Main
from pykbroker_worlds.checking.claims import Claim
from pykbroker_worlds.checking.conversations import Conversations
from pykbroker_worlds.checking.evidence import Effect
from pykbroker_worlds.checking.judge import ClaimFailed, Judge
from pykbroker_worlds.checking.leaders import Leaders
from pykbroker_worlds.disturbances import Disturbances
from pykbroker_worlds.selection import Selection
from pykbroker_worlds.simulated.loop import OWNER
from pykbroker_worlds.simulated.network import both_ways
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import PORTS, Quorum, SimCluster
from pykbroker_worlds.simulated.world import EPOCH_MS, SimRuntime, SimWorld
from pykbroker_worlds.store import Store
from pykbroker_worlds.watching import watched

T = TypeVar("T")
#: A callback of a client takes some time. Deadlines that it computes with floats come to pass.
_TICK_SECONDS = 1e-6
_LONGEST_REPAIR_SECONDS = 120.0
#: Virtual seconds for the `finally` of applications, after the end.
_LAST_SECONDS = 60.0


class World:
    """A world of one seed. `run` plays a scenario in it, once."""

    def __init__(
        self,
        seed: int,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        kept: Collection[str] | None = None,
    ) -> None:
        """`brokers`: nodes that are broker and controller, up to 9. `config`: properties of each of them, Apache
        Kafka's keys. Topics have up to three replicas, two of which must be in sync. `kept`: the labels of the
        events that happen (selection.py), None for all."""
        if not 1 <= brokers <= len(PORTS):
            raise ValueError(f"a world has 1 to {len(PORTS)} brokers, not {brokers!r}")
        self.seed = seed
        self.simulated = SimWorld(seed, _TICK_SECONDS, numbered=True)
        self.simulated.loop.before_connect = replacements.refuse_compiled_clients
        replicas = min(3, brokers)
        leaders = Leaders(self.seconds)
        properties = {**_replicated(replicas), **(config or {})}
        self._cluster = SimCluster(self.simulated, brokers, properties, Quorum.STATIC, make_node=leaders.node)
        self.store = Store(random.Random(f"{seed} store"), lambda: self.simulated.loop.is_over, self.did)
        #: everything that applications told by `did`, in order
        self.effects: list[Effect] = []
        # Their keys by what was done: `done` is asked again and again.
        self._done: dict[str, list[Any]] = {}
        self._apps: dict[str, AppProcess] = {}
        self._silenced: list[tuple[str, str]] = []
        talk = Conversations(self.seconds, self._apps.__contains__)
        self.simulated.network.observer = talk
        self._judge = Judge(self._cluster, talk, leaders, self.effects)
        #: what ended the run, so that two failures can be compared: a claim, or an application's exception
        self.failure = ""
        #: the faults that `disturb` draws, and the steps of the test
        self.selection = Selection(self.simulated, kept)
        self._disturbances = Disturbances(self._cluster, self.store, self.selection)

    # -- a run --------------------------------------------------------------------------------------------------------

    def seconds(self) -> float:
        """Return virtual seconds since the world began."""
        return self.simulated.loop.time()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{PORTS[number]}" for number in self._cluster.nodes)

    @property
    def digest(self) -> str:
        """The hash of what happened so far: equal for two runs of one seed."""
        return self.simulated.trace.digest()

    @property
    def story(self) -> list[str]:
        """Return a line for each event of a broker or an application: virtual seconds, the part, the text."""
        return [f"{seconds:10.3f}  {part:12}  {text}" for seconds, part, text in self.simulated.story]

    def run(self, scenario: Callable[[], Coroutine[Any, Any, T]], *, limit: str | float = "1 h") -> T:
        """Start the cluster, play the scenario, end the world, and return what the scenario returned.

        The scenario is a process of the world too, so it may use a client itself. After it everything is repaired, and
        the claims of `must` are judged. Raises what the scenario raises, ClaimFailed if a claim does not hold,
        AppFailed if an application failed, TimeoutError after `limit` of virtual time, and Stuck if a callback does not
        end.
        """
        loop = self.simulated.loop
        process = self.simulated.runtime("test", MemoryDisk(record=False))

        async def play() -> T:
            await self._cluster.start()
            await self._cluster.become_whole()
            task: asyncio.Task[T] = process.loop.create_task(scenario())
            done, _ = await asyncio.wait({task}, timeout=duration_ms(limit) / 1000)
            if not done:
                raise TimeoutError(f"the scenario did not end within {limit} of virtual time")
            found = task.result()
            self._check_apps()
            if self._judge.claims:
                await self._repair()
                await self._judge.insist(self._check_apps)
            return found

        with replacements.seeded(self.seed), replacements.present(_Time(self)), watched(loop), _no_collections():
            try:
                return loop.run_until_complete(play())
            except BaseException as error:
                if isinstance(error, ClaimFailed):
                    self.failure = f"{error.claim}: {error.wrong.kind}"
                elif isinstance(error, AppFailed):
                    self.failure = f"{type(error.__cause__).__name__} of an application"
                if not isinstance(error, ClaimFailed):  # which is a story itself
                    error.add_note("\n".join([f"World(seed={self.seed}), the end of its story:", *self.story[-40:]]))
                raise
            finally:
                nodes = [node.runtime for node in self._cluster.nodes.values() if node.is_alive]
                self.simulated.end(_LAST_SECONDS, nodes)

    # -- applications -------------------------------------------------------------------------------------------------

    def app(self, name: str, main: Main, *, may_fail: bool = False, restart_after: str | float | None = None) -> App:
        """Start an application: a process that runs `await main()`. An exception of `main` ends the scenario with
        AppFailed at its next wait, unless the application `may_fail`, or starts again `restart_after` some virtual
        time, as by a supervisor."""
        if name in self._apps:
            raise ValueError(f"there is an application {name!r} already")
        seconds = None if restart_after is None else duration_ms(restart_after) / 1000
        process = AppProcess(self.simulated, name, main, may_fail=may_fail, restart_seconds=seconds)
        self._apps[name] = process
        process.start()
        return App(process, self.selection)

    def apps(
        self,
        count: int,
        main: Main,
        name: str = "app",
        *,
        may_fail: bool = False,
        restart_after: str | float | None = None,
    ) -> list[App]:
        """Start several processes of one application: "app 1", "app 2" and so on."""
        return [
            self.app(f"{name} {number}", main, may_fail=may_fail, restart_after=restart_after)
            for number in range(1, count + 1)
        ]

    def did(self, what: str, key: Any = None) -> None:
        """Record that the present application has done something outside of Kafka, for example
        `world.did("billed", order_id)`. It survives the application. The `finally` of a dead one does not count."""
        hash(key)  # keys are compared: a list raises TypeError here, where it is given
        if self.simulated.loop.is_over:
            return
        owner = OWNER.get()
        # The machine of an application has its name. The scenario has no machine.
        name = (owner.machine if isinstance(owner, SimRuntime) else None) or "test"
        self.effects.append(Effect(self.seconds(), name, what, key))
        self._done.setdefault(what, []).append(key)
        self.simulated.trace.note(round(self.seconds(), 6), name, what, key)

    def done(self, what: str) -> list[Any]:
        """Return the keys with which `did(what, key)` was called, in order, repetitions too."""
        return list(self._done.get(what, ()))

    def must(self, *claims: Claim, within: str | float = "2 min") -> None:
        """Say what must hold of the applications (checking/claims.py). It is judged after the scenario, when everything
        is repaired. Applications then have `within` of virtual time to do what is missing."""
        self._judge.add(claims, duration_ms(within) / 1000)

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def sleep(self, duration: str | float) -> None:
        """Let virtual time pass: "10 min", "45s", or milliseconds. Raises AppFailed."""
        end = self.seconds() + duration_ms(duration) / 1000
        while (rest := end - self.seconds()) > 0:
            await asyncio.sleep(min(rest, 1.0))
            self._check_apps()

    async def until(self, condition: Callable[[], bool], within: str | float = "5 min") -> None:
        """Wait until `condition()` is true. Raises TimeoutError after `within` of virtual time, and AppFailed."""
        end = self.seconds() + duration_ms(within) / 1000
        while not condition():  # virtual time: a look costs microseconds
            if self.seconds() >= end:
                raise TimeoutError(f"not within {within} of virtual time")
            await asyncio.sleep(0.05)
            self._check_apps()

    def _check_apps(self) -> None:
        for app in self._apps.values():
            app.check()

    # -- brokers ------------------------------------------------------------------------------------------------------

    def _broker(self, number: int) -> SimBroker:
        if number not in self._cluster.nodes:
            raise ValueError(f"there is no broker {number!r}, only {sorted(self._cluster.nodes)}")
        return self._cluster.nodes[number]

    def _step(self, broker: int, text: str) -> bool:
        self._broker(broker)  # a step that is left out must have a broker too
        return self.selection.step(f"broker {broker}", text)

    def kill(self, broker: int) -> None:
        """Kill a broker as SIGKILL does. Its disk keeps everything."""
        if self._step(broker, "is killed"):
            self._broker(broker).kill(Survive.EVERYTHING)

    def power_loss(self, broker: int) -> None:
        """Let the machine of a broker lose power. Its disk keeps what was synced, and a part of the rest that the seed
        chooses. A broker that comes back so may lack records that it alone had."""
        if self._step(broker, "loses power"):
            self._broker(broker).kill(Survive.IN_ORDER)

    async def start(self, broker: int) -> None:
        """Start a broker that was killed or stopped, and wait until it serves."""
        node = self._broker(broker)
        if node.is_alive and self.selection.some_are_left_out:
            return
        self.simulated.tell(f"broker {broker}", "starts")
        await node.start()

    async def stop(self, broker: int) -> None:
        """Shut a broker down in a controlled way."""
        if self._step(broker, "stops"):
            await self._broker(broker).stop()

    def pause(self, broker: int) -> None:
        """Let a broker do nothing until `resume`."""
        if self._step(broker, "is paused"):
            self._broker(broker).runtime.pause()

    def resume(self, broker: int) -> None:
        self.simulated.tell(f"broker {broker}", "goes on")
        self._broker(broker).runtime.resume()

    def slow_disk(self, broker: int, most: str | float = "500 ms") -> None:
        """Let each fsync of a broker take up to `most`. `heal` ends it."""
        seconds = duration_ms(most) / 1000
        if self._step(broker, f"an fsync takes up to {seconds:g} s"):
            self._broker(broker).runtime.fsync_seconds = (seconds / 4, seconds)

    def full_disk(self, broker: int) -> None:
        """Leave no room on the disk of a broker, until `heal`."""
        if self._step(broker, "its disk is full"):
            disk = self._broker(broker).disk
            disk.capacity_bytes = disk.used_bytes

    def partition(self, *some: int | App) -> None:
        """Let nothing pass between these brokers and applications and all others, until `heal`."""
        here = [self._machine(one) for one in some]
        others = [node.machine for node in self._cluster.nodes.values()]
        others += [app.machine for app in self._apps.values()]
        ways = both_ways(here, [machine for machine in others if machine not in here])
        if self.selection.step("network", f"{', '.join(here)} are apart"):
            self.simulated.network.silence(ways)
            self._silenced += ways

    def _machine(self, one: int | App) -> str:
        return one.machine if isinstance(one, App) else self._broker(one).machine

    def heal(self) -> None:
        """End partitions, slow disks and full disks. Brokers that are down stay down."""
        self.simulated.tell("network", "everything is whole again")
        ways, self._silenced = self._silenced, []
        self.simulated.network.restore(ways)
        for node in self._cluster.nodes.values():
            node.repair_disk()
            if node.is_alive:
                node.runtime.fsync_seconds = SimRuntime.fsync_seconds

    async def become_whole(self) -> None:
        """Wait until each broker is a member of the cluster again and serves. Raises AssertionError after a minute."""
        await self._cluster.become_whole()

    async def disturb(self, duration: str | float = "30s", *, brokers: bool = True, apps: bool = False) -> None:
        """Let faults that the seed chooses happen for `duration`, then repair everything: to `brokers`, their network
        and their disks, and to `apps`, which are killed, deployed anew, paused or cut off, and to the store. No record
        that was acknowledged with acks=all is lost by them."""
        seconds = duration_ms(duration) / 1000
        present = list(self._apps.values()) if apps else []
        machines = [app.machine for app in self._apps.values()]
        await self._disturbances.run(seconds, brokers=brokers, apps=present, clients=machines)
        self._check_apps()
        await self.become_whole()

    async def _repair(self) -> None:
        """Make all brokers and the network whole. Applications stay as the scenario has left them."""
        self.heal()

        async def bring_back(node: SimBroker) -> None:
            # A node that is alive may be about to start, to stop or to fail.
            while node.is_alive and not node.up:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if not node.is_alive:
                await node.start()

        for node in self._cluster.nodes.values():
            if node.is_alive:
                node.runtime.resume()
        async with asyncio.timeout(_LONGEST_REPAIR_SECONDS):
            # Together: none of them starts before a majority is there.
            await asyncio.gather(*(bring_back(node) for node in self._cluster.nodes.values()))
        await self.become_whole()


@contextmanager
def _no_collections() -> Iterator[None]:
    """Let Python collect no garbage by itself, because the loop does."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Time:
    """Time and chance of a world, for the functions that replacements.py has replaced."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bytes = random.Random(f"{world.seed} bytes")

    def seconds(self) -> float:
        return self._world.seconds()

    def epoch_seconds(self) -> float:
        owner = OWNER.get()
        skew_ms = owner.skew_ms if isinstance(owner, SimRuntime) else 0
        return (EPOCH_MS + skew_ms) / 1000 + self._world.seconds()

    def random_bytes(self, count: int) -> bytes:
        return self._bytes.randbytes(count)


def _replicated(replicas: int) -> dict[str, str]:
    least = str(min(2, replicas))
    return {
        # CPython 3.11 hashes None by its address, which differs from run to run, and clients keep sets of brokers.
        "broker.rack": "world",
        # A record each half second, as by default, is most of the work of an idle cluster.
        "metadata.max.idle.interval.ms": "10000",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": least,
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": least,
        "share.coordinator.state.topic.num.partitions": "3",
    }
