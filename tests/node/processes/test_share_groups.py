"""A share group on three nodes: its coordinator is killed, and its member goes on at another node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.trio import REPLICATED, Trio
from testkit.nodes.wire import Wire

pytestmark = pytest.mark.slow

GROUP = "sharing"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
SETTINGS = {**REPLICATED, "offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def coordinator(trio: Trio, *, but: int | None = None) -> int:
    """Return the node that all living nodes return."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])

    def look() -> int | None:
        found = set()
        for _, wire in trio.wires():
            answer = wire.call(request).coordinators[0]
            found.add(-1 if answer.error_code else answer.node_id)
        return found.pop() if len(found) == 1 and not found & {-1, but} else None

    return eventually("all name the same coordinator", look)


def ask(trio: Trio, node: int, request: Any) -> Any:
    """Return the answer of the coordinator, once it has loaded the group."""

    def look() -> Any:
        with Wire(trio.address(node)) as wire:
            answer = wire.call(request)
        code = getattr(answer, "error_code", None)
        return None if (answer.groups[0].error_code if code is None else code) in NOT_YET else answer

    return eventually("the coordinator answers", look)


def beat(trio: Trio, node: int, epoch: int) -> tuple[int, list[int]]:
    """Return the epoch and the partitions of the member, which asks for its assignment each time."""
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=["t"]
    )
    answer = ask(trio, node, request)
    assert answer.error_code == ErrorCode.NONE, answer
    partitions = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]
    return answer.member_epoch, sorted(partitions)


def test_a_member_goes_on_when_the_coordinator_of_its_group_is_killed(tmp_path: Path) -> None:
    everything = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    )
    with Trio(tmp_path, "static", SETTINGS) as trio:
        trio.serving(1, 2, 3)
        trio.create("t", (1, 2, 3))
        node = coordinator(trio)
        start = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[start])]
        altered = ask(trio, node, AlterShareGroupOffsetsRequest(group_id=GROUP, topics=topics))
        assert [each.error_code for each in altered.responses[0].partitions] == [ErrorCode.NONE]
        epoch, partitions = beat(trio, node, 0)
        assert partitions == [0]
        for _ in range(2):
            trio.in_sync("__consumer_offsets", "__share_group_state")
            trio.kill(node)
            other = coordinator(trio, but=node)
            # The member is not fenced, and keeps its epoch and its partition.
            assert beat(trio, other, epoch) == (epoch, partitions)
            # The new coordinator asks the share coordinator, which may have been on the killed node too, for the start.
            (group,) = ask(trio, other, everything).groups
            assert [[each.start_offset for each in topic.partitions] for topic in group.topics] == [[7]]
            trio.start(node).ready(60)
            node = other
        assert not trio.complaints()
