# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""The topic `__share_group_state` is damaged, deleted and grown.

Answers have errors of Apache Kafka, and the log has no traceback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.share_members import ShareMembers, share_members
from testkit.nodes.sim import Play, Sim, playing
from testkit.share_requests import ACCEPT, GROUP
from testkit.simulated_clients import Client

ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}
STATE = "__share_group_state"
NONE = ErrorCode.NONE


@pytest.fixture
def play() -> Iterator[Play]:
    with playing(ONE) as run:
        yield run


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO)
    yield
    assert not [record for record in caplog.records if record.exc_info]


async def begun(sim: Sim) -> ShareMembers:
    """Return a group whose member has acquired four records, and has accepted the first."""
    group = await share_members(sim)
    await sim.send("t", b"a", b"b", b"c", b"d")
    assert await group.acquire(0) == {0: [(0, 3, 1)]}
    assert await group.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=1) == {0: NONE}
    return group


async def summary(sim: Sim, group: ShareMembers) -> tuple[ErrorCode, int]:
    """Return the error and the start offset of the coordinator's state, which is -1 if there is none."""
    key = f"{GROUP}:{uuid_to_str(group.topic_id)}:0"
    found = await sim.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]))
    assert found.coordinators[0].error_code in (NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    asked = ReadStateSummaryData(topic_id=group.topic_id, partitions=[PartitionData(partition=0, leader_epoch=-1)])
    answer = await sim.call(ReadShareGroupStateSummaryRequest(group_id=GROUP, topics=[asked]))
    (found,) = answer.results[0].partitions
    return ErrorCode(found.error_code), found.start_offset


async def write(writer: Client, topic: str, records: bytes) -> ErrorCode:
    data = TopicProduceData(
        topic_id=await writer.topic_id(topic), partition_data=[PartitionProduceData(index=0, records=records)]
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[data])
    answer = await writer.call(request)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_garbage_that_an_administrator_has_written(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """One client id may write to internal topics. The coordinator that runs goes on. After a restart it cannot load,
    and logs that in one line. As in Apache Kafka, its leaders then wait, and a fetch is empty."""

    async def scenario(sim: Sim) -> None:
        group = await begun(sim)
        assert await write(sim, STATE, sim.batch(b"no client")) == ErrorCode.INVALID_TOPIC_EXCEPTION
        writer = Client(sim.sim_world, "__admin_client")
        for key, value in ((None, b"x"), (b"", b""), (b"\x7f\xff", b"of a later release"), (b"\0\0garbage", b"\0\0")):
            assert await write(writer, STATE, sim.batch(value, key=key)) == NONE
        assert await group.acknowledge({0: [(1, 1, ACCEPT)]}, epoch=2) == {0: NONE}
        assert await summary(sim, group) == (NONE, 1)
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        assert (await summary(sim, group))[0] == ErrorCode.NOT_COORDINATOR
        assert await group.acquire(0, max_wait_ms=2_000) == {0: []}

    play(scenario, {})
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith(f"{STATE}-0: cannot be loaded: ")


def test_a_deleted_state_topic(play: Play) -> None:
    """The topic is made again, and has nothing of the share partition. The leader keeps what it knows in memory, and
    refuses to acknowledge. compat_tests/differential asks Apache Kafka the same."""

    async def scenario(sim: Sim) -> None:
        group = await begun(sim)
        assert (await sim.delete(STATE)).error_code == NONE
        while (await summary(sim, group)) != (NONE, -1):
            await asyncio.sleep(0.1)
        refused = {0: ErrorCode.UNKNOWN_SERVER_ERROR}
        assert await group.acknowledge({0: [(1, 1, ACCEPT)]}, epoch=2) == refused
        assert (await group.fetch(epoch=3, max_wait_ms=100)).error_code == NONE
        assert await summary(sim, group) == (NONE, -1)

    play(scenario, {})


def test_a_state_topic_that_is_to_grow(play: Play) -> None:
    """Decision 29: with another number of partitions the states would not be found."""

    async def scenario(sim: Sim) -> None:
        group = await begun(sim)
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=STATE, count=3)], timeout_ms=10_000)
        assert (await sim.call(request)).results[0].error_code == ErrorCode.INVALID_PARTITIONS
        assert await group.acknowledge({0: [(1, 1, ACCEPT)]}, epoch=2) == {0: NONE}

    play(scenario, {})
