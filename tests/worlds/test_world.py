"""A world: stock aiokafka clients on virtual time, their lives, faults, and what would leave the world.

The mark `kafka_world` runs a test in a process whose aiokafka does not read the clock of the operating system.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid

import numpy
import pytest

from pykbroker_worlds import (
    AppFailed,
    NotSimulated,
    Stuck,
    World,
)
from pykbroker_worlds.apps import Main
from pykbroker_worlds.simulated.world import EPOCH_MS
from tests.worlds.clients import consuming, producing

# These tests do not run in the process of pytest. A world replaces the class of `datetime` for good, and compiled
# modules that another test imports later (cryptography, pandas) cannot bear that.
pytestmark = pytest.mark.kafka_world(seeds=1)


# -- applications -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.kafka_world(seeds=2)
def test_the_partitions_of_a_frozen_consumer_are_taken_over_when_its_session_ends(kafka_world: World) -> None:
    """aiokafka's default session is 10 s."""
    world = kafka_world

    async def scenario() -> float:
        world.app("producer", producing(world))
        one, other = (world.app(name, consuming(world, name)) for name in ("a", "b"))
        await world.until(lambda: bool(world.done("a") or world.done("b")))
        await world.sleep("10 s")
        owner, idle = (one, other) if len(world.done("a")) > len(world.done("b")) else (other, one)
        owner.pause()
        before, began = len(world.done(idle.name)), world.seconds()
        await world.until(lambda: len(world.done(idle.name)) > before)
        return world.seconds() - began

    assert 5 < world.run(scenario) < 16
    seen = {*world.done("a"), *world.done("b")}
    assert {*world.done("sent")} - seen <= {max(world.done("sent"))}
    assert any("is paused" in line for line in world.story)


@pytest.mark.slow
def test_a_killed_application_runs_no_finally_and_what_it_did_stays() -> None:
    world = World(2)
    ended: list[int] = []

    async def service() -> None:
        life = len(world.done("began"))
        world.did("began", life)
        async with world.store.transaction() as rows:
            rows["lives"] = rows.get("lives", 0) + 1
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(life)
            world.did("ended", life)

    async def scenario() -> None:
        app = world.app("service", service)
        await world.sleep("1 s")
        app.kill()
        assert not app.is_alive
        await world.sleep("1 s")
        assert not ended
        app.restart()
        await world.sleep("1 s")
        assert app.is_alive
        assert app.lives == 2

    world.run(scenario)
    assert world.done("began") == [0, 1]
    assert world.store["lives"] == 2
    # The rest of both lives ends with the world, and does not count.
    assert world.done("ended") == []


def test_an_application_that_fails_ends_the_scenario_unless_it_may() -> None:
    async def broken() -> None:
        await asyncio.sleep(1)
        raise ValueError("no such order")

    world = World(3)

    async def scenario() -> None:
        world.app("billing", broken)
        await world.sleep("1 min")
        raise AssertionError("it went on")

    with pytest.raises(AppFailed, match="billing: ValueError: no such order") as raised:
        world.run(scenario)
    assert "World(seed=3)" in raised.value.__notes__[0]
    assert world.seconds() < 30

    patient = World(3)

    async def lenient() -> int:
        app = patient.app("billing", broken, may_fail=True)
        await patient.until(lambda: not app.is_alive)
        app.start()
        await patient.sleep("10 s")
        assert isinstance(app.error, ValueError)
        return app.lives

    assert patient.run(lenient) == 2


def test_a_supervisor_starts_a_failed_application_again() -> None:
    world = World(4)

    async def fragile() -> None:
        await asyncio.sleep(1)
        world.did("failed")
        raise ValueError("as always")

    async def scenario() -> None:
        app = world.app("fragile", fragile, restart_after="2s")
        await world.sleep("8 s")
        assert app.lives == 3

    world.run(scenario)
    assert [round(effect.seconds - world.effects[0].seconds) for effect in world.effects] == [0, 3, 6]


def test_a_stopped_application_runs_its_finally_and_has_half_a_minute() -> None:
    world = World(5)

    async def service(rest: float) -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            world.did("stopping", rest)
            await asyncio.sleep(rest)
            world.did("stopped", rest)

    async def scenario() -> None:
        quick, slow = (world.app(f"{rest}", lambda rest=rest: service(rest)) for rest in (1, 60))  # type: ignore[misc]
        await world.sleep("1 s")
        for app in (quick, slow):
            await app.stop()
            assert not app.is_alive
        await world.sleep("2 min")

    world.run(scenario)
    assert world.done("stopping") == [1, 60]
    assert world.done("stopped") == [1]
    assert any("does not stop within 30 s" in line for line in world.story)


def test_a_process_ends_with_its_main() -> None:
    world = World(8)

    async def service() -> None:
        async def beating() -> None:
            while True:
                world.did("beat")
                await asyncio.sleep(0.1)

        world.did("kept", len(kept))
        kept.append(asyncio.create_task(beating()))
        await asyncio.sleep(1)
        raise ValueError("as always")

    kept: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        app = world.app("service", service, restart_after="3s")
        await world.until(lambda: not app.is_alive)
        await world.sleep("0.5 s")
        before = len(world.done("beat"))
        await world.sleep("2 s")
        assert len(world.done("beat")) == before
        await world.until(lambda: app.lives == 2)

    world.run(scenario)


