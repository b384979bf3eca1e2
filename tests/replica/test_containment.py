"""A bug under one partition keeps no other partition from its change."""

from __future__ import annotations

import pytest

from pykbroker.replica.partition import Partition
from tests.replica.world import World


def test_a_change_of_a_broker_reaches_the_partitions_behind_a_broken_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.register(1, 2)
    world.create("t", 2, replicas=(1, 2))
    broken, sound = (world.replicas.get("t", index) for index in range(2))
    reached: list[Partition] = []

    def brokers_changed(partition: Partition) -> None:
        if partition is broken:
            raise AssertionError("planted")
        reached.append(partition)

    monkeypatch.setattr(Partition, "brokers_changed", brokers_changed)
    world.register(2)
    assert reached == [sound]
    assert "t-0: a change of the brokers could not be applied" in caplog.text
