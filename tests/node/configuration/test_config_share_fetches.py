"""Configuration keys of share groups (KIP-932) that act on fetches and acknowledgements, of brokers and of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import build_batch
from testkit.acting import acts
from testkit.nodes.share_members import GROUP_CONFIG, ShareMembers, share_members
from testkit.nodes.sim import Sim, playing
from testkit.share_requests import GROUP, RELEASE, RENEW

Play = Callable[..., Any]
ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing(ONE) as run:
        yield run


async def alter(sim: Sim, key: str, value: str | None) -> None:
    await sim.alter(GROUP_CONFIG, GROUP, {f"share.{key}": value})


@acts(broker=("group.share.record.lock.duration.ms",), group=("share.record.lock.duration.ms",))
def test_members_are_told_how_long_their_locks_last(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        members = await share_members(sim)
        told = [(await members.fetch(0, max_wait_ms=0)).acquisition_lock_timeout_ms]
        await alter(sim, "record.lock.duration.ms", "25000")
        told.append((await members.fetch(epoch=1, max_wait_ms=0)).acquisition_lock_timeout_ms)
        return told

    assert play(scenario, {"group.share.record.lock.duration.ms": "20000"}) == [20_000, 25_000]
    assert play(scenario) == [30_000, 25_000]


@acts(broker=("group.share.delivery.count.limit",), group=("share.delivery.count.limit",))
def test_a_record_is_delivered_no_more_often_than_the_limit(play: Play) -> None:
    async def deliveries(sim: Sim, members: ShareMembers) -> int:
        """Return how often a record comes that is always released."""
        await sim.send("t", b"a")
        count, epoch = 0, 0
        while found := (await members.acquire(0, epoch=epoch, max_wait_ms=100)).get(0):
            ((first, last, count),) = found
            await members.acknowledge({0: [(first, last, RELEASE)]}, epoch=epoch + 1)
            epoch += 2
        await members.fetch(epoch=-1)
        return count

    async def scenario(sim: Sim) -> list[int]:
        members = await share_members(sim)
        found = [await deliveries(sim, members)]
        await alter(sim, "delivery.count.limit", "4")
        return [*found, await deliveries(sim, members)]

    assert play(scenario, {"group.share.delivery.count.limit": "2"}) == [2, 4]
    assert play(scenario) == [5, 4]


@acts(broker=("group.share.partition.max.record.locks",), group=("share.partition.max.record.locks",))
def test_a_fetch_acquires_no_more_batches_than_the_limit_of_locks(play: Play) -> None:
    async def scenario(sim: Sim, **configs: Any) -> int:
        members = await share_members(sim, **configs)
        for _ in range(4):
            await sim.send("t", *[b"x"] * 60)
        ((first, last, _),) = (await members.acquire(0))[0]
        return int(last - first + 1)

    async def with_its_own(sim: Sim) -> int:
        return await scenario(sim, partition_max_record_locks="150")

    limit = {"group.share.partition.max.record.locks": "100"}
    assert [play(scenario, limit), play(with_its_own, limit), play(scenario)] == [120, 180, 240]


@acts(broker=("group.share.max.share.sessions",))
def test_there_are_no_more_sessions_than_the_limit(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        members = await share_members(sim)
        return [
            (await members.fetch(0, member_id=member, max_wait_ms=100)).error_code for member in ("a", "b", "a", "c")
        ]

    limits = {"group.share.max.share.sessions": "2", "group.share.max.size": "2"}
    assert play(scenario, limits) == [0, 0, 0, ErrorCode.SHARE_SESSION_LIMIT_REACHED]


@acts(group=("share.auto.offset.reset",))
def test_a_group_without_a_start_begins_where_its_reset_says(play: Play) -> None:
    async def scenario(sim: Sim, **configs: Any) -> Any:
        members = await share_members(sim, start=-1, **configs)
        await sim.send("t", b"a", b"b")
        return (await members.acquire(0, max_wait_ms=500))[0]

    assert play(scenario) == []
    assert play(lambda sim: scenario(sim, auto_offset_reset="earliest")) == [(0, 1, 1)]


@acts(group=("share.isolation.level",))
def test_a_group_may_read_committed_records_only(play: Play) -> None:
    async def scenario(sim: Sim) -> list[Any]:
        members = await share_members(sim)
        partition = sim.node.services.replicas.get("t", 0)
        records = build_batch(
            [(None, b"x", (), 0)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        guard = partition.start_verification(7, 0, 0, supports_epoch_bump=True)
        partition.append(bytearray(records), required_acks=1, now_ms=sim.world.now_ms(), verification=guard)
        found = []
        for level in ("read_committed", "read_uncommitted"):
            await alter(sim, "isolation.level", level)
            found.append((await members.acquire(0, max_wait_ms=100))[0])
            await members.fetch(epoch=-1)
        return found

    assert play(scenario) == [[], [(0, 0, 1)]]


@acts(group=("share.renew.acknowledge.enable",))
def test_a_group_may_refuse_renewals(play: Play) -> None:
    async def scenario(sim: Sim) -> list[ErrorCode]:
        members = await share_members(sim)
        await sim.send("t", b"a")
        await members.acquire(0)
        codes = []
        for epoch, value in ((1, "true"), (2, "false")):
            await alter(sim, "renew.acknowledge.enable", value)
            codes += (await members.acknowledge({0: [(0, 0, RENEW)]}, epoch=epoch, is_renew_ack=True)).values()
        return codes

    assert play(scenario) == [ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE]
