"""Keys of listeners, sockets and connections, over real sockets; tests of time run in the simulated world."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.net.connection import Connection
from pykbroker.net.listener import Listener
from pykbroker.testing.embedded import Broker
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.acting import acts
from testkit.nodes.sim import Sim
from testkit.nodes.wire import BROKER, Closed, Wire, batch
from testkit.simulated_clients import Client


def listener(broker: Broker, name: str = "PLAINTEXT") -> Listener:
    """White box, for facts that a client cannot see."""
    return next(found for found in broker._node.listeners if found.name == name)


def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


def served(wire: Wire) -> bool:
    """Return True if the broker answers on this connection within a moment."""
    wire.socket.settimeout(0.3)
    try:
        wire.metadata()
    except (TimeoutError, Closed):
        return False
    finally:
        wire.socket.settimeout(10)
    return True


@acts(broker=("socket.send.buffer.bytes", "socket.receive.buffer.bytes"))
def test_socket_buffers() -> None:
    def sizes(config: dict[str, str]) -> tuple[int, int]:
        with Broker(config) as broker, Wire(broker.bootstrap_servers) as wire:
            wire.metadata()
            (connection,) = listener(broker).connections
            return buffers_of(connection)

    # Linux doubles the requested size.
    assert sizes({"socket.send.buffer.bytes": "40000", "socket.receive.buffer.bytes": "30000"}) in (
        (80_000, 60_000),
        (40_000, 30_000),
    )
    untouched = sizes({"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"})
    assert min(untouched) > 80_000


def buffers_of(connection: Connection) -> tuple[int, int]:
    assert connection.transport is not None
    sock = connection.transport.get_extra_info("socket")
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


@acts(broker=("socket.request.max.bytes",))
def test_request_size() -> None:
    with Broker({"socket.request.max.bytes": "5000"}) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t", partitions=1)
        assert wire.produce("t", batch(b"x" * 4_000)).error_code == ErrorCode.NONE
        with pytest.raises(Closed):
            wire.produce("t", batch(b"x" * 6_000))


@pytest.mark.slow
@acts(broker=("max.connections", "socket.listen.backlog.size"))
def test_connections_over_the_bound_wait() -> None:
    config = {"max.connections": "1", "socket.listen.backlog.size": "2"}
    with Broker(config) as broker, Wire(broker.bootstrap_servers) as first:
        assert served(first)
        second, third = Wire(broker.bootstrap_servers), Wire(broker.bootstrap_servers)
        until(lambda: listener(broker).admission.waiting == 2)
        assert not served(second)
        # The queue is full, so the next connection is refused as with a full backlog.
        with Wire(broker.bootstrap_servers) as fourth:
            assert fourth.closed_by_the_broker()
        first.close()
        # The request that it sent while it waited is answered now.
        assert second.receive(3, 13).brokers
        second.close()
        assert served(third)
        third.close()


@pytest.mark.slow
@acts(broker=("max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"))
def test_connection_bounds_change_while_it_runs() -> None:
    with Broker() as broker, Wire(broker.bootstrap_servers) as first:

        def set_to(**values: str | None) -> None:
            settings = {key.replace("_", "."): value for key, value in values.items()}
            before = listener(broker).admission.limits
            assert first.alter(BROKER, "", settings).error_code == ErrorCode.NONE
            until(lambda: listener(broker).admission.limits is not before)

        set_to(max_connections_per_ip="1")
        with Wire(broker.bootstrap_servers) as second:
            assert second.closed_by_the_broker()
        set_to(max_connections_per_ip_overrides=f"{first.socket.getpeername()[0]}:3")
        with Wire(broker.bootstrap_servers) as second:
            assert served(second)
        set_to(max_connections_per_ip=None, max_connections_per_ip_overrides=None, max_connections="1")
        with Wire(broker.bootstrap_servers) as second:
            assert not served(second)
            set_to(max_connections=None)
            assert second.receive(3, 13).brokers


@pytest.mark.slow
@acts(broker=("inter.broker.listener.name", "listener.security.protocol.map", "listeners", "advertised.listeners"))
def test_the_listener_between_brokers_never_waits() -> None:
    names = "A://127.0.0.1:0,B://127.0.0.1:0,CONTROLLER://localhost:0"
    config = {
        "listeners": names,
        "advertised.listeners": names.replace("A://127.0.0.1", "A://a.example"),
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "B",
        "max.connections": "2",
        "listener.name.b.max.connections": "2",
    }
    with Broker(config) as broker:
        a, b = (f"127.0.0.1:{listener(broker, name).port}" for name in "AB")
        idle, busy = Wire(a), Wire(a)
        assert served(idle)
        answer = busy.metadata()
        # Each listener is advertised to the clients that connect to it, with the bound port.
        assert (answer.brokers[0].host, answer.brokers[0].port) == ("a.example", listener(broker, "A").port)
        with Wire(b) as inner:
            found = inner.metadata().brokers[0]
            assert (found.host, found.port) == ("127.0.0.1", listener(broker, "B").port)
            # It takes the place of the client that was idle longest.
            assert idle.closed_by_the_broker()
            assert served(busy)
            with Wire(b) as another:
                assert served(another)
                with Wire(b) as too_many:
                    assert not served(too_many)
        idle.close()
        busy.close()


def test_clients_that_wait_at_their_listener_keep_no_broker_from_its_own() -> None:
    names = "A://127.0.0.1:0,B://127.0.0.1:0,CONTROLLER://localhost:0"
    config = {
        "listeners": names,
        "advertised.listeners": names,
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "B",
        "listener.name.a.max.connections": "1",
        "max.connections.per.ip": "3",
        "socket.listen.backlog.size": "2",
    }
    with Broker(config) as broker, contextlib.ExitStack() as stack:
        a, b = (f"127.0.0.1:{listener(broker, name).port}" for name in "AB")
        clients = [stack.enter_context(Wire(a)) for _ in range(3)]
        until(lambda: listener(broker, "A").admission.waiting == 2)
        for _ in range(3):
            assert served(stack.enter_context(Wire(b)))
        assert served(clients[0])


@acts(
    broker=(
        "listeners",
        "log.dirs",
        "process.roles",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
    )
)
def test_ipv6_and_several_listeners() -> None:
    config = {
        "listeners": "ONE://[::1]:0,TWO://127.0.0.1:0,CONTROLLER://localhost:0",
        "advertised.listeners": "ONE://[::1]:0,TWO://127.0.0.1:0,CONTROLLER://localhost:0",
        "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "TWO",
    }
    with Broker(config) as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        with Wire(broker.bootstrap_servers) as wire:
            assert wire.metadata().brokers[0].host == "::1"
            wire.create("t", partitions=1)
        with Wire(f"127.0.0.1:{listener(broker, 'TWO').port}") as wire:
            assert wire.metadata("t").topics[0].error_code == ErrorCode.NONE


@acts(broker=("max.connection.creation.rate", "quota.window.num", "quota.window.size.seconds"))
def test_connections_are_not_made_faster_than_allowed() -> None:
    """Ten windows of a second are unused at first, so 20 come at once and then two each second."""

    def seconds(config: dict[str, str]) -> float:
        sim = Sim(config)

        async def scenario(sim: Sim) -> float:
            started = sim.world.loop.time()
            clients = [Client(sim.world, f"c{number}") for number in range(24)]
            await asyncio.gather(*(client.call(MetadataRequest(topics=[])) for client in clients))
            return sim.world.loop.time() - started

        found = sim.run(scenario)
        sim.close()
        return found

    assert seconds({}) < 1
    assert 1.5 < seconds({"max.connection.creation.rate": "2"}) < 4
    assert 1.5 < seconds({"listener.name.plaintext.max.connection.creation.rate": "2"}) < 4
    # With more windows, or longer ones, all come at once.
    assert seconds({"max.connection.creation.rate": "2", "quota.window.num": "14"}) < 1
    assert seconds({"max.connection.creation.rate": "2", "quota.window.size.seconds": "2"}) < 1


@acts(broker=("connections.max.idle.ms",))
def test_idle_connections_end() -> None:
    def open_after_a_minute(config: dict[str, str]) -> int:
        sim = Sim(config)

        async def scenario(sim: Sim) -> int:
            await sim.topics()
            await asyncio.sleep(60)
            return sum(len(found.connections) for found in sim.node.listeners)

        found = sim.run(scenario)
        sim.close()
        return found

    assert open_after_a_minute({}) == 1
    assert open_after_a_minute({"connections.max.idle.ms": "-1"}) == 1
    assert open_after_a_minute({"connections.max.idle.ms": "30000"}) == 0


@acts(broker=("pykbroker.connection.request.receive.timeout.ms",))
def test_a_request_that_stops_arriving() -> None:
    with (
        Broker({"pykbroker.connection.request.receive.timeout.ms": "200"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        wire.socket.sendall(b"\x00\x00\x01\x00half")
        assert wire.closed_by_the_broker()


@acts(broker=("queued.max.request.bytes",))
def test_requests_that_arrive_share_a_bound() -> None:
    with Broker({"queued.max.request.bytes": "100000", "socket.request.max.bytes": "100000"}) as broker:
        first, second = Wire(broker.bootstrap_servers), Wire(broker.bootstrap_servers)
        first.socket.sendall((90_000).to_bytes(4, "big") + b"x" * 80_000)
        until(lambda: listener(broker).memory.used > 0)
        second.socket.sendall((90_000).to_bytes(4, "big") + b"x" * 80_000)
        until(lambda: any(connection._flow.mutes for connection in listener(broker).connections))
        assert not any(
            connection._flow.mutes
            for connection in list(listener(broker).connections)
            if not connection._received.filled
        )
        first.close()
        until(lambda: not any(connection._flow.mutes for connection in listener(broker).connections))
        second.close()


@acts(broker=("pykbroker.connection.max.unanswered.requests",))
def test_unanswered_requests_of_a_connection() -> None:
    with (
        Broker({"pykbroker.connection.max.unanswered.requests": "3"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        wire.create("t", partitions=1)
        for _ in range(10):
            wire.send(wire.fetch_request("t", max_wait_ms=20_000), 12)
        until(lambda: any(len(connection._replies) == 3 for connection in listener(broker).connections))
        time.sleep(0.1)
        assert (
            broker.metrics()["kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Fetch"]
            == 3
        )


@pytest.mark.slow
@acts(broker=("pykbroker.connection.max.unsent.bytes",))
def test_unsent_bytes_of_a_connection() -> None:
    """A client that reads nothing: past the bound its requests are no longer dispatched."""

    def dispatched(config: dict[str, str]) -> float:
        with Broker({**config, "socket.send.buffer.bytes": "20000"}) as broker:
            with Wire(broker.bootstrap_servers) as wire:
                wire.create("t", partitions=1)
                assert wire.produce("t", batch(b"x" * 500_000)).error_code == ErrorCode.NONE
            with Wire(broker.bootstrap_servers, receive_buffer=20_000) as wire:
                for _ in range(30):
                    wire.send(wire.fetch_request("t", max_wait_ms=0), 12)
                name = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Fetch"
                seen = -1.0
                while broker.metrics()[name] != seen:
                    seen = broker.metrics()[name]
                    time.sleep(0.2)
                return seen

    assert dispatched({}) == 30
    assert dispatched({"pykbroker.connection.max.unsent.bytes": "1000000"}) < 10
