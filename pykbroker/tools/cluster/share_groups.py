"""Share groups (KIP-932): lists of them, their members, and where a group is in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, check
from pykbroker.tools.cluster.groups import GroupDescription, GroupListing, GroupMember, of_all_types
from pykbroker.tools.cluster.groups import listed as consumer_groups


@dataclass(slots=True, frozen=True)
class SharePosition:
    """Where a share group is in one partition."""

    #: the share-partition start offset, or None before the first acknowledgement in Apache Kafka
    start: int | None
    #: the offsets from the start to the end that are neither acknowledged nor archived, or None if it is unknown
    lag: int | None


def listed(cluster: AskedCluster, *, states: Sequence[str] = ()) -> list[GroupListing]:
    """Return the share groups of every broker. `states` restricts the result, in the protocol's words."""
    return [group for group in of_all_types(cluster, states=states, types=["Share"]) if group.type == "Share"]


def listed_with_consumers(cluster: AskedCluster) -> list[GroupListing]:
    """Return the consumer groups and the share groups of every broker."""
    return [*consumer_groups(cluster), *listed(cluster)]


def described(cluster: AskedCluster, ids: Iterable[str]) -> dict[str, GroupDescription | AskFailed]:
    """Return each group, or the reason why it cannot be described: GROUP_ID_NOT_FOUND if it is no share group, and
    UNSUPPORTED_VERSION if its coordinator does not serve share groups."""
    return {group: _described(cluster, group) for group in dict.fromkeys(ids)}


def _described(cluster: AskedCluster, group: str) -> GroupDescription | AskFailed:
    from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

    def attempt() -> GroupDescription:
        node = cluster.coordinators([group])[group]
        request = ShareGroupDescribeRequest(group_ids=[group])
        (row,) = cluster.ask(request, ShareGroupDescribeResponse, node=node).groups
        check(row.error_code, row.error_message)
        members = tuple(
            GroupMember(
                member.member_id,
                member.client_id,
                member.client_host,
                assignment=tuple(
                    (topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                ),
                epoch=member.member_epoch,
            )
            for member in row.members
        )
        return GroupDescription(
            group, "Share", row.group_state, row.assignor_name, node, members, row.group_epoch, row.assignment_epoch
        )

    try:
        return cluster.settled(attempt)
    except AskFailed as error:
        return error


def positions(cluster: AskedCluster, group: str) -> dict[PartitionName, SharePosition]:
    """Return where a group is in each partition that has a state for it. Raises AskFailed."""
    from pykbroker_wire.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsResponse,
    )

    def attempt() -> dict[PartitionName, SharePosition]:
        node = cluster.coordinators([group])[group]
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        answer = cluster.ask(
            DescribeShareGroupOffsetsRequest(groups=[asked]), DescribeShareGroupOffsetsResponse, node=node
        )
        (row,) = answer.groups
        check(row.error_code, row.error_message)
        found = {}
        for topic in row.topics:
            for one in topic.partitions:
                check(one.error_code, one.error_message)
                found[topic.topic_name, one.partition_index] = SharePosition(
                    one.start_offset if one.start_offset >= 0 else None, one.lag if one.lag >= 0 else None
                )
        return found

    return cluster.settled(attempt)
