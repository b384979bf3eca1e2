"""Ports, connections and machines: bytes arrive late, in pieces, and in order, or not at all.

Responsible for the behaviour of the network; `faults/` or a test decides which fault comes when.

It behaves as TCP does over a bad network:

* Between two machines each direction can be silent (`silence`, `restore`). Bytes that were sent in the meantime arrive
  afterwards, or the connection is reset. A connection is made only when both directions pass.
* Delays are those of a link (`slow`). A connection keeps its order; there is no order between two connections.
* A single connection can be lost: its two ends receive nothing more from each other, and are reset later (`lose_one`).
* TCP delivers nothing twice. A request arrives twice if a client repeats it on a new connection because it does not
  know the result of the first one. The clients here do that, and so does the code under test.
* A process that dies closes its connections, and its ports refuse. A machine that loses power sends nothing: its peers
  wait, and are reset when they send something after it is back.
* A machine can refuse connections while its process lives, like an address translation that lost its state (`refuse`).

A runtime without a machine reaches all ports.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast

#: (source machine, target machine)
Way = tuple[str, str]


def both_ways(some: Iterable[str], others: Iterable[str]) -> list[Way]:
    others = list(others)
    return [way for one in some for other in others for way in ((one, other), (other, one))]


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds from `least` to `most`; now and then (`tail_chance`) a lognormal multiple of `most`."""

    least: float = 0.00005
    most: float = 0.002
    tail_chance: float = 0.0

    def draw(self, rng: random.Random) -> float:
        seconds = rng.uniform(self.least, self.most)
        if self.tail_chance and rng.random() < self.tail_chance:
            seconds = min(self.most * rng.lognormvariate(1.0, 1.0), 5.0)
        return seconds


USUAL = Delay()
#: The time until a machine without power is found to be unreachable, if it is found at all.
UNREACHABLE_SECONDS = 3.0


class NetworkProcess(Protocol):
    """A process as the network knows it."""

    alive: bool
    #: where it runs; None for a process that reaches all ports
    machine: str | None
    context: contextvars.Context


class Observer(Protocol):
    """Something that hears the bytes of all connections."""

    def sent(self, transport: SimTransport, data: bytes) -> None:
        """A process has written bytes, whether they arrive or not."""

    def arrived(self, transport: SimTransport, data: bytes) -> None:
        """Bytes have arrived at a process."""


