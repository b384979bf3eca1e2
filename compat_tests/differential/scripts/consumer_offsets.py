"""Offsets of consumer groups: commits and fetches with member epochs, deletions; classic requests to such a group."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.scripts import requests
from compat_tests.differential.scripts.asking import (
    add_offsets,
    commit_offsets,
    producer,
    until_coordinator,
    until_ended,
)
from compat_tests.differential.scripts.consumers import LEAVE_STATIC, Member, assignable
from compat_tests.differential.session import Session
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

BUILT_FOR_MEMBERS = (9, 10)


def _delete(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in topics
        ],
    )


def offsets_of_consumers(s: Session) -> None:
    """OffsetCommit, OffsetFetch and TxnOffsetCommit of members of a consumer group: right and stale epochs."""
    s.until_coordinator()
    until_coordinator(s)
    topic = assignable(s, partitions=2)
    ids = {topic: s.topic_id(topic)}
    group = s.name("g")
    one, two = Member(s, group, "one"), Member(s, group, "two", instance_id="i")
    one.join([topic])
    two.join([topic])
    one.comply()
    one.comply()
    for version in range(2, 11):
        for what, fields in (
            ("right", {"member_id": "one", "generation_id_or_member_epoch": one.epoch}),
            ("stale", {"member_id": "one", "generation_id_or_member_epoch": one.epoch - 1}),
            ("older yet", {"member_id": "one", "generation_id_or_member_epoch": one.epoch - 2}),
            ("newer", {"member_id": "one", "generation_id_or_member_epoch": one.epoch + 1}),
            ("no epoch", {"member_id": "one", "generation_id_or_member_epoch": -1}),
            ("a ghost", {"member_id": "ghost", "generation_id_or_member_epoch": one.epoch}),
            ("a ghost without an epoch", {"member_id": "ghost", "generation_id_or_member_epoch": -1}),
            ("nobody", {}),
            ("nobody of an epoch", {"member_id": "", "generation_id_or_member_epoch": one.epoch}),
        ):
            s.call(f"commit, {what}", requests.commit(group, (topic, [(0, version, "")]), ids=ids, **fields), version)
        if version >= 7:
            for what, instance in (("its instance", "i"), ("another instance", "j")):
                fields = {
                    "member_id": "two",
                    "generation_id_or_member_epoch": two.epoch,
                    "group_instance_id": instance,
                }
                s.call(
                    f"commit, {what}", requests.commit(group, (topic, [(1, version, "")]), ids=ids, **fields), version
                )
    s.call("fetch without a member", requests.fetch(group, (topic, [0, 1]), version=8), 8)
    for version in BUILT_FOR_MEMBERS:
        for what, member, epoch in (
            ("right", "one", one.epoch),
            ("stale", "one", one.epoch - 1),
            ("newer", "one", one.epoch + 1),
            ("no epoch", "one", -1),
            ("a ghost", "ghost", one.epoch),
            ("nobody", None, -1),
            ("an empty name", "", one.epoch),  # null: Kafka answers -1
        ):
            asked = requests.fetch(group, (topic, [0]), version=version, ids=ids, member_id=member, member_epoch=epoch)
            s.call(f"fetch, {what}", asked, version)
            asked = requests.fetch(group, version=version, everything=True, member_id=member, member_epoch=epoch)
            s.call(f"fetch all, {what}", asked, version)
    p = producer(s)
    s.ask(add_offsets(p, group), 3)
    for version in (2, 3, 4, 5, 6):
        givens: tuple[tuple[str, dict[str, Any]], ...] = (
            ("right", {"member_id": "one", "generation_id_or_member_epoch": one.epoch}),
            ("stale", {"member_id": "one", "generation_id_or_member_epoch": one.epoch - 1}),
            ("newer", {"member_id": "one", "generation_id_or_member_epoch": one.epoch + 1}),
            ("a ghost", {"member_id": "ghost", "generation_id_or_member_epoch": one.epoch}),
            ("nobody", {}),
        )
        for what, named in givens:
            if version > 2 or not named:
                committed = commit_offsets(p, group, (topic, [(0, 50)]), ids=ids, **named)
                s.call(f"in a transaction, {what}", committed, version)
    until_ended(s, p, version=1)
    s.call("delete an offset of a topic they read", _delete(group, (topic, [0]), ("no-such-topic", [0])))
    s.call("delete the group", DeleteGroupsRequest(groups_names=[group]))
    one.leave()
    two.leave(LEAVE_STATIC)
    s.call("delete the group, one is away", DeleteGroupsRequest(groups_names=[group]))
    s.call("commit as nobody, one is away", requests.commit(group, (topic, [(0, 77, "")])), 8)
    two.leave()
    s.call("commit as nobody, empty", requests.commit(group, (topic, [(0, 78, "")])), 8)
    s.call(
        "commit as who has left",
        requests.commit(group, (topic, [(0, 79, "")]), member_id="one", generation_id_or_member_epoch=one.epoch),
        9,
    )
    s.call("delete an offset of an empty group", _delete(group, (topic, [1])))
    s.call("what is left", requests.fetch(group, version=8, everything=True), 8)
    s.call("delete the group at last", DeleteGroupsRequest(groups_names=[group]))
    s.call("what is left of it", requests.fetch(group, version=8, everything=True), 8)


def classic_requests_to_consumers(s: Session) -> None:
    """Heartbeat, SyncGroup, LeaveGroup and JoinGroup that name a member of a consumer group."""
    s.until_coordinator()
    topic = assignable(s)
    group = s.name("g")
    one = Member(s, group, "one", instance_id="i")
    one.join([topic])
    one.comply()
    s.each("heartbeat", lambda v: HeartbeatRequest(group_id=group, generation_id=one.epoch, member_id="one"), range(5))
    s.each("heartbeat of a ghost", lambda v: HeartbeatRequest(group_id=group, generation_id=1, member_id="ghost"))
    naming: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    s.each("sync", lambda v: requests.sync(group, one.epoch, "one", **(naming if v >= 5 else {})), range(6))
    s.each(
        "sync of a ghost", lambda v: requests.sync(group, one.epoch, "ghost", **(naming if v >= 5 else {})), range(6)
    )
    s.each("join without an embedded protocol", lambda v: requests.join(group, version=v, protocols=[("range", b"")]))
    s.each("join with a broken one", lambda v: requests.join(group, version=v, protocols=[("range", b"meta")]))
    s.each("join of another type", lambda v: requests.join(group, version=v, protocol_type="connect"))
    s.each("leave of a ghost", lambda v: LeaveGroupRequest(group_id=group, member_id="ghost"), range(3))
    for version in (3, 5):
        for what, identity in (
            ("a ghost", MemberIdentity(member_id="ghost")),
            ("another for the instance", MemberIdentity(member_id="ghost", group_instance_id="i")),
            ("an unknown instance", MemberIdentity(member_id="", group_instance_id="j")),
        ):
            s.call(f"leave, {what}", LeaveGroupRequest(group_id=group, members=[identity]), version)
    s.call("leave, itself", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="one")]))
    by_instance = MemberIdentity(member_id="", group_instance_id="i")
    s.call("leave, by its instance", LeaveGroupRequest(group_id=group, members=[by_instance]))
    one.beat(" after it")


SCRIPTS = (offsets_of_consumers, classic_requests_to_consumers)
