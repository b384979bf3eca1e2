# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Broker keys that act on the node itself and on its part of the cluster; the world is simulated, time is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from pykbroker.config.load import with_overrides
from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState
from pykbroker.net.client import BrokerConnection
from pykbroker.net.from_config import setup_timeout
from pykbroker.node.shared import StartError
from pykbroker.runtime import Runtime
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.acting import acts
from testkit.nodes.sim import BROKER, Play, Sim


@pytest.mark.slow
@acts(
    broker=(
        "auto.leader.rebalance.enable",
        "leader.imbalance.check.interval.seconds",
        "unclean.leader.election.interval.ms",
    )
)
def test_how_often_the_controller_looks_at_leaders(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_ten_minutes(sim: Sim) -> tuple[int, int]:
        counts = {"balance_leaders": 0, "elect_unclean_leaders": 0}
        for name in counts:

            def count(state: ControllerState, name: str = name) -> Result[bool]:
                counts[name] += 1
                return Result(False, [])

            monkeypatch.setattr(f"pykbroker.controller.active.{name}", count)
        controller = sim.node.controller.services.controller
        controller._stop_timers()
        controller._start_timers()
        await asyncio.sleep(650)
        return counts["balance_leaders"], counts["elect_unclean_leaders"]

    on = {"auto.leader.rebalance.enable": "true"}
    assert play(in_ten_minutes, on) == (2, 2)
    assert play(in_ten_minutes, {"auto.leader.rebalance.enable": "false"}) == (0, 2)
    assert play(in_ten_minutes, {**on, "leader.imbalance.check.interval.seconds": "60"}) == (10, 2)
    assert play(in_ten_minutes, {**on, "unclean.leader.election.interval.ms": "600000"}) == (2, 1)


@acts(broker=("broker.rack", "node.id", "advertised.listeners"))
def test_what_a_node_says_of_itself(play: Play) -> None:
    async def node(sim: Sim) -> tuple[int, str, int, str | None]:
        found = (await sim.call(DescribeClusterRequest())).brokers[0]
        return found.broker_id, found.host, found.port, found.rack

    assert play(node, {}) == (1, "localhost", 9092, None)
    changed = {
        "node.id": "7",
        "broker.rack": "r1",
        "advertised.listeners": "PLAINTEXT://kafka.example:19092,CONTROLLER://localhost:9093",
    }
    assert play(node, changed) == (7, "kafka.example", 19092, "r1")


@acts(
    broker=(
        "internal.metadata.log.segment.bytes",
        "metadata.log.dir",
        "metadata.log.segment.bytes",
        "metadata.log.segment.ms",
        "metadata.max.idle.interval.ms",
    )
)
@pytest.mark.slow
def test_the_metadata_log(play: Play) -> None:
    async def segments(sim: Sim) -> int:
        await asyncio.sleep(60)
        for name in ("t", "u"):
            await sim.create(name, partitions=30)
        return len([name for name in sim.disk.list("/data/__cluster_metadata-0") if name.endswith(".log")])

    async def directories(sim: Sim) -> list[str]:
        return [root for root in ("/data", "/meta") if sim.disk.is_dir(f"{root}/__cluster_metadata-0")]

    async def end(sim: Sim) -> int:
        await asyncio.sleep(60)
        return sim.node.shared.quorum.log_end_offset

    assert play(directories, {}) == ["/data"]
    assert play(directories, {"metadata.log.dir": "/meta"}) == ["/meta"]
    assert play(segments, {}) == 1
    assert play(segments, {"metadata.log.segment.ms": "20000"}) > 1
    assert play(end, {"metadata.max.idle.interval.ms": "500"}) > play(end, {"metadata.max.idle.interval.ms": "0"}) + 50

    async def many(sim: Sim) -> int:
        """Write 8.5 MB of metadata: a key that no node knows, with the longest value that fits."""
        for number in range(270):
            await sim.alter(BROKER, "", {"plugin.key": f"{number}" + "x" * 32_000}, wait_seconds=0)
        return len([name for name in sim.disk.list("/data/__cluster_metadata-0") if name.endswith(".log")])

    assert play(many, {"metadata.log.segment.bytes": "8388608"}) > 1
    assert play(segments, {"internal.metadata.log.segment.bytes": "4000"}) > 1


@acts(broker=("metadata.log.max.record.bytes.between.snapshots", "metadata.log.max.snapshot.interval.ms"))
def test_metadata_snapshots(play: Play) -> None:
    async def snapshots(sim: Sim) -> int:
        for number in range(10):
            await sim.create(f"t{number}", partitions=10)
            await asyncio.sleep(1)
        names = sim.disk.list("/data/__cluster_metadata-0")
        return len(
            [name for name in names if name.endswith(".checkpoint") and not name.startswith("00000000000000000000-")]
        )

    assert play(snapshots, {}) == 0
    assert play(snapshots, {"metadata.log.max.record.bytes.between.snapshots": "2000"}) > 1
    assert play(snapshots, {"metadata.log.max.snapshot.interval.ms": "3000"}) > 1


@acts(broker=("controlled.shutdown.enable",))
def test_controlled_shutdown(play: Play) -> None:
    async def fenced_by_the_controller(sim: Sim) -> bool:
        said: list[bool] = []
        lease = sim.node.services.lease
        begin = lease.begin_controlled_shutdown

        def asked(fenced: Callable[[], None] = lambda: None) -> asyncio.Future[None]:
            said.append(True)
            return begin(fenced)

        lease.begin_controlled_shutdown = asked  # type: ignore[method-assign]
        await sim.sim_node.stop()
        return bool(said)

    assert play(fenced_by_the_controller, {}) is True
    assert play(fenced_by_the_controller, {"controlled.shutdown.enable": "false"}) is False


ALONE = {
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.quorum.bootstrap.servers": "localhost:19999",
}


@acts(
    broker=("initial.broker.registration.timeout.ms", "server.max.startup.time.ms"),
    run_shows=lambda run: [str(run["key"])],
)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("initial.broker.registration.timeout.ms", "unable to register"),
        ("server.max.startup.time.ms", "not up within 20000 ms"),
    ],
)
def test_a_broker_that_finds_no_controller_gives_up(key: str, message: str) -> None:
    sim = Sim({**ALONE, key: "20000"})

    async def scenario(sim: Sim) -> None:
        raise AssertionError("started")

    with pytest.raises(StartError, match=message):
        sim.run(scenario, 1_000)
    assert 19 < sim.world.loop.time() < 22
    sim.close()


