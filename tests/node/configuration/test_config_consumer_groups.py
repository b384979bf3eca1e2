# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Configuration keys of consumer groups (KIP-848): the broker's, and a group's own within the broker's bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from testkit.acting import acts
from testkit.nodes.sim import BROKER, Sim, playing

T = TypeVar("T")
Play = Callable[..., Any]
GROUP = 32
#: Every new target assignment is computed at once.
AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
_LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node, with topic t of four partitions and a coordinator."""

    def run(scenario: Callable[[Sim], Awaitable[T]], config: dict[str, str] | None = None) -> T:
        async def prepared(sim: Sim) -> T:
            await sim.create("t", partitions=4)
            await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
            while (await beat(sim, "nobody", -1)).error_code in _LOADING:
                await asyncio.sleep(0.1)
            return await scenario(sim)

        played: T = on_its_own(prepared, config)
        return played

    with playing(AT_ONCE) as on_its_own:
        yield run


async def beat(sim: Sim, member_id: str, epoch: int, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatResponse:
    if epoch == 0:
        fields = {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    answer: ConsumerGroupHeartbeatResponse = await sim.call(request)
    return answer


def told(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return sorted(partition for topic in answer.assignment.topic_partitions for partition in topic.partitions)


async def refused(sim: Sim, values: dict[str, str], group: str = "g") -> int:
    configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in values.items()]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    answer = await sim.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    code: int = answer.responses[0].error_code
    return code


@acts(broker=("group.consumer.heartbeat.interval.ms",), group=("consumer.heartbeat.interval.ms",))
def test_members_are_told_how_often_they_shall_be_heard_of(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        first = await beat(sim, "a", 0)
        await sim.alter(GROUP, "g", {"consumer.heartbeat.interval.ms": "7000"})
        own = await beat(sim, "a", first.member_epoch)
        other = await beat(sim, "a", 0, group="other")
        await sim.alter(GROUP, "g", {"consumer.heartbeat.interval.ms": None})
        again = await beat(sim, "a", first.member_epoch)
        return [answer.heartbeat_interval_ms for answer in (first, own, other, again)]

    assert play(scenario, {"group.consumer.heartbeat.interval.ms": "6000"}) == [6_000, 7_000, 6_000, 6_000]


@pytest.mark.slow
@acts(broker=("group.consumer.session.timeout.ms",), group=("consumer.session.timeout.ms",))
def test_who_is_silent_for_too_long_is_no_member_any_more(play: Play) -> None:
    async def after(sim: Sim, seconds: float) -> int:
        epoch = (await beat(sim, "a", 0)).member_epoch
        await asyncio.sleep(seconds)
        code = (await beat(sim, "a", epoch)).error_code
        await beat(sim, "a", -1)
        return code

    async def scenario(sim: Sim) -> list[int]:
        found = [await after(sim, 49), await after(sim, 51)]
        await sim.alter(GROUP, "g", {"consumer.session.timeout.ms": "55000"})
        return [*found, await after(sim, 54), await after(sim, 56)]

    gone = ErrorCode.UNKNOWN_MEMBER_ID
    assert play(scenario, {"group.consumer.session.timeout.ms": "50000"}) == [0, gone, 0, gone]


@acts(broker=("group.consumer.assignment.interval.ms",), group=("consumer.assignment.interval.ms",))
def test_members_that_start_together_get_one_target(play: Play) -> None:
    async def second(sim: Sim, group: str, seconds: float) -> list[int] | None:
        """Return the assignment of a second member that joins this long after the first."""
        first = await beat(sim, "a", 0, group=group)
        assert told(first) == [0, 1, 2, 3]
        await asyncio.sleep(seconds)
        newcomer = await beat(sim, "b", 0, group=group)
        assert told(newcomer) == []
        reduced = told(await beat(sim, "a", first.member_epoch, group=group))
        return reduced

    async def scenario(sim: Sim) -> list[Any]:
        found = [await second(sim, "g1", 4), await second(sim, "g2", 6)]
        await sim.alter(GROUP, "g3", {"consumer.assignment.interval.ms": "8000"})
        found += [await second(sim, "g3", 7), await second(sim, "g4", 6)]
        await sim.alter(BROKER, "", {"group.consumer.assignment.interval.ms": "2000"})
        return [*found, await second(sim, "g5", 3)]

    found = play(scenario, {"group.consumer.assignment.interval.ms": "5000"})
    assert [None if one is None else len(one) for one in found] == [None, 2, None, 2, 2]


@acts(
    broker=(
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    run_shows=lambda run: [f"group.consumer.{bound}.{run['noun']}" for bound in ("min", "max")],
)
@pytest.mark.parametrize(
    ("noun", "low", "high"),
    [
        ("session.timeout.ms", 40_000, 80_000),
        ("heartbeat.interval.ms", 4_000, 20_000),
        ("assignment.interval.ms", 500, 6_000),
    ],
)
def test_a_group_stays_within_the_bounds_of_the_broker(play: Play, noun: str, low: int, high: int) -> None:
    async def scenario(sim: Sim) -> list[int]:
        values = (low - 1, low, high, high + 1)
        return [await refused(sim, {f"consumer.{noun}": str(value)}) for value in values]

    bounds = {f"group.consumer.min.{noun}": str(low), f"group.consumer.max.{noun}": str(high)}
    wrong = ErrorCode.INVALID_CONFIG
    assert play(scenario, {"group.consumer.assignment.interval.ms": "1000", **bounds}) == [wrong, 0, 0, wrong]


@acts(broker=("group.coordinator.rebalance.protocols",))
def test_the_consumer_protocol_may_be_switched_off(play: Play) -> None:
    async def scenario(sim: Sim) -> int:
        return (await beat(sim, "a", 0)).error_code

    assert play(scenario, {}) == ErrorCode.NONE
    assert play(scenario, {"group.coordinator.rebalance.protocols": "classic"}) == ErrorCode.UNSUPPORTED_VERSION


@acts(broker=("group.consumer.max.size",))
def test_a_full_group_takes_nobody(play: Play) -> None:
    async def scenario(sim: Sim) -> list[int]:
        return [(await beat(sim, member_id, 0)).error_code for member_id in ("a", "b", "c", "b")]

    assert play(scenario, {"group.consumer.max.size": "2"}) == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED, 0]


@acts(broker=("group.consumer.assignors",))
def test_who_asks_for_no_assignor_gets_the_first(play: Play) -> None:
    async def scenario(sim: Sim) -> list[Any]:
        topic_id = await sim.topic_id("t")
        first = await beat(sim, "a", 0)
        second = await beat(sim, "b", 0)
        kept = told(await beat(sim, "a", first.member_epoch)) or []
        owned = [RequestTopicPartitions(topic_id=topic_id, partitions=kept)]
        await beat(sim, "a", first.member_epoch, topic_partitions=owned)
        given = told(await beat(sim, "b", second.member_epoch))
        unknown = await beat(sim, "c", 0, server_assignor="uniform")
        return [kept, given, unknown.error_code]

    halves = [[0, 1], [2, 3]]
    assert play(scenario, {"group.consumer.assignors": "range"}) == [*halves, ErrorCode.UNSUPPORTED_ASSIGNOR]


@acts(
    broker=("group.consumer.migration.policy",),
    run_shows=lambda run: () if run["policy"] == "bidirectional" else ("group.consumer.migration.policy",),
)
@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("bidirectional", ErrorCode.NONE),
        ("upgrade", ErrorCode.NONE),
        ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND),
        ("disabled", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_classic_group_goes_over_only_where_it_may(play: Play, policy: str, code: ErrorCode) -> None:
    async def scenario(sim: Sim) -> int:
        subscription = (0).to_bytes(2) + ConsumerProtocolSubscription(topics=["t"]).encode_bytes(0)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        request.member_id = (await sim.call(request)).member_id
        assert (await sim.call(request)).error_code == ErrorCode.NONE
        return (await beat(sim, "a", 0)).error_code

    assert play(scenario, {"group.consumer.migration.policy": policy, "group.initial.rebalance.delay.ms": "0"}) == code


@acts(broker=("group.consumer.regex.refresh.interval.ms",))
def test_patterns_are_resolved_again_after_a_while(play: Play) -> None:
    """Also if no topic was created or deleted, because permissions may have changed."""

    async def scenario(sim: Sim) -> list[bool]:
        epoch = (await beat(sim, "a", 0, subscribed_topic_names=None, subscribed_topic_regex="t.*")).member_epoch
        found = []
        for seconds in (5, 14, 14, 14, 14):
            await asyncio.sleep(seconds)
            before = sim.log("__consumer_offsets").log_end_offset
            epoch = (await beat(sim, "a", epoch)).member_epoch
            await asyncio.sleep(1)
            found.append(sim.log("__consumer_offsets").log_end_offset > before)
        return found

    assert play(scenario, {"group.consumer.regex.refresh.interval.ms": "40000"}) == [True, False, False, True, False]