def test_two_applications_do_not_have_one_name() -> None:
    world = World(4)

    async def nothing() -> None:
        return

    async def scenario() -> None:
        assert [app.name for app in world.apps(2, nothing)] == ["app 1", "app 2"]
        with pytest.raises(ValueError, match="'app 1' already"):
            world.app("app 1", nothing)

    world.run(scenario)


# -- time and chance --------------------------------------------------------------------------------------------------


def test_time_and_chance_are_the_worlds() -> None:
    found = []
    before = numpy.random.get_state()
    outside = numpy.random.random()
    numpy.random.set_state(before)
    for _ in range(2):
        world = World(5)

        async def scenario() -> list[object]:
            began, wall = time.monotonic(), time.time()
            await asyncio.sleep(600)
            assert 600 <= time.monotonic() - began < 601
            assert 600_000_000_000 <= time.time_ns() - int(wall * 1e9) < 601_000_000_000
            now = datetime.datetime.now(datetime.UTC)
            assert abs(now.timestamp() - time.time()) < 1
            assert isinstance(now, datetime.datetime)
            assert isinstance(now, datetime.date)
            assert datetime.date.today() == datetime.date.fromtimestamp(EPOCH_MS // 1000 + 600)
            of_numpy = [numpy.random.random(), numpy.random.default_rng().random()]
            return [wall, uuid.uuid4(), os.urandom(8), random.random(), secrets.token_hex(4), *of_numpy]

        found.append(world.run(scenario, limit="2 h"))
    assert found[0] == found[1]
    assert numpy.random.random() == outside, "the state outside of a world is that of before"
    # Outside of a world everything is real.
    assert abs(datetime.datetime.now().timestamp() - time.time()) < 60
    assert os.urandom(8) != os.urandom(8)
    time.sleep(0)


class Knot:
    """An object that only a collection ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._itself = self

    def __del__(self) -> None:
        self._world.did("collected", self._world.simulated.loop.callbacks)


def test_garbage_is_collected_at_the_same_callback_however_much_memory_there_is() -> None:
    """aiokafka closes a connection that it finds unclosed, which the brokers see."""
    found = []
    for size in (0, 5_000):
        world = World(12)
        kept: list[object] = []

        async def scenario(size: int = size, kept: list[object] = kept, world: World = world) -> None:
            for _ in range(2_000):
                Knot(world)
                kept.append([[] for _ in range(size)])
                await asyncio.sleep(0)
                kept.clear()

        world.run(scenario)
        found.append(world.done("collected"))
    assert found[0] == found[1]
    assert len(set(found[0])) > 1


DIGEST = """
import sys
from pykbroker_worlds import replacements
replacements.install()
from pykbroker_worlds import World
from tests.worlds.clients import consuming, producing

world = World(int(sys.argv[1]), brokers=3)

async def scenario():
    world.app("producer", producing(world))
    first, second = world.apps(2, consuming(world), "consumer")
    await world.until(lambda: bool(world.done("seen")))
    if sys.argv[2] == "kill":
        world.kill(2)
        first.kill()
    await world.sleep("20 s")

world.run(scenario)
print(world.digest, len(world.done("seen")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["kill", "none"])
def test_a_seed_is_the_same_run_in_processes_that_differ(faults: str) -> None:
    """Another size of the environment moves every address of a process."""
    found = set()
    for size in (0, 4_000):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "AIOKAFKA_NO_EXTENSIONS": "1",
            "SIZE": "x" * size,
        }
        done = subprocess.run(
            [sys.executable, "-c", DIGEST, "7", faults], env=environment, capture_output=True, text=True, check=True
        )
        digest, seen = done.stdout.split()
        assert int(seen) > 5
        found.add(digest)
    assert len(found) == 1


# -- what would leave the world ---------------------------------------------------------------------------------------


def spin() -> None:
    while True:
        pass


async def tls() -> None:
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, "localhost", 9092, ssl=True)


async def subprocess_() -> None:
    await asyncio.create_subprocess_exec("true")


async def listen() -> None:
    await asyncio.start_server(lambda reader, writer: None, "localhost", 0)


async def thread() -> None:
    threading.Thread(target=spin, daemon=True).start()


async def sleep_for_real() -> None:
    time.sleep(1)  # noqa: ASYNC251  # the world refuses it


async def connect_for_real() -> None:
    socket.create_connection(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("leave", "named"),
    [
        (tls, "no TLS"),
        (subprocess_, "no subprocess"),
        (listen, "only brokers listen"),
        (thread, "asyncio.to_thread"),
        (sleep_for_real, "asyncio.sleep"),
        (connect_for_real, "real connection"),
    ],
)
def test_what_would_leave_the_world_is_refused_by_name(leave: Main, named: str) -> None:
    with pytest.raises(NotSimulated, match=named):
        World(6).run(leave)


