"""A world for whole nodes: a virtual clock (loop.py), a network in memory (network.py), disks that lose power. The same
seed gives the same run.

Responsible for the world and its processes. Clusters (sim_cluster.py) and tests decide what happens in it.

A node gets a `SimRuntime`, its process. The callbacks of a paused process wait, as after a SIGSTOP. A killed node keeps
its objects, but none of its callbacks runs, and its disk, its network and its threads are cut off.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from pykbroker.runtime import ListeningSocket, OnEnded, Runtime, when_done
from pykbroker.runtime.accepting import MakeProtocol
from pykbroker.runtime.beside import run_there
from pykbroker.runtime.client_clock import ClientClock, LoopClock
from pykbroker.runtime.descriptor_budget import UNBOUNDED
from pykbroker.runtime.slow_turns import SlowTurn
from pykbroker.runtime.workers import Job, finish
from pykbroker.runtime.world import Beside, CallSoon
from pykbroker_log.disk import Disk, File
from pykbroker_worlds.simulated.loop import OWNER, VirtualLoop
from pykbroker_worlds.simulated.network import Network

T = TypeVar("T")

#: Saturday, 21 November 2026
EPOCH_MS = 1_795_219_200_000

#: The seconds that a hand-over between the two loops of a process takes: most find the other loop idle.
_USUAL_HAND_OVER = (0.0, 0.001)
#: One in so many finds the other loop in a turn of that length. A run has about 500 hand-overs: two or three are long,
#: and one run in six has one that is very long. 0.2 s is the turn of a large request. 2 s is longer than a heartbeat's
#: interval and a session's slack, and a request with its response can take longer than a session.
_LONG_HAND_OVERS = ((3_000, (0.2, 2.0)), (200, (0.001, 0.2)))
#: Virtual seconds in which the tasks of nodes end, after the end of a run.
_LAST_SECONDS_OF_NODES = 1.0
LONGEST_HAND_OVER_SECONDS = max(longest for _, (_, longest) in _LONG_HAND_OVERS)


class Trace:
    """The events of a run as one hash; two runs of one seed must agree on it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.events = 0

    def note(self, *event: object) -> None:
        self.events += 1
        self._hash.update(repr(event).encode())

    def digest(self) -> str:
        return self._hash.hexdigest()


class SimWorld:
    """One loop, one network, one seed."""

    def __init__(self, seed: int, tick_seconds: float = 0.0, *, numbered: bool = False) -> None:
        """`tick_seconds` and `numbered`: as those of `VirtualLoop`."""
        self.seed = seed
        self.random = random.Random(f"{seed} world")
        self.loop = VirtualLoop(tick_seconds, numbered=numbered)
        self.trace = Trace()
        self.network = Network(seed, self.loop)
        #: the events of the run for a person: seconds, the part, the text
        self.story: list[tuple[float, str, str]] = []
        self._runtimes: list[SimRuntime] = []

    @property
    def after_event(self) -> list[Callable[[], None]]:
        """Called after each callback that ran, in this order; an exception of one ends the run."""
        return self.loop.after_event

    def tell(self, part: str, text: str) -> None:
        """Add a line to the story, and an event to the trace."""
        now = self.loop.time()
        self.story.append((now, part, text))
        self.trace.note(round(now, 6), part, text)

    def end(self, most_seconds: float | None = None, nodes: Sequence[SimRuntime] = ()) -> None:
        """End the run: end the tasks of all processes, and close the loop. Tasks that do not end within `most_seconds`
        of virtual time are left where they wait. Without it there is no such limit. A client may wait for an answer
        that does not come, and `nodes` stand still while it does."""

        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            for runtime in self._runtimes:
                runtime.release()
            if not tasks:
                return
            at_once = most_seconds if most_seconds is None else min(most_seconds, _LAST_SECONDS_OF_NODES)
            _, left = await asyncio.wait(tasks, timeout=at_once)
            if left and most_seconds is not None:
                self.loop.runs_all = False
                for node in nodes:
                    node.pause()
                _, left = await asyncio.wait(left, timeout=most_seconds)
            for task in left:
                # asyncio would complain of a task that is not done when it is collected.
                task._log_destroy_pending = False  # type: ignore[attr-defined]

        self.after_event.clear()
        self.loop.is_over = self.loop.runs_all = True
        self.loop.run_until_complete(finish())
        self.loop.close()

    def runtime(self, name: str, disk: Disk, machine: str | None = None) -> SimRuntime:
        """Create a process. `machine` is where it runs, if the network between machines may break."""
        made = SimRuntime(self, name, disk, machine)
        self._runtimes.append(made)
        return made

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000)


