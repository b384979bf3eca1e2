# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""The leaders of share partitions of a whole node, with its own share coordinator, asked as a member asks them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykbroker_wire.messages.share_acknowledge import ShareAcknowledgeRequest
from testkit.nodes.share_members import share_members
from testkit.nodes.sim import Sim, playing
from testkit.share_requests import (
    ACCEPT,
    RELEASE,
    RENEW,
    codes,
    forgotten,
)
from testkit.simulated_clients import Client

Play = Callable[..., Any]
ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}
NONE = ErrorCode.NONE


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing(ONE) as run:
        yield run


def test_records_are_fetched_acknowledged_released_and_fetched_again(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b", b"c", b"d")
        assert await group.acquire(0) == {0: [(0, 3, 1)]}
        assert await group.acknowledge({0: [(0, 1, ACCEPT), (2, 3, RELEASE)]}, epoch=1) == {0: NONE}
        assert await group.acquire(epoch=2) == {0: [(2, 3, 2)]}
        answer = await group.fetch(epoch=3, acks={0: [(2, 3, ACCEPT)]}, max_wait_ms=10)
        assert codes(answer) == {0: (NONE, NONE)}

    play(scenario)


def test_what_was_acknowledged_does_not_come_again_after_a_kill(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b", b"c", b"d")
        await group.acquire(0)
        await group.acknowledge({0: [(0, 0, ACCEPT), (1, 1, RELEASE), (3, 3, ACCEPT)]}, epoch=1)
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        # Offset 1 was released, so its delivery is counted. Offset 2 was acquired only, which is never stored.
        assert await group.acquire(0, max_wait_ms=2_500) == {0: [(1, 1, 2), (2, 2, 1)]}

    play(scenario)


def test_a_latest_group_loses_nothing_when_its_leader_is_killed(play: Play) -> None:
    """Edge case 40. In Apache Kafka 4.3.1 the group starts over at the new end."""

    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, start=-1)
        await sim.send("t", b"before")
        assert await group.acquire(0, max_wait_ms=2_000) == {0: []}
        await sim.send("t", b"a", b"b")
        assert await group.acquire(epoch=1) == {0: [(1, 2, 1)]}
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        assert await group.acquire(0, max_wait_ms=2_500) == {0: [(1, 2, 1)]}

    play(scenario)


def test_the_reset_of_a_group_decides_where_it_starts(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, start=-1, auto_offset_reset="earliest")
        await sim.send("t", b"a", b"b")
        assert await group.acquire(0, max_wait_ms=2_500) == {0: [(0, 1, 1)]}

    play(scenario)


def test_locks_end_at_their_time_and_renewed_ones_later(play: Play) -> None:
    """Edge cases 28 and 29."""

    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, record_lock_duration_ms="2000")
        await sim.send("t", b"a", b"b", b"c", b"d")
        answer = await group.fetch(0)
        assert answer.acquisition_lock_timeout_ms == 2_000
        await asyncio.sleep(1)
        assert await group.acknowledge({0: [(2, 3, RENEW)]}, epoch=1, is_renew_ack=True) == {0: NONE}
        other = Client(sim.sim_world, "other")
        begin = sim.sim_world.loop.time()
        assert await group.acquire(0, client=other, member_id="n", max_wait_ms=2_500) == {0: [(0, 1, 2)]}
        assert 0.9 < sim.sim_world.loop.time() - begin < 1.1
        assert await group.acquire(epoch=1, client=other, member_id="n", max_wait_ms=2_500) == {0: [(2, 3, 2)]}

    play(scenario, {"group.share.min.record.lock.duration.ms": "1000"})


