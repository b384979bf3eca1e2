"""The port of a listener: what it accepts takes a place, and each place is given back once."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pykbroker.net.bound_port import BoundPort
from pykbroker.net.places import Places
from pykbroker.runtime import Runtime
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_worlds.simulated.world import SimWorld
from tests.net.fakes import FakeRuntime


class Layer(asyncio.Protocol):
    def __init__(self, connection: asyncio.Protocol) -> None:
        self.connection = connection


def port(places: Places | None) -> BoundPort[asyncio.Protocol]:
    return BoundPort(cast(Runtime, FakeRuntime()), "OUTSIDE", places, asyncio.Protocol, Layer)


def accepted(at: BoundPort[asyncio.Protocol]) -> asyncio.Protocol | None:
    layer = at.accept()
    assert layer is None or isinstance(layer, Layer)
    return None if layer is None else layer.connection


def test_an_accepted_connection_has_a_place_until_it_has_ended() -> None:
    at = port(Places(1, {}))
    first = accepted(at)
    assert first is not None
    assert accepted(at) is None
    at.ended(first)
    # A second end, and the end of a connection that this port did not accept, free no place of another connection.
    second = accepted(at)
    at.ended(first)
    at.ended(asyncio.Protocol())
    assert accepted(at) is None
    assert second is not None


def test_without_places_every_connection_is_accepted() -> None:
    at = port(None)
    assert all(accepted(at) is not None for _ in range(100))
    at.ended(asyncio.Protocol())


def test_mistakes_of_many_clients_do_not_leave_out_the_line_about_places(caplog: pytest.LogCaptureFixture) -> None:
    at = port(Places(1, {}))
    assert accepted(at) is not None
    for number in range(2_000):
        at.lines.take(f"10.0.{number} a size that cannot be")
    assert accepted(at) is None
    (line,) = caplog.messages
    assert line.endswith("allows no more")


def test_a_port_that_is_taken_names_its_listener() -> None:
    world = SimWorld(1)
    runtime = world.runtime("node", MemoryDisk())

    async def scenario() -> None:
        first, second = (BoundPort(runtime, name, None, asyncio.Protocol, Layer) for name in ("ONE", "TWO"))
        await first.bind("localhost", 9092, 50)
        assert first.number == 9092
        with pytest.raises(OSError, match="listener TWO cannot be bound to localhost:9092: "):
            await second.bind("localhost", 9092, 50)
        first.close()

    world.loop.run_until_complete(scenario())
