"""Members and administrators of share groups, as clients of a node in the simulated world."""

# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from testkit.nodes.sim import Sim

#: A join waits for its assignment, in the greatest configuration for half a minute.
TIMEOUT_MS = 60_000
_LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def ready(sim: Sim) -> None:
    """Wait until groups have a coordinator. The first lookup makes its topic."""
    await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    while (await beat(sim, "nobody", -1, group="nowhere")).error_code in _LOADING:
        await asyncio.sleep(0.1)


async def beat(
    sim: Sim, member: str, epoch: int = 0, *, group: str = "g", topics: Sequence[str] | None = None
) -> ShareGroupHeartbeatResponse:
    """Send a heartbeat. A join subscribes to topic t, if `topics` is None."""
    names = ["t"] if topics is None and epoch == 0 else topics
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None if names is None else list(names),
    )
    answer: ShareGroupHeartbeatResponse = await sim._connection.send(request, TIMEOUT_MS)
    return answer


def told(answer: ShareGroupHeartbeatResponse) -> list[int] | None:
    """Return the partitions of an answer, None if it has no assignment."""
    if answer.assignment is None:
        return None
    return sorted(partition for topic in answer.assignment.topic_partitions for partition in topic.partitions)


async def alter_offsets(sim: Sim, offsets: Mapping[int, int], *, group: str = "g", topic: str = "t") -> Any:
    """Send AlterShareGroupOffsets for partitions of one topic, and return the response."""
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    return await sim._connection.send(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), TIMEOUT_MS)


async def offsets(sim: Sim, *partitions: int, group: str = "g", topic: str = "t") -> dict[int, tuple[int, int, int]]:
    """Return (start offset, lag, error) of each of these partitions, of all that have a state if none is named."""
    asked = None
    if partitions:
        asked = [DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions))]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked)]
    answer = await sim._connection.send(DescribeShareGroupOffsetsRequest(groups=groups), TIMEOUT_MS)
    [found] = answer.groups
    assert found.error_code == ErrorCode.NONE, found
    return {
        each.partition_index: (each.start_offset, each.lag, each.error_code)
        for one in found.topics
        for each in one.partitions
    }