def test_the_end_of_a_connection_releases_the_locks_of_all_its_members(play: Play) -> None:
    """In Apache Kafka 4.3.1 the second member displaces the first, whose locks stay until they time out."""

    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a")
        assert await group.acquire(0) == {0: [(0, 0, 1)]}
        await sim.send("t", b"b")
        assert await group.acquire(0, member_id="n") == {0: [(1, 1, 1)]}
        other = Client(sim.sim_world, "other")
        assert await group.acquire(0, client=other, member_id="o", max_wait_ms=0) == {0: []}
        sim._connection.close()
        assert await group.acquire(epoch=1, client=other, member_id="o", max_wait_ms=2_500) == {
            0: [(0, 0, 2), (1, 1, 2)]
        }
        assert len(sim.node.services.share_leaders.sessions) == 1

    play(scenario)


def test_forgotten_partitions_are_released_with_their_session(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, partitions=2)
        await sim.send("t", b"a")
        assert await group.acquire(0, 1) == {0: [(0, 0, 1)], 1: []}
        await group.fetch(epoch=1, forgotten_topics_data=forgotten(group.topic_id, 0), max_wait_ms=10)
        other = Client(sim.sim_world, "other")
        waiting = asyncio.create_task(group.acquire(0, client=other, member_id="n", max_wait_ms=2_500))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        closing = await group.fetch(epoch=-1)
        assert closing.error_code == NONE
        assert await waiting == {0: [(0, 0, 2)]}

    play(scenario)


def test_a_group_whose_last_session_ends_leaves_nothing(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a")
        await group.acquire(0)
        leaders = sim.node.services.share_leaders
        partition = sim.node.services.replicas.get("t", 0)
        assert (len(leaders), len(partition.fetch_waiters)) == (1, 1)
        assert await group.acknowledge({0: [(0, 0, RELEASE)]}, epoch=-1) == {0: NONE}
        while len(leaders):
            await asyncio.sleep(0.01)
        assert len(leaders.sessions) == len(partition.fetch_waiters) == 0
        assert sim.node.services.replicas.purgatory.count == 0

    play(scenario)


def test_deleted_records_are_passed_by(play: Play) -> None:
    """Edge case 31."""

    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b", b"c")
        assert await group.acquire(0) == {0: [(0, 2, 1)]}
        partitions = [DeleteRecordsPartition(partition_index=0, offset=2)]
        await sim.call(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=5_000)
        )
        assert await group.acknowledge({0: [(0, 1, ACCEPT), (2, 2, RELEASE)]}, epoch=1) == {0: NONE}
        assert await group.acquire(epoch=2, max_wait_ms=2_500) == {0: [(2, 2, 2)]}

    play(scenario)


def test_a_topic_that_is_deleted_ends_the_wait(play: Play) -> None:
    """Edge case 38."""

    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a")
        await group.acquire(0)
        waiting = asyncio.create_task(group.fetch(epoch=1, max_wait_ms=2_500))
        await asyncio.sleep(0.1)
        await sim.delete("t")
        assert codes(await waiting)[0][0] in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert codes(await group.fetch(epoch=2)) == {0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE)}
        assert await group.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=3) == {0: ErrorCode.UNKNOWN_TOPIC_ID}

    play(scenario)


def test_share_groups_that_are_switched_off_end_all_sessions(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a")
        await group.acquire(0)
        await sim.lower("share.version")
        await asyncio.sleep(1)
        leaders = sim.node.services.share_leaders
        assert len(leaders) == len(leaders.sessions) == 0
        assert (await group.fetch(epoch=1)).error_code == ErrorCode.UNSUPPORTED_VERSION
        request: ShareAcknowledgeRequest = group.acknowledges({0: [(0, 0, ACCEPT)]})
        assert (await sim.call(request)).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(scenario)


def test_a_node_that_stops_stores_what_its_sessions_release(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b")
        await group.acquire(0)
        begin = sim.sim_world.loop.time()
        await sim.sim_node.stop()
        assert sim.sim_world.loop.time() - begin < 1, "it has not waited for share coordinators in vain"
        await sim.sim_node.start()
        assert await group.acquire(0, max_wait_ms=2_500) == {0: [(0, 1, 2)]}

    play(scenario)
