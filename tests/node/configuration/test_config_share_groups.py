"""Configuration keys of share groups (KIP-932): the broker's, and a group's own within the broker's bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from testkit.acting import acts
from testkit.nodes.share_groups import beat, ready, told
from testkit.nodes.sim import BROKER, Sim, playing

T = TypeVar("T")
Play = Callable[..., Any]
GROUP = 32
PREFIX = "share.coordinator.state.topic"
ONE = {f"{PREFIX}.num.partitions": "1", f"{PREFIX}.min.isr": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node, with topic t of four partitions and a group coordinator."""

    def run(scenario: Callable[[Sim], Awaitable[T]], config: dict[str, str] | None = None) -> T:
        async def prepared(sim: Sim) -> T:
            await sim.create("t", partitions=4)
            await ready(sim)
            return await scenario(sim)

        played: T = on_its_own(prepared, config)
        return played

    with playing(ONE) as on_its_own:
        yield run


async def refused(sim: Sim, key: str, value: int) -> int:
    config = AlterableConfig(name=key, config_operation=0, value=str(value))
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
    answer = await sim.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    code: int = answer.responses[0].error_code
    return code


@acts(broker=("group.share.heartbeat.interval.ms",), group=("share.heartbeat.interval.ms",))
def test_members_are_told_how_often_to_send_heartbeats(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        first = await beat(sim, "a")
        await sim.alter(GROUP, "g", {"share.heartbeat.interval.ms": "7000"})
        own = await beat(sim, "a", first.member_epoch)
        other = await beat(sim, "a", group="other")
        await sim.alter(GROUP, "g", {"share.heartbeat.interval.ms": None})
        again = await beat(sim, "a", first.member_epoch)
        return [answer.heartbeat_interval_ms for answer in (first, own, other, again)]

    assert play(scenario, {"group.share.heartbeat.interval.ms": "6000"}) == [6_000, 7_000, 6_000, 6_000]


@acts(broker=("group.share.session.timeout.ms",), group=("share.session.timeout.ms",))
def test_a_member_without_heartbeats_is_removed(play: Play) -> None:
    async def after(sim: Sim, seconds: float) -> int:
        epoch = (await beat(sim, "a")).member_epoch
        await asyncio.sleep(seconds)
        code = (await beat(sim, "a", epoch)).error_code
        await beat(sim, "a", -1)
        return code

    async def scenario(sim: Sim) -> list[int]:
        found = [await after(sim, 49), await after(sim, 51)]
        await sim.alter(GROUP, "g", {"share.session.timeout.ms": "55000"})
        return [*found, await after(sim, 54), await after(sim, 56)]

    gone = ErrorCode.UNKNOWN_MEMBER_ID
    assert play(scenario, {"group.share.session.timeout.ms": "50000"}) == [0, gone, 0, gone]


@acts(broker=("group.share.assignment.interval.ms",), group=("share.assignment.interval.ms",))
def test_a_second_member_waits_for_the_next_assignment(play: Play) -> None:
    async def second(sim: Sim, group: str) -> float:
        """Return the seconds until a member that joins just after the first has its partitions."""
        assert told(await beat(sim, "a", group=group)) == [0, 1, 2, 3]
        began = sim.world.loop.time()
        assert len(told(await beat(sim, "b", group=group)) or []) == 2
        return sim.world.loop.time() - began

    async def scenario(sim: Sim) -> list[float]:
        found = [await second(sim, "g1")]
        await sim.alter(GROUP, "g2", {"share.assignment.interval.ms": "8000"})
        found.append(await second(sim, "g2"))
        await sim.alter(BROKER, "", {"group.share.assignment.interval.ms": "2000"})
        return [*found, await second(sim, "g3")]

    found = play(scenario, {"group.share.assignment.interval.ms": "5000"})
    for seconds, interval in zip(found, (5, 8, 2), strict=True):
        assert interval - 0.5 < seconds < interval + 0.3


_BOUNDS = {
    "session.timeout.ms": (40_000, 80_000),
    "heartbeat.interval.ms": (4_000, 20_000),
    "assignment.interval.ms": (500, 6_000),
    "delivery.count.limit": (3, 7),
    "partition.max.record.locks": (150, 3_000),
    "record.lock.duration.ms": (14_000, 50_000),
}


@acts(
    broker=(
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    run_shows=lambda run: [f"group.share.{bound}.{run['noun']}" for bound in ("min", "max")],
)
@pytest.mark.parametrize("noun", _BOUNDS)
def test_a_group_stays_within_the_bounds_of_the_broker(play: Play, noun: str) -> None:
    low, high = _BOUNDS[noun]

    async def scenario(sim: Sim) -> list[int]:
        return [await refused(sim, f"share.{noun}", value) for value in (low - 1, low, high, high + 1)]

    bounds = {f"group.share.min.{noun}": str(low), f"group.share.max.{noun}": str(high)}
    wrong = ErrorCode.INVALID_CONFIG
    assert play(scenario, bounds) == [wrong, 0, 0, wrong]


@acts(broker=("group.share.max.size",))
def test_a_full_group_takes_no_other_member(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        return [(await beat(sim, member)).error_code for member in ("a", "b", "c", "b")]

    assert play(scenario, {"group.share.max.size": "2"}) == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED, 0]


@acts(broker=("group.share.initialize.retry.interval.ms",))
def test_an_initialisation_without_an_answer_is_tried_again(play: Play) -> None:
    async def scenario(sim: Sim) -> list[bool]:
        epoch = (await beat(sim, "a")).member_epoch
        tried = []
        for _ in range(4):
            await asyncio.sleep(2)
            before = sim.log("__consumer_offsets").log_end_offset
            await beat(sim, "a", epoch)
            tried.append(sim.log("__consumer_offsets").log_end_offset > before)
        return tried

    # Three brokers will never be there, so there is no share coordinator.
    lonely = {f"{PREFIX}.replication.factor": "3"}
    assert play(scenario, lonely) == [False] * 4
    assert play(scenario, {**lonely, "group.share.initialize.retry.interval.ms": "5000"}) == [False, True, False, False]


@acts(broker=("group.share.assignors",))
def test_an_assignor_that_does_not_exist_stops_the_start(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int] | None:
        return told(await beat(sim, "a"))

    name = "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"
    assert play(scenario, {"group.share.assignors": name}) == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match=r"group\.share\.assignors"):
        play(scenario, {"group.share.assignors": "balanced"})


@acts(broker=("group.share.persister.class.name",))
def test_a_class_that_keeps_no_state_stops_the_start(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        raise AssertionError("the node has started")

    name = "group.share.persister.class.name"
    with pytest.raises(ConfigError, match=name):
        play(scenario, {name: "org.apache.kafka.server.share.persister.NoOpStatePersister"})
