"""A world for whole nodes: a virtual clock, a network in memory, disks that lose power. The same seed gives the same
run.

Responsible for the world only; what happens in it is cluster.py's and the tests'.

A node gets a `SimRuntime`. Everything it schedules runs on one virtual loop for all nodes; time moves only when nothing
is left to do at the present moment. A killed node keeps its objects, but its disk, its network and its threads are cut
off: whatever it still does reaches nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import selectors
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from pykbroker.runtime import Ended, ListeningSocket, when_done
from pykbroker.runtime.workers import Job, finish
from pykbroker_log.disk import Disk, File

T = TypeVar("T")

#: Saturday, 21 November 2026
EPOCH_MS = 1_795_219_200_000


class _NoSelector(selectors.BaseSelector):
    """Nothing is ever ready; waiting moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(
            fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data
        )
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("the simulation is stuck: nobody waits for time to pass")
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on a clock of its own."""

    def __init__(self) -> None:
        self._clock = _NoSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


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


class World:
    """One loop, one network, one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed} world")
        self.loop = VirtualLoop()
        self.trace = Trace()
        self.network = Network(self)

    def runtime(self, name: str, disk: Disk, machine: str | None = None) -> SimRuntime:
        """`machine`: where it runs, if the network between machines may break."""
        return SimRuntime(self, name, disk, machine)

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 1000)


class NodeLoop:
    """The loop as one process sees it: what it has scheduled dies with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runtime: SimRuntime) -> None:
        self._loop = loop
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def _while_alive(self, callback: Callable[..., object]) -> Callable[..., None]:
        def run(*args: object) -> None:
            if self._runtime.alive:
                callback(*args)

        return run

    def call_soon(self, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        return self._loop.call_soon(self._while_alive(callback), *args, **options)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, self._while_alive(callback), *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_at(when, self._while_alive(callback), *args)


class SimRuntime:
    """What a node or a client lives in (pykbroker.runtime.Runtime)."""

    def __init__(self, world: World, name: str, disk: Disk, machine: str | None = None) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.loop = cast(asyncio.AbstractEventLoop, NodeLoop(world.loop, self))
        self.disk = disk
        self.random = random.Random(f"{world.seed} {name}")
        self.alive = True
        self._latency = random.Random(f"{world.seed} {name} threads")

    def now_ms(self) -> int:
        return self.world.now_ms()

    def keep(self) -> None:
        pass

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """A thread: the call happens some time later, and its end is seen some time after that."""
        future: asyncio.Future[T] = self.loop.create_future()

        def run() -> None:
            if not self.alive or future.cancelled():
                return
            try:
                result = function(*args)
            except Exception as error:  # noqa: BLE001  # whatever a call raises is its result
                outcome: Callable[[], None] = lambda error=error: future.set_exception(error)  # type: ignore[misc]  # noqa: E731
            else:
                outcome = lambda: future.set_result(result)  # noqa: E731

            def finish() -> None:
                if self.alive and not future.done():
                    outcome()

            self.loop.call_later(self._latency.uniform(0, 0.001), finish)

        self.loop.call_later(self._latency.uniform(0, 0.004), run)
        return future

    def fsync(self, files: Sequence[File], ended: Ended) -> None:
        when_done(self.run_blocking(self.disk.fsync_files, files), ended)

    def run_apart(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        """A worker process, all of whose work happens at one moment."""
        return self.run_blocking(lambda: finish(job, self.disk, *args, on_progress=on_progress))

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int
    ) -> asyncio.Future[ListeningSocket]:
        future: asyncio.Future[ListeningSocket] = self.loop.create_future()
        try:
            future.set_result(self.world.network.listen(self, factory, port))
        except OSError as error:
            future.set_exception(error)
        return future

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        return self.world.network.connect(self, factory, port)

    def kill(self) -> None:
        """The process is gone: no thread ends, no byte leaves or arrives. What it still writes goes to a disk that
        nobody reads again: the next start gets a copy made now."""
        self.alive = False
        self.world.network.cut(self)


class Network:
    """Ports and connections. Bytes arrive late, in pieces, and in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed} network")
        self._listening: dict[int, SimListeningSocket] = {}
        self._connections: list[tuple[SimRuntime, SimTransport]] = []
        self._next_port = 20_000
        #: machines that reach each other and no others; those without a machine reach everything
        self._cut_off: frozenset[str] = frozenset()
        self._held: list[Callable[[], None]] = []

    def listen(self, runtime: SimRuntime, factory: Callable[[], asyncio.BaseProtocol], port: int) -> SimListeningSocket:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self._listening:
            raise OSError(f"port {port} is in use")
        found = self._listening[port] = SimListeningSocket(self, runtime, factory, port)
        return found

    def connect(
        self, runtime: SimRuntime, factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        loop = self._world.loop
        future: asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]] = loop.create_future()

        def arrive() -> None:
            if future.done():
                return
            listener = self._listening.get(port)
            if listener is not None and self.are_apart(runtime.machine, listener.runtime.machine):
                self.hold(arrive)
                return
            if listener is None or not listener.serving:
                future.set_exception(ConnectionRefusedError(f"nobody listens on {port}"))
                return
            here = SimTransport(self._world, self._random, runtime.machine)
            there = SimTransport(self._world, self._random, listener.runtime.machine)
            here.peer, there.peer = there, here
            self._connections += [(runtime, here), (listener.runtime, there)]
            there.attach(listener.factory())
            here.attach(factory())
            assert here.protocol is not None
            future.set_result((here, here.protocol))

        loop.call_later(self._random.uniform(0.0001, 0.002), arrive)
        return future

    def close(self, port: int) -> None:
        self._listening.pop(port, None)

    def cut_off(self, *machines: str) -> None:
        """Nothing passes between these machines and the others, until this is called again without any: then what was
        sent meanwhile arrives, as TCP has it."""
        self._cut_off = frozenset(machines)
        held, self._held = self._held, []
        for send in held:
            send()

    def are_apart(self, one: str | None, other: str | None) -> bool:
        return one is not None and other is not None and (one in self._cut_off) != (other in self._cut_off)

    def hold(self, send: Callable[[], None]) -> None:
        """Try again when the network has changed."""
        self._held.append(send)

    def cut(self, runtime: SimRuntime) -> None:
        for port, listener in list(self._listening.items()):
            if listener.runtime is runtime:
                del self._listening[port]
        for owner, transport in self._connections:
            if owner is runtime:
                transport.vanish()
        self._connections = [entry for entry in self._connections if entry[0] is not runtime and not entry[1].closed]


