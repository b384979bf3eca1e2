"""A replica table whose truncations run when a test calls for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.replica.follower import PartitionFollower
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode
from tests.replica.world import NOW_MS, World, batch


class Threads:
    """`run` does the work of the truncations that were begun. The loop gets the result when it turns."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = world.loop
        self._blocking = world.runtime.run_blocking
        self._held: list[tuple[Callable[..., Any], asyncio.Future[Any]]] = []
        monkeypatch.setattr(world.runtime, "run_blocking", self._run_blocking)

    def _run_blocking(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if getattr(function, "__qualname__", "") != "Truncation.run":
            return self._blocking(function, *args)
        future = self._loop.create_future()
        self._held.append((function, future))
        return future

    def __len__(self) -> int:
        return len(self._held)

    def run(self) -> None:
        held, self._held = self._held, []
        for function, future in held:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  # any error of a call is its result
                future.set_exception(error)
        self._loop.settle()


class Told:
    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def __call__(self, code: ErrorCode) -> None:
        self.codes.append(code)


def followed(world: World, name: str = "t", records: int = 4, **configs: str) -> tuple[Partition, PartitionFollower]:
    """Return a partition with records that broker 2 leads in epoch 1."""
    partition = world.create(name, 1, (1, 2), 0, **configs)
    for number in range(records):
        partition.append(batch(b"%d" % number), required_acks=1, now_ms=NOW_MS)
    world.change(partition, leader=2)
    assert partition.follower is not None
    return partition, partition.follower
