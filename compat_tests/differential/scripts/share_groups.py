"""Share groups (KIP-932): heartbeats, descriptions and offsets, step by step.

A group here begins with an alteration of its offsets, which initialises its share partitions. So the first member of
both brokers gets its assignment with its join. Without that, the answer of Apache Kafka 4.3.1 has no partitions, and
that of pykbroker waits for them (docs/decisions/0032-joins-of-share-groups.md): `first_share_member` compares only what
a member has in the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from compat_tests.differential.session import PATIENCE_S, NodeError, Session
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
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
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker_wire.messages.sync_group import SyncGroupRequest

LEAVE = -1
#: More letters than the id of a member may have.
LONG_MEMBER = "m" * 37
Offsets = Mapping[int, int]


def beat(
    group: str, member: str, epoch: int, topics: Sequence[str] | None = None, rack: str | None = None
) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=rack,
        subscribed_topic_names=None if topics is None else list(topics),
    )


def alter(group: str, topics: Mapping[str, Offsets]) -> AlterShareGroupOffsetsRequest:
    altered = []
    for name, offsets in topics.items():
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            for index, offset in offsets.items()
        ]
        altered.append(AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions))
    return AlterShareGroupOffsetsRequest(group_id=group, topics=altered)


def delete_offsets(group: str, *topics: str) -> DeleteShareGroupOffsetsRequest:
    named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=named)


def offsets_of(*groups: tuple[str, Mapping[str, Sequence[int]] | None]) -> DescribeShareGroupOffsetsRequest:
    asked = []
    for group, topics in groups:
        named = None
        if topics is not None:
            named = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))
                for name, partitions in topics.items()
            ]
        asked.append(DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named))
    return DescribeShareGroupOffsetsRequest(groups=asked)


def shared_topic(s: Session, what: str | None = None, partitions: int = 1) -> str:
    """Make a topic that both coordinators know: an alteration of its offsets succeeds."""
    s.until_coordinator()
    topic = s.make_topic(what, partitions)
    s.know("uuid", s.topic_id(topic))
    probe = s.name("probe")
    request = alter(probe, {topic: dict.fromkeys(range(partitions), 0)})

    def altered() -> bool:
        answer = s.ask(request)
        return not answer.error_code and not any(each.error_code for one in answer.responses for each in one.partitions)

    s.until(altered, f"offsets of {topic} are altered")
    s.ask(DeleteGroupsRequest(groups_names=[probe]))
    return topic


def begin(s: Session, group: str, topic: str, partitions: int = 1) -> None:
    """Let the group begin with a state for each partition of the topic."""
    answer = s.ask(alter(group, {topic: dict.fromkeys(range(partitions), 0)}))
    if answer.error_code or any(each.error_code for one in answer.responses for each in one.partitions):
        raise NodeError(f"group {group} did not begin: {answer}")


class ShareMember:
    """A member whose heartbeats are compared. `epoch` is that of the last answer."""

    def __init__(self, s: Session, group: str, name: str) -> None:
        self._s = s
        self._group = group
        self.name = name
        self.epoch = 0

    def join(self, topics: Sequence[str], label: str = "") -> Any:
        return self._ask(f"{self.name} joins{label}", beat(self._group, self.name, 0, topics))

    def beat(self, label: str = "", topics: Sequence[str] | None = None) -> Any:
        return self._ask(f"{self.name} beats{label}", beat(self._group, self.name, self.epoch, topics))

    def leave(self, label: str = "") -> Any:
        return self._ask(f"{self.name} leaves{label}", beat(self._group, self.name, LEAVE))

    def _ask(self, label: str, request: ShareGroupHeartbeatRequest) -> Any:
        answer = self._s.call(label, request)
        if answer is not None and answer.error_code == 0:
            self.epoch = answer.member_epoch
        return answer


def describe(s: Session, label: str, *groups: str) -> None:
    s.call(label, ShareGroupDescribeRequest(group_ids=list(groups)))


def bad_share_heartbeats(s: Session) -> None:
    """ShareGroupHeartbeat: everything that is refused, with its order."""
    topic = shared_topic(s)
    group, none = s.name("g"), s.name("none")
    s.call("empty member", beat(group, "", 0, [topic]))
    s.call("a member that is too long", beat(group, LONG_MEMBER, 0, [topic]))
    s.call("a member of blanks", beat(group, " ", 0, [topic]))
    s.call("empty group", beat("", "m", 0, [topic]))
    s.call("a group of blanks", beat(" ", "m", 0, [topic]))
    s.call("empty rack", beat(group, "m", 0, [topic], rack=""))
    s.call("no topics", beat(group, "m", 0))
    s.call("empty topics", beat(group, "m", 0, []))
    s.call("epoch -2", beat(group, "m", -2))
    s.call("everything wrong", beat("", LONG_MEMBER, -2, [], rack=""))
    s.call("unknown group", beat(none, "m", 1))
    s.call("unknown group, leaves", beat(none, "m", LEAVE))
    begin(s, group, topic)
    one = ShareMember(s, group, "one")
    one.join([topic])
    s.call("unknown member", beat(group, "ghost", 1))
    s.call("unknown member leaves", beat(group, "ghost", LEAVE))
    s.call("newer epoch", beat(group, "one", one.epoch + 1))
    s.call("much older epoch", beat(group, "one", 1))
    s.call("empty rack in a beat", beat(group, "one", one.epoch, rack=""))
    one.beat(" with empty topics", [])
    one.beat(" after that")
    describe(s, "described", group)
    one.leave()
    one.leave(" again")
    one.beat(" after it left")


def share_members(s: Session) -> None:
    """Members of a share group from joining to leaving: their partitions, their epochs, and a full group.

    All members have the one partition, because which members get which partitions depends on the order of hash maps.
    """
    topic = shared_topic(s)
    group = s.name("g")
    begin(s, group, topic)
    one, two, three = (ShareMember(s, group, name) for name in ("one", "two", "three"))
    one.join([topic])
    one.join([topic], " again")
    one.beat()
    one.beat(" with its topics", [topic])
    describe(s, "described with one", group)
    two.join([topic])
    one.beat(" after two joined")
    two.beat()
    describe(s, "described with two", group)
    three.join([topic, s.name("nowhere")])
    one.beat(" after three joined")
    s.call("a fourth member", beat(group, "four", 0, [topic]))
    s.call("a fourth member, whose epoch is wrong", beat(group, "four", 3))
    three.join([topic], " again, into the full group")
    two.leave()
    one.beat(" after two left")
    three.beat(" after two left")
    describe(s, "described with those that stay", group)
    s.call("listed by its kind", ListGroupsRequest(types_filter=["share"]))
    s.only_mine()
    s.call("listed by its state", ListGroupsRequest(states_filter=["Stable"], types_filter=["share"]))
    s.only_mine()
    for member in (one, three):
        member.leave()
    describe(s, "described without members", group)
    s.call("listed when it is empty", ListGroupsRequest(states_filter=["Empty"], types_filter=["share"]))
    s.only_mine()
    unknown = ShareMember(s, s.name("u"), "one")
    unknown.join([s.name("nowhere")])
    describe(s, "described, with an unknown topic", s.name("u"))
    unknown.leave()
    describe(s, "described: unknown, without a name, twice", s.name("none"), "", group, group)
    s.call(
        "described with operations", ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    )


def first_share_member(s: Session) -> None:
    """The first member of a group without states has all partitions in the end, and so has the group's description."""
    topic = shared_topic(s, partitions=3)
    group = s.name("g")
    epoch = 0
    assigned: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(assigned) < 3:
        answer = s.ask(beat(group, "one", epoch, [topic]), on="")
        if answer.error_code or time.monotonic() > deadline:
            raise NodeError(f"the first member of {group} has no partitions: {answer}")
        epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = [index for each in answer.assignment.topic_partitions for index in each.partitions]
        time.sleep(0.02)
    s.note("assigned", sorted(assigned))
    s.each("its offsets", lambda _: offsets_of((group, None)))
    s.ask(beat(group, "one", LEAVE), on="")


