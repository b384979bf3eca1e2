# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Rejected records of a whole node, with its own share coordinator, whose dead letters a test holds back.

A node that is killed between the two phases of a dead letter has stored the record as ARCHIVING, and not as ARCHIVED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.coordinator.share import records
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.promise import Promise
from pykbroker.node import share_parts
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker.share_leaders.leader_table import ShareLeaders
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_wire.stored.share.share_snapshot import ShareSnapshotValue
from pykbroker_wire.stored.share.share_update import ShareUpdateValue
from testkit.nodes.share_members import ShareMembers, share_members
from testkit.nodes.sim import Sim, playing
from testkit.promises import results
from testkit.share_requests import ACCEPT, GROUP, REJECT, RELEASE

Play = Callable[..., Any]
ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}
NONE = ErrorCode.NONE


class HeldLetters:
    """A writer for groups that have a queue. It writes nothing before `end`."""

    def __init__(self) -> None:
        self.wanted = True
        self.came: list[DeadLetters] = []
        self._promises: list[Promise] = []

    def is_wanted(self, group_id: str) -> bool:
        return self.wanted

    def write(self, letters: DeadLetters) -> Promise:
        self.came.append(letters)
        self._promises.append(Promise())
        return self._promises[-1]

    def end(self) -> None:
        """Write the letters that have come to this node, and to those before it."""
        promises, self._promises = self._promises, []
        for promise in promises:
            promise.set_result(None)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> HeldLetters:
    """The writer of each node that a test starts."""
    held = HeldLetters()

    def leaders(clock: Any, keeper: Any, config_of: Any, find_start: Any, _: Any, most_sessions: int) -> ShareLeaders:
        return ShareLeaders(clock, keeper, config_of, find_start, held, most_sessions)

    monkeypatch.setattr(share_parts, "ShareLeaders", leaders)
    return held


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing(ONE) as run:
        yield run


async def stored(group: ShareMembers) -> list[tuple[int, int, int, int]]:
    """Return the batches that the share coordinator has, each with its state and count."""
    sim = group.sim
    epoch = sim.node.services.replicas.get("t", 0).leader_epoch
    asked = sim.node.broker.shares.persister.read(SharePartitionKey(GROUP, group.topic_id, 0), epoch)
    (answer,) = await results([asked], 60)
    assert answer.error is NONE
    return [(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in answer.batches]


async def states_in_log(sim: Sim) -> set[int]:
    """Return the delivery states of all records in the topic of the share coordinator."""
    found: set[int] = set()
    answer = await sim.fetch("__share_group_state")
    read = answer.responses[0].partitions[0].records
    for position, header in iter_batches(read):
        for record in iter_records(read, position, header):
            decoded = records.decode(record.key, record.value)
            assert decoded is not None
            assert isinstance(decoded.value, ShareSnapshotValue | ShareUpdateValue)
            found |= {each.delivery_state for each in decoded.value.state_batches}
    return found


async def come(letters: HeldLetters, count: int) -> None:
    while len(letters.came) < count:
        await asyncio.sleep(0.01)


def test_a_node_that_is_killed_between_the_phases_writes_the_letters_again(play: Play, letters: HeldLetters) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, delivery_count_limit="2")
        await sim.send("t", b"a", b"b", b"c", b"d")
        await group.acquire(0)
        assert await group.acknowledge({0: [(0, 1, REJECT), (2, 2, RELEASE)]}, epoch=1) == {0: NONE}
        await come(letters, 1)
        assert await group.acquire(epoch=2) == {0: [(2, 2, 2)]}
        assert await group.acknowledge({0: [(2, 2, RELEASE)]}, epoch=3) == {0: NONE}
        await come(letters, 2)
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        assert await stored(group) == [(0, 1, ARCHIVING, 1), (2, 2, ARCHIVING, 2)]
        before, letters.came = letters.came, []
        # Offset 3 was acquired only. The records that wait for their letters are not delivered.
        assert await group.acquire(0, max_wait_ms=2_500) == {0: [(3, 3, 1)]}
        await come(letters, 2)
        place = (GROUP, group.topic_id, 0)
        assert letters.came == before
        assert before == [
            DeadLetters(*place, 0, 1, 1, DeadLetterCause.REJECTED),
            DeadLetters(*place, 2, 2, 2, DeadLetterCause.DELIVERY_LIMIT),
        ]
        letters.end()
        while await stored(group) != [(0, 1, ARCHIVED, 1), (2, 2, ARCHIVED, 2)]:
            await asyncio.sleep(0.01)
        (leader,) = sim.node.services.share_leaders
        assert leader.machine.start_offset == 3

    play(scenario)


def test_a_letter_that_was_stored_as_written_does_not_come_again(play: Play, letters: HeldLetters) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b")
        await group.acquire(0)
        await group.acknowledge({0: [(0, 0, REJECT)]}, epoch=1)
        await come(letters, 1)
        letters.end()
        while await stored(group) != [(0, 0, ARCHIVED, 1)]:
            await asyncio.sleep(0.01)
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        assert await group.acquire(0, max_wait_ms=2_500) == {0: [(1, 1, 1)]}
        await asyncio.sleep(1)
        assert len(letters.came) == 1

    play(scenario)


def test_a_node_that_stops_waits_for_its_letters(play: Play, letters: HeldLetters) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a")
        await group.acquire(0)
        await group.acknowledge({0: [(0, 0, REJECT)]}, epoch=1)
        await come(letters, 1)
        sim.sim_world.loop.call_later(2, letters.end)
        await sim.sim_node.stop()
        await sim.sim_node.start()
        assert await stored(group) == [(0, 0, ARCHIVED, 1)]

    play(scenario)


def test_a_queue_that_is_taken_away_holds_nothing(play: Play, letters: HeldLetters) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b")
        await group.acquire(0)
        await group.acknowledge({0: [(0, 0, REJECT)]}, epoch=1)
        await come(letters, 1)
        letters.wanted = False
        letters.end()
        await group.acknowledge({0: [(1, 1, REJECT)]}, epoch=2)
        (leader,) = sim.node.services.share_leaders
        while leader.machine.start_offset < 2:
            await asyncio.sleep(0.01)
        assert len(letters.came) == 1

    play(scenario)


def test_a_node_without_queues_stores_no_record_as_archiving(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, delivery_count_limit="2")
        await sim.send("t", b"a", b"b", b"c", b"d")
        await group.acquire(0)
        acks = {0: [(0, 0, ACCEPT), (1, 1, REJECT), (2, 3, RELEASE)]}
        assert await group.acknowledge(acks, epoch=1) == {0: NONE}
        assert await group.acquire(epoch=2) == {0: [(2, 3, 2)]}
        assert await group.acknowledge({0: [(3, 3, RELEASE)]}, epoch=3) == {0: NONE}
        assert await group.acknowledge({0: [(2, 2, REJECT)]}, epoch=4) == {0: NONE}
        assert await stored(group) == [(2, 3, ARCHIVED, 2)]
        assert await states_in_log(sim) == {ACKNOWLEDGED, ARCHIVED, AVAILABLE}

    play(scenario)
