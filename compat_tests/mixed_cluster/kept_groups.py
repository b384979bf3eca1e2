"""Share groups and streams groups, and the answers about their ids to members and administrators of other kinds.

pykbroker serves share groups, and keeps the records of streams groups. It refuses the ids of both with Apache Kafka's
errors, so both get the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from compat_tests.on_disk.estate import NO_COORDINATOR, Asker
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykbroker_wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from pykbroker_wire.primitives import TopLevel

MEMBER = "AAAAAAAAAAAAAAAAAAAAAg"
#: the key type of FindCoordinator
SHARE_STATE = 2
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


class Kept(NamedTuple):
    """The ids of four groups on one coordinator."""

    sharing: str
    streaming: str
    no_longer_sharing: str
    no_longer_streaming: str

    @property
    def with_members(self) -> tuple[str, str]:
        return self.sharing, self.streaming


def share_heartbeat(group: str, epoch: int, topic: str) -> ShareGroupHeartbeatRequest:
    topics = [topic] if epoch == 0 else None
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=topics
    )


def streams_heartbeat(group: str, epoch: int, topic: str) -> StreamsGroupHeartbeatRequest:
    if epoch != 0:
        return StreamsGroupHeartbeatRequest(group_id=group, member_id=MEMBER, member_epoch=epoch)
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=MEMBER,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
    )


def join(asker: Asker, groups: Kept, topic: str) -> None:
    """Let a member join each of the four groups; the members of two of them leave again."""
    asker.coordinated(0, groups)
    for index, make in enumerate((share_heartbeat, streams_heartbeat)):
        for group in (groups[index], groups[index + 2]):
            request = make(group, 0, topic)

            def joined(asked: TopLevel = request) -> bool:
                return bool(asker.ask(asked, asked.MIN_VERSION).error_code == 0)

            asker.until(joined, f"a member of {group}")
        last = make(groups[index + 2], -1, topic)
        left = asker.ask(last, last.MIN_VERSION)
        assert left.error_code == 0, left


def commit_of(group: str, topic: str, member: str, epoch: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def questions(group: str, topic: str) -> Iterator[tuple[str, TopLevel, int | None]]:
    """Yield requests of other kinds of members and of administrators for a group with a member. Every one is refused or
    only reads, so none of them changes anything."""
    join_request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    yield "JoinGroup", join_request, None
    yield "JoinGroup of old", join_request, 3
    yield (
        "JoinGroup of a member",
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="one",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        ),
        None,
    )
    yield "SyncGroup", SyncGroupRequest(group_id=group, generation_id=1, member_id="one"), None
    yield "Heartbeat", HeartbeatRequest(group_id=group, generation_id=1, member_id="one"), None
    yield "LeaveGroup", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="one")]), None
    for epoch in (0, 1, -1):
        yield (
            f"ConsumerGroupHeartbeat {epoch}",
            ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="one",
                member_epoch=epoch,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            ),
            None,
        )
    for member, epoch in (("", -1), ("one", 1), (MEMBER, 77)):
        for version in (8, 9):
            yield f"OffsetCommit {member!r} {epoch} {version}", commit_of(group, topic, member, epoch), version
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None, member_id=member or None, member_epoch=epoch)
        yield f"OffsetFetch {member!r} {epoch}", OffsetFetchRequest(groups=[wanted], require_stable=True), 9
    deleted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    yield "OffsetDelete", OffsetDeleteRequest(group_id=group, topics=[deleted]), None
    yield "DescribeGroups 5", DescribeGroupsRequest(groups=[group]), 5
    yield "DescribeGroups", DescribeGroupsRequest(groups=[group]), None
    yield "ConsumerGroupDescribe", ConsumerGroupDescribeRequest(group_ids=[group]), None


def answers(asker: Asker, group: str, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for what, request, version in questions(group, topic):
        found[what] = plain(asker.ask(request, version))
    return found


def plain(answer: Any) -> Any:
    """Return the codes and texts of an answer, without empty fields."""
    if isinstance(answer, TopLevel) or hasattr(type(answer), "__slots__"):
        fields = {name: plain(getattr(answer, name)) for name in type(answer).__slots__}
        return {name: value for name, value in fields.items() if value not in ("", None, [], {}, 0, -1)}
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    return answer


def listed(asker: Asker) -> dict[str, tuple[str, str, str]]:
    found = asker.ask(ListGroupsRequest()).groups
    return {each.group_id: (each.group_type, each.protocol_type, each.group_state) for each in found}


def delete(asker: Asker, group: str) -> int:
    code: int = asker.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code
    return code


def share_coordinator(asker: Asker) -> None:
    """Wait until the state of share groups has a coordinator, which creates its topic."""
    request = FindCoordinatorRequest(key_type=SHARE_STATE, coordinator_keys=["group:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    asker.until(lambda: asker.ask(request).coordinators[0].error_code == 0, "share groups have a coordinator")


def set_share_offset(asker: Asker, group: str, topic: str, offset: int) -> None:
    """Set the offset of a share group without members, as an administrator does."""
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted])

    def done() -> bool:
        answer = asker.ask(request)
        codes = [each.error_code for one in answer.responses for each in one.partitions]
        return not answer.error_code and codes == [0]

    asker.until(done, f"{group} begins at {offset}")


def settled(asker: Asker, groups: Kept, topic: str, epochs: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the epochs of the two members when they no longer change. `epochs`: their current ones; without them they
    join."""
    known = epochs or {}
    return {
        group: _last_epoch(asker, group, topic, heartbeat, known.get(group, 0))
        for group, heartbeat in zip(groups.with_members, (share_heartbeat, streams_heartbeat), strict=True)
    }


def _last_epoch(asker: Asker, group: str, topic: str, heartbeat: Any, known: int) -> int:
    """Return the epoch that occurs twice in a row, once the member has something to read. Each heartbeat sends the last
    one."""
    assigned = known > 0

    def same() -> int:
        nonlocal known, assigned
        request = heartbeat(group, known, topic)
        answer = asker.ask(request, request.MIN_VERSION)
        if answer.error_code in NO_COORDINATOR:
            return 0
        assert answer.error_code == 0, (group, known, answer)
        before, known = known, answer.member_epoch
        assigned = assigned or bool(_assigned(answer))
        return known if known == before and assigned else 0

    epoch: int = asker.until(same, f"the member of {group} is settled")
    return epoch


def _assigned(answer: ShareGroupHeartbeatResponse | StreamsGroupHeartbeatResponse) -> object:
    if isinstance(answer, StreamsGroupHeartbeatResponse):
        return answer.active_tasks
    return answer.assignment and answer.assignment.topic_partitions


def commit(asker: Asker, group: str, topic: str, epoch: int) -> None:
    """Commit as the member of a streams group."""
    answer = asker.ask(commit_of(group, topic, MEMBER, epoch), 9)
    assert answer.topics[0].partitions[0].error_code == 0, answer


def stored(asker: Asker, groups: Kept, topic: str) -> dict[str, Any]:
    """Return the state of the groups besides their members."""
    wanted = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=groups.no_longer_sharing, topics=[wanted])]
    )

    def described() -> Any:
        (found,) = asker.ask(request).groups
        if found.error_code or found.topics[0].partitions[0].error_code:
            return None
        return found

    (part,) = asker.until(described, "the state of the share group is loaded").topics[0].partitions
    return {"share": part.start_offset, "streams": asker.groups([groups.streaming])[groups.streaming]}