def test_a_simulated_thread_takes_its_place() -> None:
    async def scenario() -> tuple[int, int]:
        return await asyncio.to_thread(sum, [1, 2, 3]), await asyncio.get_running_loop().run_in_executor(None, int, "7")

    assert World(7).run(scenario) == (6, 7)


@pytest.mark.slow
def test_a_callback_that_does_not_end_is_named() -> None:
    world = World(8)

    async def spins() -> None:
        await asyncio.sleep(1)
        spin()

    async def scenario() -> None:
        world.app("spinning", spins)
        await world.sleep("1 min")

    with pytest.raises(Stuck, match=r"(?s)spinning life 1.*in spin"):
        world.run(scenario)


@pytest.mark.slow
def test_a_task_that_does_not_end_is_named_though_nobody_waits_for_it() -> None:
    world = World(9)
    kept: list[asyncio.Task[None]] = []

    async def spins() -> None:
        spin()

    async def service() -> None:
        kept.append(asyncio.create_task(spins()))
        await asyncio.sleep(30)

    async def scenario() -> None:
        world.app("spinning", service)
        await world.sleep("1 min")

    with pytest.raises(Stuck, match=r"(?s)spinning life 1.*in spin"):
        world.run(scenario)


@pytest.mark.slow
def test_a_task_that_looks_again_and_again_is_named() -> None:
    world = World(9)

    async def service() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def scenario() -> None:
        world.app("impatient", service)
        await world.sleep("1 min")

    with pytest.raises(Stuck, match=r"(?s)a task waits with asyncio.sleep\(0\)"):
        world.run(scenario)


def test_a_scenario_ends_within_its_limit() -> None:
    async def scenario() -> None:
        await asyncio.sleep(1_000)

    with pytest.raises(TimeoutError, match="within 1 min of virtual time"):
        World(9).run(scenario, limit="1 min")


def test_worlds_do_not_nest() -> None:
    async def scenario() -> None:
        async def nothing() -> None:
            return

        with pytest.raises(RuntimeError, match="runs already"):
            World(11).run(nothing)

    World(10).run(scenario)


# -- brokers ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.kafka_world(seeds=1, brokers=3)
def test_brokers_die_and_come_back(kafka_world: World) -> None:
    world = kafka_world

    async def scenario() -> None:
        world.app("producer", producing(world))
        world.app("consumer", consuming(world))
        await world.until(lambda: len(world.done("seen")) > 5)
        world.kill(2)
        await world.sleep("10 s")
        await world.start(2)
        await world.become_whole()
        await world.stop(3)
        await world.start(3)
        await world.become_whole()
        world.pause(1)
        await world.sleep("2 s")
        world.resume(1)
        await world.become_whole()
        world.power_loss(1)
        await world.sleep("10 s")
        await world.start(1)
        await world.become_whole()
        world.slow_disk(1)
        world.full_disk(2)
        await world.sleep("5 s")
        world.heal()
        sent = max(world.done("sent"))
        await world.until(lambda: max(world.done("seen")) > sent)

    world.run(scenario)
    sent, seen = world.done("sent"), world.done("seen")
    assert {*sent} - {*seen} <= {sent[-1]}


@pytest.mark.slow
@pytest.mark.kafka_world(seeds=1, brokers=3)
def test_an_application_that_nobody_reaches_goes_on_when_the_network_is_whole(kafka_world: World) -> None:
    world = kafka_world

    async def scenario() -> None:
        producer = world.app("producer", producing(world))
        world.app("consumer", consuming(world))
        await world.until(lambda: len(world.done("sent")) > 5)
        world.partition(producer)
        await world.sleep("1 s")
        before = len(world.done("sent"))
        await world.sleep("10 s")
        assert len(world.done("sent")) == before
        world.heal()
        await world.until(lambda: len(world.done("sent")) > before)
        world.partition(1)
        await world.sleep("20 s")
        world.heal()
        await world.become_whole()

    world.run(scenario)


@pytest.mark.slow
@pytest.mark.kafka_world(seeds=2, brokers=3)
def test_faults_of_a_seed_lose_nothing_that_was_acknowledged(kafka_world: World) -> None:
    world = kafka_world

    async def scenario() -> None:
        world.app("producer", producing(world))
        world.app("consumer", consuming(world))
        await world.until(lambda: bool(world.done("seen")))
        await world.disturb("20s")
        sent = max(world.done("sent"))
        await world.until(lambda: max(world.done("seen")) > sent)

    world.run(scenario)
    sent, seen = world.done("sent"), world.done("seen")
    assert {*sent} - {*seen} <= {sent[-1]}
    assert any("fault " in line for line in world.story)


def test_a_broker_that_is_not_there_is_refused() -> None:
    world = World(14)

    async def scenario() -> None:
        with pytest.raises(ValueError, match=r"no broker 2, only \[1\]"):
            world.kill(2)

    world.run(scenario)
    with pytest.raises(ValueError, match="1 to 9 brokers"):
        World(1, brokers=10)