class NodeLoop:
    """The loop as one process sees it: callbacks that it schedules belong to the process."""

    def __init__(self, loop: VirtualLoop, context: contextvars.Context) -> None:
        self._loop = loop
        self._context = context
        # The methods that are called most, without a detour.
        self.time = loop.time
        self.create_future = loop.create_future

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        return self._loop.call_soon(callback, *args, context=self._context)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, callback, *args, context=self._context)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_at(when, callback, *args, context=self._context)

    def create_task(self, coroutine: Any, *, name: str | None = None) -> asyncio.Task[Any]:
        return self._loop.create_task(coroutine, name=name, context=self._context)


class SimBeside:
    """The second loop of a simulated process. A hand-over takes a random time, which is now and then long. Only
    hand-overs in one direction keep their order."""

    def __init__(self, first: SimRuntime, second: SimRuntime) -> None:
        self._first = first
        self._second = second
        self.runtime: Runtime = second
        self.call_there: CallSoon | None = partial(_call_soon, second)
        self.call_back: CallSoon | None = partial(_call_soon, first)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert self.call_there is not None
        assert self.call_back is not None
        return await run_there(self._first.loop, self._second.loop, self.call_there, self.call_back, work)

    async def close(self) -> None:
        pass


class _Latencies:
    """Draws how long threads take, and messages from the other loop of the process."""

    def __init__(self, seed: int, name: str) -> None:
        self._threads = random.Random(f"{seed} {name} threads")
        # A separate one: a process without a long hand-over runs as if there were none.
        self._long_hand_overs = random.Random(f"{seed} {name} long hand-overs")
        #: when the last hand-over from the other loop arrives
        self._last_arrival = 0.0

    def of_thread(self, least: float, most: float) -> float:
        return self._threads.uniform(least, most)

    def arrival(self, now: float) -> float:
        """Return when the next message to this loop arrives: later than the one before it, because timers of one
        moment have no order."""
        self._last_arrival = max(self._last_arrival + 1e-9, now + self.hand_over_seconds())
        return self._last_arrival

    def hand_over_seconds(self) -> float:
        usual = self.of_thread(*_USUAL_HAND_OVER)
        for one_in, seconds in _LONG_HAND_OVERS:
            if self._long_hand_overs.random() * one_in < 1:
                return self._long_hand_overs.uniform(*seconds)
        return usual


def _call_soon(runtime: SimRuntime, callback: Callable[[], None]) -> None:
    loop = runtime.loop
    loop.call_at(runtime.latencies.arrival(loop.time()), callback)


