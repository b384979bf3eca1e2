# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Broker keys that act on groups and on their offsets; the world is simulated, time is free."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker_wire.records.compression import Codec
from testkit.acting import acts
from testkit.nodes.sim import TOPIC, Play, Sim

OFFSETS = "__consumer_offsets"


async def find_coordinator(sim: Sim, group: str = "g") -> None:
    while (await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))).coordinators[0].error_code:
        await asyncio.sleep(0.1)
    while (await commit(sim, group, 0)) in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        await asyncio.sleep(0.1)


async def commit(sim: Sim, group: str, offset: int, metadata: str = "") -> int:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    topic = OffsetCommitRequestTopic(topic_id=await sim.topic_id("t"), partitions=[part])
    answer = await sim.call(OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic]))
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def committed(sim: Sim, group: str) -> int:
    topic = OffsetFetchRequestTopics(topic_id=await sim.topic_id("t"), partition_indexes=[0])
    answer = await sim.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])]))
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


@acts(broker=("offsets.topic.num.partitions", "offsets.topic.replication.factor", "offsets.topic.segment.bytes"))
def test_the_offsets_topic(play: Play) -> None:
    async def made(sim: Sim) -> tuple[int, int]:
        await sim.create("t")
        await find_coordinator(sim)
        topic = sim.node.loader.image.topics.by_name[OFFSETS]
        return len(topic.partitions), sim.log(OFFSETS).config.segment_bytes

    assert play(made, {}) == (50, 104_857_600)
    assert play(made, {"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "2000000"}) == (3, 2_000_000)

    async def refused(sim: Sim) -> int:
        answer = await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        code: int = answer.coordinators[0].error_code
        return code

    # One broker cannot hold three copies: as in Apache Kafka, clients must try again.
    assert play(refused, {"offsets.topic.replication.factor": "3"}) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@acts(
    broker=(
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.segment.bytes",
        "share.coordinator.state.topic.min.isr",
    )
)
def test_the_topic_of_share_groups(play: Play) -> None:
    """Clients may ask for it by name before share groups are served."""
    name = "__share_group_state"

    async def made(sim: Sim) -> tuple[int, str, str] | int:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        await sim.call(asked)
        await asyncio.sleep(1)
        topic = sim.node.loader.image.topics.by_name.get(name)
        if topic is None:
            code: int = (await sim.call(asked)).topics[0].error_code
            return code
        configs = sim.node.loader.image.configs.of(TOPIC, name)
        assert configs["compression.type"] == "producer"
        return len(topic.partitions), configs["segment.bytes"], configs["min.insync.replicas"]

    prefix = "share.coordinator.state.topic"
    chosen = {f"{prefix}.num.partitions": "3", f"{prefix}.segment.bytes": "2000000", f"{prefix}.min.isr": "1"}
    assert play(made, {f"{prefix}.min.isr": "2"}) == (50, "104857600", "2")
    assert play(made, chosen) == (3, "2000000", "1")
    # One broker cannot hold three copies.
    assert play(made, {f"{prefix}.replication.factor": "3"}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


ONE = {"offsets.topic.num.partitions": "1"}


@acts(broker=("offsets.topic.compression.codec", "offset.metadata.max.bytes"))
def test_what_is_committed(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, int]:
        await sim.create("t")
        await find_coordinator(sim)
        code = await commit(sim, "g", 5, "m" * 3_000)
        codecs = {int(header.compression) for header in await sim.stored(OFFSETS)}
        return code, max(codecs)

    assert play(scenario, ONE) == (ErrorCode.NONE, Codec.NONE)
    assert play(scenario, {**ONE, "offsets.topic.compression.codec": "1"}) == (ErrorCode.NONE, Codec.GZIP)
    assert play(scenario, {**ONE, "offset.metadata.max.bytes": "2999"})[0] == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.slow
@acts(broker=("offsets.retention.minutes", "offsets.retention.check.interval.ms"))
def test_offsets_expire(play: Play) -> None:
    async def minutes(sim: Sim) -> int:
        await sim.create("t")
        await find_coordinator(sim)
        assert await commit(sim, "g", 5) == ErrorCode.NONE
        for minute in range(200):
            if await committed(sim, "g") == -1:
                return minute
            await asyncio.sleep(60)
        return 1_000

    quiet = {
        **ONE,
        "log.retention.check.interval.ms": "100000000",
        "log.flush.start.offset.checkpoint.interval.ms": "100000000",
    }
    often = {**quiet, "offsets.retention.check.interval.ms": "60000"}
    assert 10 <= play(minutes, {**often, "offsets.retention.minutes": "10"}) <= 12
    assert 30 <= play(minutes, {**often, "offsets.retention.minutes": "30"}) <= 32
    rarely = {**quiet, "offsets.retention.check.interval.ms": "3600000"}
    assert 58 <= play(minutes, {**rarely, "offsets.retention.minutes": "10"}) <= 62


@acts(broker=("offsets.load.buffer.size",))
def test_loading_reads_so_much_at_a_time(play: Play) -> None:
    async def reads(sim: Sim) -> int:
        await sim.create("t")
        await find_coordinator(sim)
        for offset in range(20):
            assert await commit(sim, "g", offset, "m" * 500) == ErrorCode.NONE
        await sim.sim_node.stop()
        counted: list[int] = []
        read = PartitionLog.read

        def counting(log: PartitionLog, offset: int, max_bytes: int, *rest: Any, **fields: Any) -> Any:
            if log.topic == OFFSETS:
                counted.append(offset)
            return read(log, offset, max_bytes, *rest, **fields)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(PartitionLog, "read", counting)
            await sim.sim_node.start()
            while await committed(sim, "g") != 19:
                await asyncio.sleep(0.1)
        return len(counted)

    assert play(reads, ONE) == 1
    assert play(reads, {**ONE, "offsets.load.buffer.size": "2000"}) >= 6


@acts(broker=("offsets.commit.timeout.ms",))
def test_a_commit_that_is_not_replicated_in_time(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[int, float]:
        await sim.create("t")
        await find_coordinator(sim)
        # A second replica that never fetches stops the high watermark.
        image = sim.node.loader.image.topics.by_name[OFFSETS].partitions[0]
        sim.node.services.replicas.get(OFFSETS, 0).update(
            image._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=image.partition_epoch + 1)
        )
        started = sim.world.loop.time()
        code = await commit(sim, "g", 5)
        return code, round(sim.world.loop.time() - started, 1)

    code, seconds = play(scenario, {**ONE, "offsets.commit.timeout.ms": "1500"})
    assert code
    assert 1.5 <= seconds < 1.8


async def join(sim: Sim, group: str = "g", session_ms: int = 10_000, member_id: str = "") -> Any:
    return await sim.call(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
    )


@acts(broker=("group.min.session.timeout.ms", "group.max.session.timeout.ms"))
def test_session_timeouts_are_bounded(play: Play) -> None:
    async def codes(sim: Sim) -> list[int]:
        await sim.create("t")
        await find_coordinator(sim)
        return [(await join(sim, session_ms=ms)).error_code for ms in (5_000, 100_000)]

    accepted, refused = ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.INVALID_SESSION_TIMEOUT
    assert play(codes, ONE) == [refused, accepted]
    assert play(codes, {**ONE, "group.min.session.timeout.ms": "1000"}) == [accepted, accepted]
    assert play(codes, {**ONE, "group.max.session.timeout.ms": "60000"}) == [refused, refused]


@acts(broker=("group.initial.rebalance.delay.ms", "group.max.size"))
def test_joining(play: Play) -> None:
    async def scenario(sim: Sim) -> tuple[float, int]:
        await sim.create("t")
        await find_coordinator(sim)
        member = (await join(sim, "new")).member_id
        started = sim.world.loop.time()
        joined = await join(sim, "new", member_id=member)
        assert joined.error_code == ErrorCode.NONE
        took = sim.world.loop.time() - started
        second: int = (await join(sim, "new")).error_code
        return round(took, 1), second

    took, second = play(scenario, ONE)
    assert (took < 0.5, second) == (True, ErrorCode.MEMBER_ID_REQUIRED)
    took, second = play(scenario, {**ONE, "group.initial.rebalance.delay.ms": "2000", "group.max.size": "1"})
    assert (took >= 2, second) == (True, ErrorCode.GROUP_MAX_SIZE_REACHED)