class SimListeningSocket:
    def __init__(
        self, network: Network, runtime: SimRuntime, factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> None:
        self._network = network
        self.runtime = runtime
        self.factory = factory
        self.port = port
        self.serving = False

    async def serve(self) -> None:
        self.serving = True

    def close(self) -> None:
        self._network.close(self.port)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, world: World, rng: random.Random, machine: str | None) -> None:
        super().__init__()
        self._world = world
        self._random = rng
        self._machine = machine
        #: sent while the peer could not be reached
        self._stuck: list[Callable[[], None]] = []
        self.peer: SimTransport | None = None
        self.protocol: asyncio.BaseProtocol | None = None
        self.closed = False
        self._reading = True
        self._received = bytearray()
        self._arrives_at = 0.0
        self._in_flight: deque[Callable[[], None]] = deque()
        self._ended = False

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no such buffer: what is written is on its way."""

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        peer = self.peer
        if self.closed or peer is None or not data:
            return
        copy = bytes(data)
        while copy:
            size = len(copy) if self._random.random() < 0.8 else self._random.randint(1, len(copy))
            self._send(lambda piece=copy[:size]: peer.deliver(piece))  # type: ignore[misc]
            copy = copy[size:]

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def _send(self, action: Callable[[], None]) -> None:
        """In order, however late."""
        peer, network = self.peer, self._world.network
        if self._stuck or (peer is not None and network.are_apart(self._machine, peer._machine)):
            if not self._stuck:
                network.hold(self._send_stuck)
            self._stuck.append(action)
            return
        loop = self._world.loop
        self._arrives_at = max(self._arrives_at, loop.time() + self._random.uniform(0.00005, 0.002))
        # A queue of our own: timers of the same moment run in no order that the loop promises.
        self._in_flight.append(action)
        loop.call_at(self._arrives_at, self._arrive)

    def _send_stuck(self) -> None:
        stuck, self._stuck = self._stuck, []
        for action in stuck:
            self._send(action)

    def _arrive(self) -> None:
        self._in_flight.popleft()()

    def deliver(self, data: bytes) -> None:
        if self.closed:
            return
        self._received += data
        self._pump()

    def _pump(self) -> None:
        while self._received and self._reading and not self.closed:
            data, self._received = bytes(self._received), bytearray()
            protocol = self.protocol
            if isinstance(protocol, asyncio.BufferedProtocol):
                while data and not self.closed:
                    buffer = protocol.get_buffer(-1)
                    count = min(len(cast(memoryview, buffer)), len(data))
                    cast(memoryview, buffer)[:count] = data[:count]
                    data = data[count:]
                    protocol.buffer_updated(count)
                    if data and not self._reading:
                        self._received[:0] = data
                        break
            else:
                cast(asyncio.Protocol, protocol).data_received(data)
        if self._ended and not self._received:
            self._lose(None)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._world.loop.call_soon(self._pump)

    def close(self) -> None:
        if self.closed:
            return
        peer = self.peer
        if peer is not None:
            self._send(peer.end)
        self._lose(None)

    def abort(self) -> None:
        self.close()

    def end(self) -> None:
        """The other side closed."""
        self._ended = True
        if not self.closed:
            self._pump()

    def vanish(self) -> None:
        """This side's process died: it does nothing more, the other side sees a reset."""
        if self.closed:
            return
        self.closed = True
        peer = self.peer
        if peer is not None:
            self._send(lambda: peer._lose(ConnectionResetError("the peer died")))

    def _lose(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        if self.protocol is not None:
            self._world.loop.call_soon(self.protocol.connection_lost, error)
