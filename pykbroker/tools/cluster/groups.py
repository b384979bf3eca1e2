"""Consumer groups of both protocols: lists of them, their members, and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import unpack_from
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, check, failed
from pykbroker.tools.cluster.reassignments import by_topic
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker_wire.messages.offset_fetch import OffsetFetchResponseGroup

#: OffsetCommit and OffsetFetch are used up to this version, because later versions have the ids of topics, not names.
_NEWEST_OFFSETS = 9


@dataclass(slots=True, frozen=True)
class GroupListing:
    """A group of consumers, of Connect's workers, of a share or of streams."""

    id: str
    #: "Classic", "Consumer", "Share" or "Streams"
    type: str
    #: the protocol type of its members; empty if it has only offsets
    protocol: str
    state: str


@dataclass(slots=True, frozen=True)
class GroupMember:
    id: str
    client_id: str
    host: str
    #: None if it is not a static member
    instance_id: str | None = None
    assignment: tuple[PartitionName, ...] = ()
    #: set only in groups of the consumer protocol
    target: tuple[PartitionName, ...] | None = None
    epoch: int | None = None


@dataclass(slots=True, frozen=True)
class GroupDescription:
    id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(slots=True, frozen=True)
class KnownOffset:
    offset: int
    leader_epoch: int | None = None
    metadata: str = field(default="")


def listed(cluster: AskedCluster, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """Return the consumer groups of every broker. `states` and `types` restrict the result, in the protocol's words."""
    return [
        group
        for group in of_all_types(cluster, states=states, types=types)
        # Groups of other protocols (Connect's workers) are not consumer groups.
        if group.protocol in ("", "consumer") and group.type in ("Classic", "Consumer")
    ]


def of_all_types(cluster: AskedCluster, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """Return the groups of every broker. `states` and `types` restrict the result, in the protocol's words."""
    from pykbroker_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

    def attempt() -> list[GroupListing]:
        found = []
        for node in cluster.nodes():
            newest = cluster.versions(node.id).get(ApiKey.LIST_GROUPS, (0, 0))[1]
            request = ListGroupsRequest(
                states_filter=list(states) if newest >= 4 else [], types_filter=list(types) if newest >= 5 else []
            )
            answer = cluster.ask(request, ListGroupsResponse, node=node.id)
            check(answer.error_code)
            found += [
                GroupListing(row.group_id, row.group_type.capitalize() or "Classic", row.protocol_type, row.group_state)
                for row in answer.groups
            ]
        return found

    return cluster.settled(attempt)


def described(cluster: AskedCluster, ids: Iterable[str]) -> dict[str, GroupDescription | AskFailed]:
    """Return each group, or the reason why it cannot be described."""
    wanted = list(dict.fromkeys(ids))
    # One request finds the coordinators of all.
    cluster.coordinators(wanted)
    return {group: _described(cluster, group) for group in wanted}


def active_states(cluster: AskedCluster, ids: Iterable[str]) -> dict[str, str | None]:
    """Return the state of each group that has members, whose offsets cannot be set. It is None for other groups, also
    for a group that does not exist yet, because its first offset creates it. Raises AskFailed."""
    states: dict[str, str | None] = {}
    for group, found in described(cluster, ids).items():
        if isinstance(found, AskFailed):
            if found.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise found
            states[group] = None
        else:
            states[group] = None if found.state in ("Empty", "Dead") else found.state
    return states


def _described(cluster: AskedCluster, group: str) -> GroupDescription | AskFailed:
    def attempt() -> GroupDescription:
        node = _coordinator(cluster, group)
        if ApiKey.CONSUMER_GROUP_DESCRIBE in cluster.versions(node):
            try:
                return _described_consumer(cluster, group, node)
            except AskFailed as error:
                if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    raise
        return _described_classic(cluster, group, node)

    try:
        return cluster.settled(attempt)
    except AskFailed as error:
        return error


def _described_consumer(cluster: AskedCluster, group: str, node: int) -> GroupDescription:
    from pykbroker_wire.messages.consumer_group_describe import (
        Assignment,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    def partitions(assignment: Assignment) -> tuple[PartitionName, ...]:
        return tuple((one.topic_name, number) for one in assignment.topic_partitions for number in one.partitions)

    request = ConsumerGroupDescribeRequest(group_ids=[group])
    (row,) = cluster.ask(request, ConsumerGroupDescribeResponse, node=node).groups
    check(row.error_code, row.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            partitions(member.assignment),
            partitions(member.target_assignment),
            member.member_epoch,
        )
        for member in row.members
    )
    return GroupDescription(
        group, "Consumer", row.group_state, row.assignor_name, node, members, row.group_epoch, row.assignment_epoch
    )


def _described_classic(cluster: AskedCluster, group: str, node: int) -> GroupDescription:
    from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    request = DescribeGroupsRequest(groups=[group])
    (row,) = cluster.ask(request, DescribeGroupsResponse, node=node).groups
    if row.error_code:
        raise failed(row.error_code, row.error_message)
    if row.group_state == "Dead":
        raise failed(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.group_instance_id,
            assigned(member.member_assignment) if row.protocol_type == "consumer" else (),
        )
        for member in row.members
    )
    return GroupDescription(group, "Classic", row.group_state, row.protocol_data, node, members)


def assigned(data: bytes) -> tuple[PartitionName, ...]:
    """Return the partitions of a classic member, from the assignment that its group's leader encoded."""
    from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolAssignment

    if len(data) < 2:
        return ()
    (version,) = unpack_from(">h", data)
    read, _ = ConsumerProtocolAssignment.decode(memoryview(data), 2, max(0, min(version, 3)))
    return tuple((one.topic, number) for one in read.assigned_partitions for number in one.partitions)


# -- offsets ----------------------------------------------------------------------------------------------------------


def committed(cluster: AskedCluster, group: str) -> dict[PartitionName, KnownOffset]:
    """Return every offset that a group has committed."""
    from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

    def attempt() -> dict[PartitionName, KnownOffset]:
        node = _coordinator(cluster, group)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = cluster.ask(request, OffsetFetchResponse, node=node, least=8, most=_NEWEST_OFFSETS)
        (row,) = answer.groups
        return _offsets_of(row)

    return cluster.settled(attempt)


def committed_by_group(
    cluster: AskedCluster, ids: Iterable[str]
) -> dict[str, dict[PartitionName, KnownOffset] | AskFailed]:
    """Return every offset that each group has committed, or the reason why it is unknown, with one request for each
    coordinator."""
    from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

    def attempt() -> dict[str, dict[PartitionName, KnownOffset] | AskFailed]:
        found: dict[str, dict[PartitionName, KnownOffset] | AskFailed] = {}
        for node, names in sorted(_by_coordinator(cluster, ids).items()):
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one, topics=None) for one in names])
            answer = cluster.ask(request, OffsetFetchResponse, node=node, least=8, most=_NEWEST_OFFSETS)
            for row in answer.groups:
                try:
                    found[row.group_id] = _offsets_of(row)
                except AskFailed as error:
                    if error.retriable:
                        raise
                    found[row.group_id] = error
        return found

    return cluster.settled(attempt)


