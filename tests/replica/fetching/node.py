"""Node 1 with its replicas on a memory disk and its fetchers, in a network of models of other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pykbroker.net.client import ConnectionSetup
from pykbroker.replica.fetching.manager import FetcherManager
from pykbroker.replica.partition import Partition
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.messages.fetch import FetchResponse
from tests.coordinator.fakes import Loop
from tests.net.peer import Peer, PeerConnection
from tests.replica.fetching.leader import Leader, ModelLog, PartitionKey, contents
from tests.replica.world import NODE, NOW_MS, World, batch

BROKER_EPOCH = 77


class Pipe(asyncio.Transport):
    """One end of a connection. Written data arrives in a later turn of the loop."""

    def __init__(self, loop: Loop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self.other: Pipe | None = None
        self.closed = False
        self.options: list[tuple[int, ...]] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self.closed and self.other is not None:
            self._loop.call_soon(self.other.arrive, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def arrive(self, data: bytes) -> None:
        if self.closed:
            return
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            while data and not self.closed:
                buffer = cast(memoryview, self._protocol.get_buffer(-1))
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                data = data[count:]
                self._protocol.buffer_updated(count)
        else:
            cast(asyncio.Protocol, self._protocol).data_received(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            if self.other is not None:
                self._loop.call_soon(self.other.close)

    def abort(self) -> None:
        self.close()


@dataclass
class Broker(Peer):
    """It answers a fetch when there is something new, or when replica.fetch.wait.max.ms is over."""

    leader: Leader = field(default_factory=Leader)
    loop: Loop = field(default_factory=Loop)

    def __call__(self) -> PeerConnection:
        return BrokerSide(self)

    def answer_now(self) -> None:
        """Look again at the fetches that wait, because something has changed."""
        for connection in self.connections:
            connection.go_on()


class BrokerSide(PeerConnection):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._broker = broker
        self.leader = broker.leader.on_connection()
        # The time until which the first fetch waits.
        self._waits_until: float | None = None

    def go_on(self) -> None:
        while self._waiting and not self.lost:
            header, request = self._waiting[0]
            if header.api_key != ApiKey.FETCH:
                if not self.go_on_once():
                    return
                continue
            broker = self._broker
            if broker.is_silent or ApiKey.FETCH in broker.held:
                return
            response: FetchResponse | None = None
            if self._waits_until is None:
                response = self.leader.take(request)
                self._waits_until = broker.loop.now + request.max_wait_ms / 1000
                broker.loop.call_at(self._waits_until, self.go_on)
            if response is None:
                response = self.leader.read(request)
                if not response.responses and broker.loop.now < self._waits_until:
                    return
            self._waits_until = None
            self._waiting.popleft()
            self.reply(header, header.version, response)


class Node:
    """Node 1. `brokers[2]` has the logs that broker 2 leads, as models. Time stands still until `run`."""

    def __init__(self, brokers: tuple[int, ...] = (2, 3), disk: MemoryDisk | None = None, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.world = World(config=settings, disk=disk)
        self.loop = self.world.loop
        self.brokers = {broker: Leader() for broker in brokers}
        self.peers = {
            broker: Broker(answer=leader.answer, leader=leader, loop=self.loop)
            for broker, leader in self.brokers.items()
        }
        self.addresses: dict[int, tuple[str, int] | None] = {broker: ("host", broker) for broker in brokers}
        self.refused: set[int] = set()
        #: (time, port) of each attempt to connect
        self.attempts: list[tuple[float, int]] = []
        #: this node's ends of its connections
        self.pipes: list[Pipe] = []
        cast(Any, self.world.runtime).connect = self._connect
        self.fetchers = FetcherManager(
            self.world.runtime,
            self.world.config,
            self.world.replicas,
            lambda broker: self.addresses.get(broker),
            lambda: BROKER_EPOCH,
            ConnectionSetup(),
            self.world.metrics,
        )
        self.fetchers.start()

    def _connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        future: asyncio.Future[Any] = self.loop.create_future()
        self.attempts.append((self.loop.now, port))
        if port in self.refused or port not in self.peers:
            future.set_exception(ConnectionRefusedError(f"nothing listens on {port}"))
            return future
        mine, theirs = factory(), self.peers[port]()
        here, there = Pipe(self.loop, mine), Pipe(self.loop, theirs)
        here.other, there.other = there, here
        self.pipes.append(here)
        theirs.connection_made(there)
        mine.connection_made(here)
        future.set_result((here, mine))
        return future

    def lead(self, broker: int, partition: Partition, log: ModelLog, epoch: int) -> None:
        """Give this broker the log, and let it lead in this epoch."""
        log.topic = partition.topic
        self.brokers[broker].logs[partition.topic_id, partition.index] = log
        log.lead(epoch)

    def follow(self, name: str = "t", *, leader: int = 2, records: int = 0, **configs: str) -> Partition:
        """Return a partition that node 1 led in epoch 0, with this many records, and that broker `leader` leads in
        epoch 1."""
        partition = self.world.create(name, 1, (NODE, 2, 3), 0, **configs)
        for _ in range(records):
            partition.append(batch(b"mine"), required_acks=1, now_ms=NOW_MS)
        self.world.change(partition, leader=leader)
        return partition

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        self.loop.advance(seconds)

    def asked(self, broker: int) -> dict[PartitionKey, Any]:
        """Return the positions in the sessions of a broker."""
        sides = [side for side in self.peers[broker].connections if not side.lost]
        found: dict[PartitionKey, Any] = {}
        for side in sides:
            assert isinstance(side, BrokerSide)
            found |= side.leader.asked
        return found

    def settle(self) -> None:
        """Let leaders look at their logs, and run everything that follows. Time stands still."""
        for peer in self.peers.values():
            peer.answer_now()
        self.loop.settle()

    def until(self, what: Callable[[], object], turns: int = 2000) -> None:
        """Let the loop turn until a condition holds. Time passes only when nothing is left to do."""
        for _ in range(turns):
            if what():
                return
            self.loop.turn()
        raise AssertionError(f"not within {turns} turns")

    def metric(self, name: str) -> float:
        return self.world.metrics.snapshot()[name]


def stored(partition: Partition) -> list[tuple[int, int, int]]:
    """(base offset, last offset, epoch) of each batch in the partition's log."""
    log = partition.log
    found: list[tuple[int, int, int]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        # One read ends with its segment.
        found += contents(log.read(offset, 1 << 30, log.log_end_offset).joined())
        offset = found[-1][1] + 1
    return found


def led(*batches_per_epoch: tuple[int, int]) -> ModelLog:
    """Return a log from pairs (epoch, number of batches that were written in it)."""
    log = ModelLog()
    for epoch, count in batches_per_epoch:
        log.lead(epoch)
        log.write(count)
    log.high_watermark = log.log_end_offset
    return log


class Held:
    """Calls on threads, held back until `run`."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self._loop = node.loop
        self._name = name
        self._blocking = node.world.runtime.run_blocking
        self._calls: list[Callable[[], None]] = []
        monkeypatch.setattr(node.world.runtime, "run_blocking", self._run_blocking)

    def __len__(self) -> int:
        return len(self._calls)

    def _run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._name not in getattr(function, "__qualname__", ""):
            return self._blocking(function, *args)
        future = self._loop.create_future()

        def call() -> None:
            try:
                future.set_result(function(*args))
            except Exception as error:  # noqa: BLE001  # any error of a call is its result
                future.set_exception(error)

        self._calls.append(call)
        return future

    def run(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        self._loop.settle()