class Network:
    """Ports and connections."""

    def __init__(self, seed: int, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: changes nothing of what happens
        self.observer: Observer | None = None
        self._random = random.Random(f"{seed} network")
        self._listening: dict[int, SimListeningSocket] = {}
        #: the machine of each port, also while its process is down
        self._homes: dict[int, str | None] = {}
        self._transports: list[SimTransport] = []
        self._next_port = 20_000
        self._silent: Counter[Way] = Counter()
        self._delays: dict[Way, Delay] = {}
        self._refusing: Counter[str] = Counter()
        # By the machine that connected and the port: True if the last connection was refused.
        self._refused: dict[tuple[str | None, int], bool] = {}
        self._without_power: set[str] = set()
        self._cut_off: list[Way] = []
        self._held: list[Callable[[], None]] = []

    # -- ports --------------------------------------------------------------------------------------------------------

    def listen(
        self, runtime: NetworkProcess, factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> SimListeningSocket:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self._listening:
            raise OSError(f"port {port} is in use")
        self._homes[port] = runtime.machine
        found = self._listening[port] = SimListeningSocket(self, runtime, factory, port)
        return found

    def close(self, port: int) -> None:
        self._listening.pop(port, None)

    def connect(
        self, runtime: NetworkProcess, factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        loop = self._loop
        future: asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]] = loop.create_future()

        def fail(error: OSError) -> None:
            if not future.done():
                future.set_exception(error)

        def arrive() -> None:
            if future.done() or not runtime.alive:
                return
            home = self._homes.get(port)
            if home in self._without_power:
                self._held.append(arrive)
                if self._random.random() < 0.5:
                    unreachable = OSError(errno.EHOSTUNREACH, f"no route to the host of port {port}")
                    loop.call_later(UNREACHABLE_SECONDS, fail, unreachable)
                return
            if self.are_apart(runtime.machine, home):
                self._held.append(arrive)
                return
            listener = self._listening.get(port)
            if listener is None or not listener.serving or (home is not None and self._refusing[home]):
                self._refused[runtime.machine, port] = True
                fail(ConnectionRefusedError(f"nothing listens on {port}"))
                return
            self._refused[runtime.machine, port] = False
            here, there = SimTransport(self, runtime), SimTransport(self, listener.runtime)
            here.peer, there.peer = there, here
            self._transports = [one for one in self._transports if not one.closed]
            self._transports += [here, there]
            loop.call_soon(there.attach, listener.factory, context=listener.runtime.context)
            loop.call_soon(connected, here, context=runtime.context)

        def connected(here: SimTransport) -> None:
            if here.closed:
                fail(ConnectionResetError("reset while it was made"))
            elif future.done():
                here.close()
            else:
                here.attach(factory)
                assert here.protocol is not None
                future.set_result((here, here.protocol))

        loop.call_later(self.delay(runtime.machine, self._homes.get(port)), arrive)
        return future

    # -- machines -----------------------------------------------------------------------------------------------------

    def cut(self, runtime: NetworkProcess, *, power: bool = False) -> None:
        """End the connections of a process that has died. With `power` its machine lost power too, and sends
        nothing."""
        for port, listener in list(self._listening.items()):
            if listener.runtime is runtime:
                del self._listening[port]
        if power and runtime.machine is not None:
            self._without_power.add(runtime.machine)
        for transport in self._transports:
            if transport.runtime is runtime:
                transport.vanish(silently=power)
        self._transports = [one for one in self._transports if not one.closed]

    def power_on(self, machine: str) -> None:
        self._without_power.discard(machine)
        self._try_held()

    def has_power(self, machine: str | None) -> bool:
        return machine not in self._without_power

    def refuse(self, machine: str) -> None:
        """Refuse new connections to the machine, until `accept`."""
        self._refusing[machine] += 1

    def accept(self, machine: str) -> None:
        self._refusing[machine] -= 1

    def was_refused(self, machine: str, port: int) -> bool:
        """Return True if the last connection from the machine to the port was refused."""
        return self._refused.get((machine, port), False)

    # -- ways ---------------------------------------------------------------------------------------------------------

    def silence(self, ways: Iterable[Way]) -> None:
        """Let nothing pass there until `restore` was called as often as `silence`."""
        self._silent.update(ways)

    def restore(self, ways: Iterable[Way], *, resets: float = 0.0) -> None:
        """Let bytes pass again. `resets` is the share of connections with stuck bytes that are reset."""
        for way in ways:
            self._silent[way] -= 1
        for transport in list(self._transports):
            if transport.is_stuck and not self.is_silent(*transport.way) and self._random.random() < resets:
                transport.reset()
        self._try_held()

    def cut_off(self, *machines: str) -> None:
        """Let nothing pass between these machines and the others, until the next call."""
        others = {home for home in self._homes.values() if home is not None} - set(machines)
        ways = both_ways(machines, sorted(others))
        self.silence(ways)
        before, self._cut_off = self._cut_off, ways
        self.restore(before)

    def is_silent(self, source: str | None, target: str | None) -> bool:
        return source is not None and target is not None and self._silent[source, target] > 0

    def are_apart(self, one: str | None, other: str | None) -> bool:
        """Return True if at least one direction is silent."""
        return self.is_silent(one, other) or self.is_silent(other, one)

    def slow(self, ways: Iterable[Way], delay: Delay = USUAL) -> None:
        """Use `delay` for these ways from now on."""
        for way in ways:
            self._delays[way] = delay

    def delay(self, source: str | None, target: str | None) -> float:
        delays = self._delays
        if delays and source is not None and target is not None:
            return delays.get((source, target), USUAL).draw(self._random)
        return self._random.uniform(0.00005, 0.002)

    def reset(self, one: str, other: str) -> int:
        """Reset the connections between two machines; return how many there were."""
        found = [transport for transport in self._transports if transport.way == (one, other)]
        for transport in found:
            transport.reset()
        return len(found)

    def lose_one(self, one: str, other: str, seconds: float) -> None:
        """Let one connection between two machines carry nothing more, and reset it after `seconds`."""
        found = [transport for transport in self._transports if transport.way == (one, other) and not transport.closed]
        if found:
            lost = self._random.choice(found)
            lost.lose()
            self._loop.call_later(seconds, lost.reset)

    # -- for transports -----------------------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def random(self) -> random.Random:
        return self._random

    def hold(self, send: Callable[[], None]) -> None:
        """Try again when the network has changed."""
        self._held.append(send)

    def _try_held(self) -> None:
        held, self._held = self._held, []
        for send in held:
            send()


class SimListeningSocket:
    def __init__(
        self, network: Network, runtime: NetworkProcess, factory: Callable[[], asyncio.BaseProtocol], port: int
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

    def __init__(self, network: Network, runtime: NetworkProcess) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.runtime = runtime
        #: what was sent while the way was silent
        self._stuck: list[Callable[[], None]] = []
        self.peer: SimTransport | None = None
        self.protocol: asyncio.BaseProtocol | None = None
        self.closed = False
        #: its machine lost power, and its peer was not notified
        self._is_half = False
        self._lost = False
        self._reading = True
        self._received = bytearray()
        self._arrives_at = 0.0
        self._in_flight: deque[Callable[[], None]] = deque()
        self._ended = False

    @property
    def way(self) -> tuple[str | None, str | None]:
        peer = self.peer
        return self.runtime.machine, None if peer is None else peer.runtime.machine

    @property
    def is_stuck(self) -> bool:
        return bool(self._stuck)

    def attach(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        if self.closed:
            return
        self.protocol = factory()
        self.protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no such buffer, because bytes are sent at once."""

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        peer = self.peer
        if self.closed or peer is None or not data:
            return
        copy = bytes(data)
        if self._network.observer is not None:
            self._network.observer.sent(self, copy)
        rng = self._network.random
        while copy:
            size = len(copy) if rng.random() < 0.8 else rng.randint(1, len(copy))
            self._send(lambda piece=copy[:size]: peer.deliver(piece))  # type: ignore[misc]
            copy = copy[size:]

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def _send(self, action: Callable[[], None]) -> None:
        """Deliver in order, however late."""
        peer, network = self.peer, self._network
        assert peer is not None
        if self._lost:
            return
        source, target = self.runtime.machine, peer.runtime.machine
        if peer._is_half:
            # The other machine has no such connection, if it is up at all.
            if network.has_power(target) and not network.are_apart(source, target):
                self._loop.call_later(network.delay(target, source), self.reset)
            return
        if self._stuck or network.is_silent(source, target):
            if not self._stuck:
                network.hold(self._send_stuck)
            self._stuck.append(action)
            return
        self._arrives_at = max(self._arrives_at, self._loop.time() + network.delay(source, target))
        # A queue of our own, because the loop promises no order for timers of the same moment.
        self._in_flight.append(action)
        self._loop.call_at(self._arrives_at, self._arrive, context=peer.runtime.context)

    def _send_stuck(self) -> None:
        stuck, self._stuck = self._stuck, []
        for action in stuck:
            self._send(action)

    def _arrive(self) -> None:
        if self._in_flight:
            self._in_flight.popleft()()

    def deliver(self, data: bytes) -> None:
        if self.closed:
            return
        if self._network.observer is not None:
            self._network.observer.arrived(self, data)
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
            self._end(None)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._pump, context=self.runtime.context)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self.closed:
            return
        peer = self.peer
        if peer is not None:
            self._send(peer.end)
        self._end(None)

    def abort(self) -> None:
        self.close()

    def end(self) -> None:
        """The other side has closed."""
        self._ended = True
        if not self.closed:
            self._pump()

    def vanish(self, *, silently: bool = False) -> None:
        """End this side, whose process died. The other side gets a reset, unless it died silently."""
        if self.closed:
            return
        self.closed = True
        peer = self.peer
        if silently:
            self._is_half = True
        elif peer is not None:
            self._send(lambda: peer._end(ConnectionResetError("the peer died")))

    def reset(self) -> None:
        """Reset both sides; bytes that were on their way are lost."""
        for side in (self, self.peer):
            if side is not None:
                side._stuck.clear()
                side._in_flight.clear()
                side._end(ConnectionResetError("connection reset by peer"))

    def lose(self) -> None:
        """Let nothing more arrive, in either direction."""
        for side in (self, self.peer):
            if side is not None:
                side._lost = True
                side._in_flight.clear()

    def _end(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        if self.protocol is not None:
            self._loop.call_soon(self.protocol.connection_lost, error, context=self.runtime.context)