def share_offsets(s: Session) -> None:
    """The offsets of share groups: described, altered and deleted, with and without members."""
    topic, other = shared_topic(s, "a", 3), shared_topic(s, "b")
    group, none = s.name("g"), s.name("none")
    s.make_records(topic, [b"a", b"b", b"c", b"d", b"e"])
    s.each("unknown group", lambda _: offsets_of((none, {topic: [0]})))
    s.each("unknown group, all topics", lambda _: offsets_of((none, None)))
    s.each("unknown topic", lambda _: offsets_of((none, {topic: [0], s.name("nowhere"): [0, 1]})))
    s.each("no topics, no groups", lambda _: offsets_of((none, {})))
    s.call("altered without a group id", alter("", {topic: {0: 1}}))
    s.call("altered: nothing", alter(s.name("nothing"), {}))
    s.call("altered: unknown topic and partition", alter(s.name("nothing"), {s.name("nowhere"): {0: 1}, topic: {9: 1}}))
    s.call("altered: known and unknown", alter(group, {topic: {0: 3, 7: 1}, s.name("nowhere"): {0: 1}}))
    s.each("described", lambda _: offsets_of((group, {topic: [0, 1]}), (none, {topic: [0]})))
    s.each("described, all topics", lambda _: offsets_of((group, None)))
    s.call("altered beyond the end", alter(group, {topic: {0: 200, 1: 0, 2: 0}, other: {0: 0}}))
    s.each("described, beyond the end", lambda _: offsets_of((group, None)))
    s.call("altered to -1", alter(group, {topic: {0: -1}}))
    s.each("described, at -1", lambda _: offsets_of((group, {topic: [0]})))
    # The epochs are not compared: each alteration of a known group raises them in pykbroker, so that a leader that has
    # read the states of the one before is fenced.
    s.ask(beat(group, "one", 0, [topic]), on="")
    s.call("altered with a member", alter(group, {topic: {0: 1}}))
    s.call("deleted with a member", delete_offsets(group, topic))
    s.call("group deleted with a member", DeleteGroupsRequest(groups_names=[group]))
    s.ask(beat(group, "one", LEAVE), on="")
    s.call("deleted without a group id", delete_offsets("", topic))
    s.call("deleted of an unknown group", delete_offsets(none, topic))
    s.call("deleted: nothing", delete_offsets(group))
    s.call("deleted: known, unknown", delete_offsets(group, other, s.name("nowhere")))
    s.each("described after that", lambda _: offsets_of((group, None)))
    s.call("deleted once more", delete_offsets(group, other))
    found = s.ask(ShareGroupDescribeRequest(group_ids=[group])).groups[0]
    s.note("its state", [found.error_code, found.group_state, len(found.members)])
    s.call("group deleted", DeleteGroupsRequest(groups_names=[group]))
    s.call("unknown group deleted", DeleteGroupsRequest(groups_names=[none]))
    s.each("described after all", lambda _: offsets_of((group, None)))
    describe(s, "is there no group any longer", group)
    s.call("deleted of a group that is gone", delete_offsets(group, topic))


