"""Share groups (KIP-932): lists of them, their members, where a group is in each partition, and changes of that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, check, failed
from pykbroker.tools.cluster.groups import GroupDescription, GroupListing, GroupMember, of_all_types
from pykbroker.tools.cluster.groups import listed as consumer_groups
from pykbroker.tools.cluster.leader_requests import Outcomes
from pykbroker.tools.cluster.reassignments import by_topic
from pykbroker_wire.errors import ErrorCode


@dataclass(slots=True, frozen=True)
class SharePosition:
    """Where a share group is in one partition."""

    #: the share-partition start offset, or None before the first acknowledgement in Apache Kafka
    start: int | None
    #: the offsets from the start to the end that are neither acknowledged nor archived, or None if it is unknown
    lag: int | None
    #: the leader epoch under which the start was stored, or None if it is unknown
    leader_epoch: int | None = None


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


def positions(
    cluster: AskedCluster, group: str, places: Collection[PartitionName] | None = None
) -> Outcomes[SharePosition]:
    """Return where a group is in each partition, or the reason why that is unknown. A partition without a leader has an
    error, because its lag is unknown. `places`: the partitions to ask for, or None for all partitions that have a state
    for the group. Raises AskFailed."""
    from pykbroker_wire.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequestTopic,
        DescribeShareGroupOffsetsResponse,
    )

    if places is not None and not places:
        return {}
    wanted = None
    if places is not None:
        wanted = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in by_topic(dict.fromkeys(places)).items()
        ]

    def attempt() -> Outcomes[SharePosition]:
        node = cluster.coordinators([group])[group]
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted)
        answer = cluster.ask(
            DescribeShareGroupOffsetsRequest(groups=[asked]), DescribeShareGroupOffsetsResponse, node=node
        )
        (row,) = answer.groups
        check(row.error_code, row.error_message)
        return {
            (topic.topic_name, one.partition_index): failed(one.error_code, one.error_message)
            if one.error_code
            else SharePosition(
                one.start_offset if one.start_offset >= 0 else None,
                one.lag if one.lag >= 0 else None,
                one.leader_epoch if one.leader_epoch >= 0 else None,
            )
            for topic in row.topics
            for one in topic.partitions
        }

    return cluster.settled(attempt)


def active_state(cluster: AskedCluster, group: str) -> str | None:
    """Return the state of a group that has members, whose start offsets cannot be set. Return None for other groups,
    also for a group that does not exist yet, because its first start offset creates it. Raises AskFailed."""
    found = described(cluster, [group])[group]
    if isinstance(found, AskFailed):
        if found.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise found
        return None
    return None if found.state in ("Empty", "Dead") else found.state


def alter_starts(cluster: AskedCluster, group: str, starts: Mapping[PartitionName, int]) -> None:
    """Set the start offsets of a group that has no members (AlterShareGroupOffsets). Raises AskFailed for the first
    partition that is refused."""
    from pykbroker_wire.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
        AlterShareGroupOffsetsResponse,
    )

    if not starts:
        return
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=starts[name, number])
                for number in numbers
            ],
        )
        for name, numbers in by_topic(starts).items()
    ]

    def attempt() -> None:
        node = cluster.coordinators([group])[group]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        answer = cluster.ask(request, AlterShareGroupOffsetsResponse, node=node)
        check(answer.error_code, answer.error_message)
        for topic in answer.responses:
            for row in topic.partitions:
                check(row.error_code, row.error_message)

    cluster.settled(attempt)


def delete_offsets(
    cluster: AskedCluster, group: str, topics: Iterable[str]
) -> tuple[AskFailed | None, dict[str, AskFailed | None]]:
    """Make a group without members forget where it is in whole topics (DeleteShareGroupOffsets). Return the error of
    the group, and the error of each topic, which is None if there is none."""
    from pykbroker_wire.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
        DeleteShareGroupOffsetsResponse,
    )

    wanted = list(dict.fromkeys(topics))

    def attempt() -> DeleteShareGroupOffsetsResponse:
        node = cluster.coordinators([group])[group]
        asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in wanted]
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=asked)
        answer = cluster.ask(request, DeleteShareGroupOffsetsResponse, node=node)
        if answer.error_code and failed(answer.error_code).retriable:
            raise failed(answer.error_code, answer.error_message)
        return answer

    answer = cluster.settled(attempt)
    if answer.error_code:
        whole = failed(answer.error_code, answer.error_message)
        return whole, dict.fromkeys(wanted, whole)
    return None, {
        row.topic_name: failed(row.error_code, row.error_message) if row.error_code else None
        for row in answer.responses
    }
