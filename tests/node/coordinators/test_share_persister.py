"""The persister of a whole node: idle until it is asked, and closed with the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.sim import Sim, playing
from testkit.promises import results

Play = Callable[..., Any]
STATE = "__share_group_state"
ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing(ONE) as run:
        yield run


def connections(sim: Sim) -> int:
    return len(sim.node.broker.shares._channels._peers._connections)


def test_a_node_asks_no_share_coordinator_until_a_share_group_needs_it(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        persister = sim.node.broker.shares.persister
        await sim.create("t")
        assert connections(sim) == 0
        assert (persister._timer._handle, persister._turn) == (None, None)
        assert STATE not in sim.node.loader.image.topics.by_name

        key = SharePartitionKey("group", await sim.topic_id("t"), 0)
        (answer,) = await results([persister.initialize(key, 1, 7)], 60)
        assert answer == ShareStateAnswer(ErrorCode.NONE)
        (answer,) = await results([persister.read(key, 3)], 60)
        assert (answer.error, answer.state_epoch, answer.start_offset) == (ErrorCode.NONE, 1, 7)
        # A broker asks itself in memory.
        assert connections(sim) == 0
        assert sim.node.broker._channels._peers._connections.keys() == set()

    play(scenario)


def test_an_operation_without_a_coordinator_ends_with_the_node(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        persister = sim.node.broker.shares.persister
        key = SharePartitionKey("group", b"t" * 16, 0)
        promise = persister.read(key, 0)
        await sim.node.stop()
        assert promise.done()
        assert promise.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert connections(sim) == 0
        # The persister takes nothing more.
        (refused,) = await results([persister.read(key, 0)], 60)
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    # Three brokers will never be there, so the topic is never created.
    play(scenario, {"share.coordinator.state.topic.replication.factor": "3", "offsets.topic.replication.factor": "1"})