def other_protocols_on_share_groups(s: Session) -> None:
    """Requests of other protocols on a share group, with a member and without, and of share groups on others."""
    topic = shared_topic(s)
    topic_id = s.topic_id(topic)
    group = s.name("g")
    begin(s, group, topic)
    one = ShareMember(s, group, "one")
    one.join([topic])
    for state in ("with a member", "without members"):
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        for member in ("", "one"):
            s.call(
                f"JoinGroup {state} by {member!r}",
                JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=30_000,
                    rebalance_timeout_ms=30_000,
                    member_id=member,
                    protocol_type="consumer",
                    protocols=protocols,
                ),
            )
        s.call(f"SyncGroup {state}", SyncGroupRequest(group_id=group, generation_id=1, member_id="one"))
        s.call(f"Heartbeat {state}", HeartbeatRequest(group_id=group, generation_id=1, member_id="one"))
        s.call(f"LeaveGroup {state}", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="one")]))
        for epoch in (0, 1, LEAVE):
            s.call(
                f"ConsumerGroupHeartbeat {epoch} {state}",
                ConsumerGroupHeartbeatRequest(
                    group_id=group,
                    member_id="one",
                    member_epoch=epoch,
                    rebalance_timeout_ms=10_000,
                    subscribed_topic_names=[topic],
                    topic_partitions=[],
                ),
            )
        committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        for member, generation in (("", -1), ("one", 1)):
            topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[committed])]
            request = OffsetCommitRequest(
                group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
            )
            for version in (8, 9, 10):
                s.call(f"OffsetCommit {state} by {member!r}", request, version)
            wanted = OffsetFetchRequestGroup(group_id=group, member_id=member or None, member_epoch=generation)
            s.call(f"OffsetFetch {state} by {member!r}", OffsetFetchRequest(groups=[wanted]))
        deleted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        s.call(f"OffsetDelete {state}", OffsetDeleteRequest(group_id=group, topics=[deleted]))
        for version in (5, 6):
            s.call(f"DescribeGroups {state}", DescribeGroupsRequest(groups=[group]), version)
        s.call(f"ConsumerGroupDescribe {state}", ConsumerGroupDescribeRequest(group_ids=[group]))
        one.beat(f" {state}")
        if state == "with a member":
            one.leave()
    consumers = s.name("consumers")
    joined = ConsumerGroupHeartbeatRequest(
        group_id=consumers,
        member_id="one",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    s.call("a consumer joins its group", joined)
    for epoch in (0, 1, LEAVE):
        s.call(f"a share member beats {epoch} there", beat(consumers, "two", epoch, [topic]))
    describe(s, "described as a share group", consumers)
    s.call("altered", alter(consumers, {topic: {0: 1}}))
    s.call("deleted", delete_offsets(consumers, topic))
    s.each("offsets", lambda _: offsets_of((consumers, None), (consumers, {topic: [0]})))


SCRIPTS = (bad_share_heartbeats, share_members, first_share_member, share_offsets, other_protocols_on_share_groups)