class SimRuntime:
    """The runtime of a node or a client (pykbroker.runtime.Runtime). Faults and tests set the first three."""

    #: the error of its wall clock
    skew_ms = 0
    #: the name of its machine; None if it has none, as usual, because a configuration contains its hosts
    known_as: str | None = None
    #: the time that an fsync takes, in seconds
    fsync_seconds = (0.0, 0.004)
    #: sockets cost nothing here
    most_connections = UNBOUNDED

    def __init__(
        self, world: SimWorld, name: str, disk: Disk, machine: str | None = None, first: SimRuntime | None = None
    ) -> None:
        """With `first`, this is the second loop of that process."""
        self.world = world
        self._first = first if first is not None else self
        #: the runtime of the process's second loop, once there is one
        self.second: SimRuntime | None = None
        self.name = name
        self.machine = machine
        #: the context of everything that the process does
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)
        self.loop = cast(asyncio.AbstractEventLoop, NodeLoop(world.loop, self.context))
        self.client_clock: ClientClock = LoopClock(self.loop)
        self.disk = disk
        self.random = random.Random(f"{world.seed} {name}")
        self.alive = True
        #: alive, and not paused
        self.runs = True
        #: the time since which only this loop stands still
        self._stands_since: float | None = None
        self.latencies = _Latencies(world.seed, name)
        self._held: list[asyncio.Handle] = []

    def now_ms(self) -> int:
        return self.world.now_ms() + self._first.skew_ms

    def keep(self) -> None:
        pass

    def stopwatch_ms(self) -> float:
        return self.loop.time() * 1000

    def beside(self) -> Beside:
        self.second = SimRuntime(self.world, f"{self.name} broker", self.disk, self.machine, self)
        return SimBeside(self, self.second)

    def cpu_ms(self) -> float:
        """The work of a node takes no time here."""
        return 0.0

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Simulate a thread: the call happens some time later, and its end is seen some time after that."""
        return self._run_later((0.0, 0.004), function, *args)

    def _run_later(self, seconds: tuple[float, float], function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.loop.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = function(*args)
            except Exception as error:  # noqa: BLE001  # whatever a call raises is its result
                outcome: Callable[[], None] = lambda error=error: future.set_exception(error)  # type: ignore[misc]  # noqa: E731
            else:
                outcome = lambda: future.set_result(result)  # noqa: E731

            def finish() -> None:
                if not future.done():
                    outcome()

            self.loop.call_later(self.latencies.of_thread(0, 0.001), finish)

        self.loop.call_later(self.latencies.of_thread(*seconds), run)
        return future

    def fsync(self, files: Sequence[File], ended: OnEnded) -> None:
        when_done(self._run_later(self._first.fsync_seconds, self.disk.fsync_files, files), ended)

    def run_apart(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        """Simulate a worker process, whose whole work happens at one moment."""
        return self.run_blocking(lambda: finish(job, self.disk, *args, on_progress=on_progress))

    def watch_turns(self, report: Callable[[SlowTurn], None]) -> Callable[[], None]:
        """Do nothing: a turn takes no time here."""
        return lambda: None

    def own_name(self) -> asyncio.Future[str]:
        found: asyncio.Future[str] = self.loop.create_future()
        if self.known_as is None:
            found.set_exception(OSError("no names here"))
        else:
            found.set_result(self.known_as)
        return found

    def listen(self, accept: MakeProtocol, host: str, port: int, backlog: int) -> asyncio.Future[ListeningSocket]:
        future: asyncio.Future[ListeningSocket] = self.loop.create_future()
        # There is always room for a socket.
        factory = cast(Callable[[], asyncio.BaseProtocol], accept)
        try:
            future.set_result(self.world.network.listen(self, factory, port))
        except OSError as error:
            future.set_exception(error)
        return future

    def listen_at(self, accept: MakeProtocol, path: str) -> asyncio.Future[ListeningSocket]:
        raise AssertionError("no Unix sockets here")

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        return self.world.network.connect(self, factory, port)

    # -- its life (loop.Process) --------------------------------------------------------------------------------------

    def hold(self, handle: asyncio.Handle) -> None:
        # Callbacks of a dead process run when all is over, because a task cannot end without them.
        self._held.append(handle)

    def pause(self) -> None:
        """Do nothing until `resume`. Its machine continues: bytes that are sent to it are kept."""
        self.runs = False
        if self.second is not None:
            self.second.pause()

    def stand_still(self) -> None:
        """Let only this loop do nothing, until `resume` of the process."""
        self.runs = False
        self._stands_since = self.loop.time()

    @property
    def standing_seconds(self) -> float:
        """The seconds for which this loop has stood still while the other one of its process ran."""
        return 0.0 if self._stands_since is None else self.loop.time() - self._stands_since

    def resume(self) -> None:
        """Run the callbacks that came, or became due, in the meantime."""
        self._stands_since = None
        if self.alive and not self.runs:
            self.runs = True
            self.release()
        if self.second is not None:
            self.second.resume()

    def release(self) -> None:
        held, self._held = self._held, []
        self.world.loop.release(held)

    def kill(self, *, power: bool = False) -> None:
        """End the process: no thread ends, no byte leaves or arrives. Its later writes go to a disk that no other
        process reads, because the next start gets a copy made now. With `power` its machine lost power too."""
        self.alive = self.runs = False
        self.world.network.cut(self, power=power)
        if self.second is not None:
            self.second.kill(power=power)
