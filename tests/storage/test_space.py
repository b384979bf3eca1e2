"""The lines about a full disk, and the time at which appends are tried again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pykbroker.storage.space import DiskSpace
from tests.replica.world import World

RESERVE = 1 << 20


class Owner:
    """A reserve that comes back on request."""

    def __init__(self, world: World) -> None:
        self._loop = world.runtime.loop
        self.is_short_of_room = False

    def restore_reserve(self) -> asyncio.Future[bool]:
        self.is_short_of_room = False
        future: asyncio.Future[bool] = self._loop.create_future()
        future.set_result(True)
        return future


def take(world: World, size: int) -> None:
    file = world.disk.open("ballast", create=True)
    file.truncate(0)
    file.pwritev([bytes(size)], 0)
    file.close()


def test_one_line_at_the_beginning_one_a_minute_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pykbroker.storage.space")
    world = World()
    world.disk.capacity_bytes = 4 << 20
    take(world, world.disk.usage("")[1])
    space = DiskSpace(world.runtime)
    for _ in range(300):
        space.ran_out("logs")
        space.ran_out("logs")
        world.loop.advance(1)
    said = [record.message for record in caplog.records]
    assert len(said) == 6
    assert "the disk is full, 0 bytes are left" in said[0]
    assert all("still full" in line and "writes were refused" in line for line in said[1:])
    take(world, 0)
    world.loop.advance(2)
    assert "there is room again" in caplog.records[-1].message
    assert len(caplog.records) == 7
    assert not world.loop.sleeping()


def test_nothing_is_said_of_a_disk_that_nobody_writes_to(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.disk.capacity_bytes = 4 << 20
    take(world, world.disk.usage("")[1])
    space = DiskSpace(world.runtime)
    space.ran_out("logs")
    world.loop.advance(65)
    said = len(caplog.records)
    world.loop.advance(600)
    assert len(caplog.records) == said
    space.close()
    assert not world.loop.sleeping()


def test_appends_are_not_tried_while_the_reserve_is_gone() -> None:
    world = World()
    world.disk.capacity_bytes = 8 << 20
    take(world, world.disk.usage("")[1] - RESERVE // 2)
    owner = Owner(world)
    space = DiskSpace(world.runtime)
    space.keep_reserve(owner, ["logs"], RESERVE)
    owner.is_short_of_room = True
    space.reserve_given_up()
    assert space.short == {"logs"}
    world.loop.advance(5)
    assert owner.is_short_of_room
    take(world, 0)
    world.loop.advance(2)
    assert not owner.is_short_of_room
    assert space.short == frozenset()