def _coordinator(cluster: AskedCluster, group: str) -> int:
    return cluster.coordinators([group])[group]


def _by_coordinator(cluster: AskedCluster, ids: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for group, node in cluster.coordinators(ids).items():
        found.setdefault(node, []).append(group)
    return found


def _offsets_of(row: OffsetFetchResponseGroup) -> dict[PartitionName, KnownOffset]:
    """Return the offsets of a group in an answer. Raises AskFailed."""
    check(row.error_code)
    found = {}
    for topic in row.topics:
        for one in topic.partitions:
            check(one.error_code)
            if one.committed_offset >= 0:
                epoch = one.committed_leader_epoch
                found[topic.name, one.partition_index] = KnownOffset(
                    one.committed_offset, epoch if epoch >= 0 else None, one.metadata or ""
                )
    return found


def commit(cluster: AskedCluster, group: str, offsets: Mapping[PartitionName, KnownOffset]) -> None:
    """Commit offsets of a group that has no members. Raises AskFailed for the first partition that is refused."""
    from pykbroker_wire.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
    )

    if not offsets:
        return
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[name, number].offset,
                    committed_leader_epoch=_epoch(offsets[name, number]),
                    committed_metadata=offsets[name, number].metadata,
                )
                for number in numbers
            ],
        )
        for name, numbers in by_topic(offsets).items()
    ]

    def attempt() -> None:
        request = OffsetCommitRequest(group_id=group, topics=topics)
        answer = cluster.ask(request, OffsetCommitResponse, node=_coordinator(cluster, group), most=_NEWEST_OFFSETS)
        for topic in answer.topics:
            for row in topic.partitions:
                check(row.error_code)

    cluster.settled(attempt)


def _epoch(offset: KnownOffset) -> int:
    return -1 if offset.leader_epoch is None else offset.leader_epoch


def delete_offsets(
    cluster: AskedCluster, group: str, partitions: Iterable[PartitionName]
) -> tuple[AskFailed | None, dict[PartitionName, AskFailed | None]]:
    """Delete committed offsets; returns the error of the group, and of each partition (None if there is none)."""
    from pykbroker_wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    wanted = list(partitions)
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for name, numbers in by_topic(wanted).items()
    ]

    def attempt() -> OffsetDeleteResponse:
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        answer = cluster.ask(request, OffsetDeleteResponse, node=_coordinator(cluster, group))
        if answer.error_code and failed(answer.error_code).retriable:
            raise failed(answer.error_code)
        return answer

    answer = cluster.settled(attempt)
    if answer.error_code:
        whole = failed(answer.error_code)
        return whole, dict.fromkeys(wanted, whole)
    return None, {
        (topic.name, row.partition_index): failed(row.error_code) if row.error_code else None
        for topic in answer.topics
        for row in topic.partitions
    }


def remove_members(
    cluster: AskedCluster, group: str, members: Sequence[GroupMember], reason: str
) -> dict[str, AskFailed | None]:
    """Make members leave a group; returns the error of each by its id, or None if it has left. Raises AskFailed."""
    from pykbroker_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

    request = LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=one.id, group_instance_id=one.instance_id, reason=reason) for one in members],
    )

    def attempt() -> dict[str, AskFailed | None]:
        answer = cluster.ask(request, LeaveGroupResponse, node=_coordinator(cluster, group), least=3)
        check(answer.error_code)
        return {
            one.id: failed(row.error_code) if row.error_code else None
            for one, row in zip(members, answer.members, strict=True)
        }

    return cluster.settled(attempt)


def delete(cluster: AskedCluster, ids: Iterable[str]) -> dict[str, AskFailed | None]:
    """Delete groups; returns the error of each, or None if it was deleted."""
    from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    found: dict[str, AskFailed | None] = {}
    for group in cluster.coordinators(ids):

        def attempt(group: str = group) -> None:
            request = DeleteGroupsRequest(groups_names=[group])
            answer = cluster.ask(request, DeleteGroupsResponse, node=_coordinator(cluster, group))
            for row in answer.results:
                check(row.error_code)

        try:
            cluster.settled(attempt)
            found[group] = None
        except AskFailed as error:
            found[group] = error
    return found