@acts(broker=("log.flush.interval.messages",))
def test_what_was_flushed_survives_the_power(play: Play) -> None:
    async def kept(sim: Sim) -> int:
        await sim.create("t")
        await asyncio.sleep(2)
        await sim.send("t", b"one", b"two", b"three")
        sim.sim_node.kill(Survive.NOTHING)
        await sim.sim_node.start()
        return (await sim.recovered("t")).log_end_offset

    assert play(kept, {}) == 0
    assert play(kept, {"log.flush.interval.messages": "1"}) == 3


@acts(broker=("broker.heartbeat.interval.ms", "broker.session.timeout.ms"))
def test_a_broker_that_is_silent_is_fenced(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, float]:
        lifecycle = sim.node.lifecycle
        channel, sent = lifecycle._sender._channel, []

        class Counting:
            def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
                sent.append(request)
                return channel.send(request, timeout_ms)

        lifecycle._sender._channel = Counting()
        await asyncio.sleep(30)
        heartbeats = len(sent)
        silent: asyncio.Future[Any] = sim.world.loop.create_future()
        lifecycle._sender._channel = type("Silent", (), {"send": lambda self, request, timeout_ms: silent})()
        started = sim.world.loop.time()
        while not sim.node.loader.image.brokers[1].fenced:
            await asyncio.sleep(0.1)
        return heartbeats, sim.world.loop.time() - started

    heartbeats, seconds = play(scenario, {"broker.heartbeat.interval.ms": "1000", "broker.session.timeout.ms": "5000"})
    assert 28 <= heartbeats <= 31
    assert 3.5 < seconds < 6
    heartbeats, seconds = play(scenario, {"broker.heartbeat.interval.ms": "5000", "broker.session.timeout.ms": "20000"})
    assert 5 <= heartbeats <= 7
    assert 14 < seconds < 22


@acts(broker=("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"))
def test_connections_that_do_not_come_about() -> None:
    """The peer answers nothing, not even with a refusal, so each attempt takes as long as it may."""
    sim = Sim()
    tries: list[float] = []

    async def scenario(sim: Sim) -> None:
        class BlackHole:
            loop = sim.world.loop

            def connect(self, *whatever: Any) -> asyncio.Future[Any]:
                tries.append(sim.world.loop.time())
                return sim.world.loop.create_future()

        config = with_overrides(
            sim.node.config,
            {"socket.connection.setup.timeout.ms": "1000", "socket.connection.setup.timeout.max.ms": "3000"},
        )
        connection = BrokerConnection(cast(Runtime, BlackHole()), "nowhere", 1, "test", setup_timeout(config))
        started = sim.world.loop.time()
        ends = []
        for _ in range(4):
            with pytest.raises(ConnectionError):
                await connection.send(MetadataRequest(), 60_000)
            ends.append(round(sim.world.loop.time() - started, 1))
            # The pause before the next connection.
            await asyncio.sleep(1)
        assert ends == [1, 4, 8, 12]
        assert len(tries) == 4

    sim.run(scenario)
    sim.close()
