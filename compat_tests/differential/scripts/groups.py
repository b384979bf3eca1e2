"""Classic groups: coordinator, members, offsets, listing and describing."""

from __future__ import annotations

from typing import Any, Final

from compat_tests.differential.scripts import requests
from compat_tests.differential.session import Session
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest

NO_SUCH_ID = bytes(range(16))


def find_coordinator(s: Session) -> None:
    """FindCoordinator: types, empty and repeated keys."""
    s.until_coordinator()
    s.each(
        "one group",
        lambda v: (
            FindCoordinatorRequest(key="g", key_type=0)
            if v < 4
            else FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        ),
    )
    s.each(
        "empty group",
        lambda v: (
            FindCoordinatorRequest(key="", key_type=0)
            if v < 4
            else FindCoordinatorRequest(key_type=0, coordinator_keys=[""])
        ),
    )
    for kind in (5, -1, 2):
        s.each(
            f"type {kind}",
            lambda v, k=kind: (
                FindCoordinatorRequest(key="g", key_type=k)
                if v < 4
                else FindCoordinatorRequest(key_type=k, coordinator_keys=["g", "h"])
            ),  # type: ignore[misc]
            range(1, 7),
        )
    s.each("several", lambda v: FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "a", ""]), [4, 5, 6])
    s.each("none", lambda v: FindCoordinatorRequest(key_type=0, coordinator_keys=[]), [4, 5, 6])


#: The fields of SyncGroup that name the protocol, from version 5 on.
NAMING: Final[dict[str, Any]] = {"protocol_type": "consumer", "protocol_name": "range"}


def join_group(s: Session) -> None:
    """JoinGroup: refusals, and one member from joining to leaving, in every version."""
    s.until_coordinator()
    s.each("empty group", lambda v: requests.join("", version=v))
    for timeout in (1, 0, -1, 5999, 1_800_001, 2**31 - 1):
        s.each(
            f"session timeout {timeout}",
            lambda v, n=timeout: requests.join(s.name("timeout"), version=v, session_timeout_ms=n),  # type: ignore[misc]
        )
    s.each("unknown member", lambda v: requests.join(s.name("unknown"), "ghost", v))
    s.each("no protocols", lambda v: requests.join(s.name("no-protocols"), version=v, protocols=[]))
    s.each("no protocol type", lambda v: requests.join(s.name("no-type"), version=v, protocol_type=""))
    s.each(
        "no protocols, no type", lambda v: requests.join(s.name("neither"), version=v, protocol_type="", protocols=[])
    )
    for version in range(10):
        group = s.name(f"one-{version}")
        joined = requests.joined(s, "join", group, version)
        if joined is None or joined.error_code:
            continue
        member, generation = joined.member_id, joined.generation_id
        naming: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        at = min(version, 5)
        s.call(
            "heartbeat before sync",
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=member),
            min(version, 4),
        )
        s.call("sync", requests.sync(group, generation, member, {member: b"mine"}, **naming), at)
        s.call("sync again", requests.sync(group, generation, member, **naming), at)
        s.call(
            "heartbeat", HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), min(version, 4)
        )
        s.call("describe", DescribeGroupsRequest(groups=[group]), min(version, 6))
        for label, wrong in (
            ("old generation", (generation - 1, member)),
            ("next generation", (generation + 1, member)),
            ("ghost", (generation, "ghost")),
            ("nobody", (generation, "")),
        ):
            s.call(
                f"heartbeat, {label}",
                HeartbeatRequest(group_id=group, generation_id=wrong[0], member_id=wrong[1]),
                min(version, 4),
            )
            s.call(f"sync, {label}", requests.sync(group, wrong[0], wrong[1], **naming), at)
        s.call("another protocol type", requests.join(group, "", version, protocol_type="connect"), version)
        s.call("another protocol", requests.join(group, "", version, protocols=[("sticky", b"")]), version)
        s.call("join again unchanged", requests.join(group, member, version), version)
        if version < 3:
            s.call("leave", LeaveGroupRequest(group_id=group, member_id=member), version)
            s.call("leave again", LeaveGroupRequest(group_id=group, member_id=member), version)
        else:
            leaving = [
                MemberIdentity(member_id=member, reason="over" if version >= 5 else None),
                MemberIdentity(member_id="ghost"),
            ]
            s.call("leave", LeaveGroupRequest(group_id=group, members=leaving), at)
            s.call("leave again", LeaveGroupRequest(group_id=group, members=leaving[:1]), at)
        s.call(
            "heartbeat after leaving",
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=member),
            min(version, 4),
        )
        s.call("describe the empty group", DescribeGroupsRequest(groups=[group]), min(version, 6))


def unknown_groups(s: Session) -> None:
    """Heartbeat, SyncGroup and LeaveGroup of groups that do not exist."""
    s.until_coordinator()
    for group in (s.name("no-such"), ""):
        s.each(f"heartbeat {group!r}", lambda v, g=group: HeartbeatRequest(group_id=g, generation_id=1, member_id="m"))  # type: ignore[misc]
        s.each(
            f"heartbeat, instance {group!r}",
            lambda v, g=group: HeartbeatRequest(group_id=g, generation_id=1, member_id="m", group_instance_id="i"),  # type: ignore[misc]
            [3, 4],
        )
        s.each(
            f"sync {group!r}",
            lambda v, g=group: requests.sync(g, 1, "m", **(NAMING if v >= 5 else {})),  # type: ignore[misc]
        )
        s.each(f"sync without protocol {group!r}", lambda v, g=group: requests.sync(g, 1, "m"), [5])  # type: ignore[misc]
        s.each(
            f"leave {group!r}",
            lambda v, g=group: (  # type: ignore[misc]
                LeaveGroupRequest(group_id=g, member_id="m")
                if v < 3
                else LeaveGroupRequest(group_id=g, members=[MemberIdentity(member_id="m")])
            ),
        )
    s.each("leave, nobody", lambda v: LeaveGroupRequest(group_id=s.name("no-such")))
    s.each(
        "leave, instance",
        lambda v: LeaveGroupRequest(
            group_id=s.name("no-such"), members=[MemberIdentity(member_id="", group_instance_id="i")]
        ),
        [3, 4, 5],
    )


def two_members(s: Session) -> None:
    """A rebalance with two members: the leader, the answer to each, and one leaving."""
    s.until_coordinator()
    group = s.name("g")
    first = requests.joined(s, "first", group, protocols=[("sticky", b"1s"), ("range", b"1")])
    s.call(
        "first syncs",
        requests.sync(
            group,
            first.generation_id,
            first.member_id,
            {first.member_id: b"all"},
            protocol_type="consumer",
            protocol_name="sticky",
        ),
    )
    second_id = s.call(
        "second asks", requests.join(group, protocols=[("sticky", b"2s"), ("range", b"2")]), link="two"
    ).member_id
    second = requests.join(group, second_id, protocols=[("sticky", b"2s"), ("range", b"2")])
    s.send(second, link="two")
    heartbeat = HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id)
    s.until(lambda: s.ask(heartbeat).error_code == 27, "the rebalance has begun")
    s.call("first is told", heartbeat)
    s.call("describe while joining", DescribeGroupsRequest(groups=[group]))
    again = s.call(
        "first joins again", requests.join(group, first.member_id, protocols=[("sticky", b"1s"), ("range", b"1")])
    )
    both = s.receive("second joins", second, link="two")
    s.note("the same generation", again.generation_id == both.generation_id)
    s.note("the first leads", [again.leader == again.member_id, both.leader == again.member_id])
    naming = {"protocol_type": "consumer", "protocol_name": again.protocol_name}
    waiting = requests.sync(group, both.generation_id, second_id, **naming)
    s.send(waiting, link="two")
    s.call(
        "commit while syncing",
        requests.commit(group, generation_id_or_member_epoch=again.generation_id, member_id=again.member_id),
        8,
    )
    s.call(
        "leader syncs",
        requests.sync(group, again.generation_id, again.member_id, {again.member_id: b"A", second_id: b"B"}, **naming),
    )
    s.receive("second syncs", waiting, link="two")
    s.call(
        "sync with another protocol",
        requests.sync(
            group,
            again.generation_id,
            again.member_id,
            protocol_type="consumer",
            protocol_name="sticky" if again.protocol_name == "range" else "range",
        ),
    )
    s.call(
        "sync with another type",
        requests.sync(
            group, again.generation_id, again.member_id, protocol_type="x", protocol_name=again.protocol_name
        ),
    )
    s.call(
        "heartbeat of the second",
        HeartbeatRequest(group_id=group, generation_id=both.generation_id, member_id=second_id),
    )
    s.call("delete the group", DeleteGroupsRequest(groups_names=[group]))
    s.call("second leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=second_id)]))
    s.call(
        "first is told again",
        HeartbeatRequest(group_id=group, generation_id=again.generation_id, member_id=again.member_id),
    )
    last = s.call("first alone", requests.join(group, first.member_id, protocols=[("sticky", b"1s")]))
    s.call("first leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=last.member_id)]))


def static_members(s: Session) -> None:
    """Members with an instance id: replaced, fenced, leaving."""
    s.until_coordinator()
    for version in (5, 6, 7, 8, 9):
        group = s.name(f"g-{version}")
        naming: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
        one = s.call("join", requests.join(group, "", version, group_instance_id="i1"), version)
        if one is None or one.error_code:
            continue
        s.call(
            "sync",
            requests.sync(
                group, one.generation_id, one.member_id, {one.member_id: b"A"}, group_instance_id="i1", **naming
            ),
        )
        two = s.call("the same instance again", requests.join(group, "", version, group_instance_id="i1"), version)
        if two is None:
            continue
        old: dict[str, Any] = {
            "group_instance_id": "i1",
            "generation_id": two.generation_id,
            "member_id": one.member_id,
        }
        s.call(
            "sync of the new", requests.sync(group, two.generation_id, two.member_id, group_instance_id="i1", **naming)
        )
        s.call("heartbeat of the old", HeartbeatRequest(group_id=group, **old))
        s.call("sync of the old", SyncGroupRequest(group_id=group, **old, **naming))
        s.call("join of the old", requests.join(group, one.member_id, version, group_instance_id="i1"), version)
        s.call("join of a ghost", requests.join(group, "ghost", version, group_instance_id="i1"), version)
        s.call("unknown instance with an id", requests.join(group, "ghost", version, group_instance_id="i9"), version)
        s.call(
            "commit of the old",
            requests.commit(
                group,
                ("no-such-topic", [(0, 1, "")]),
                generation_id_or_member_epoch=two.generation_id,
                member_id=one.member_id,
                group_instance_id="i1",
            ),
            8,
        )
        s.call(
            "heartbeat of the new",
            HeartbeatRequest(
                group_id=group, group_instance_id="i1", generation_id=two.generation_id, member_id=two.member_id
            ),
        )
        s.call(
            "heartbeat of an unknown instance",
            HeartbeatRequest(
                group_id=group, group_instance_id="i9", generation_id=two.generation_id, member_id=two.member_id
            ),
        )
        s.call("describe", DescribeGroupsRequest(groups=[group]), 5)
        s.call(
            "leave as the old",
            LeaveGroupRequest(
                group_id=group, members=[MemberIdentity(member_id=one.member_id, group_instance_id="i1")]
            ),
        )
        s.call(
            "leave, unknown instance",
            LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="i9")]),
        )
        s.call("leave by instance", LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="i1")]))
    s.call("empty instance id", requests.join(s.name("empty-instance"), "", 9, group_instance_id=""), 9)


def commit_offsets(s: Session) -> None:
    """OffsetCommit and OffsetFetch without members: every version, unknown and bad topics, limits, nulls."""
    s.until_coordinator()
    one, two = s.make_topic("one", partitions=3), s.make_topic("two")
    ids = {one: s.topic_id(one), two: s.topic_id(two), "no-such-topic": NO_SUCH_ID}
    group = s.name("g")
    s.each("nothing committed", lambda v: requests.fetch(s.name("none"), (one, [0, 2]), version=v, ids=ids))
    s.each("nothing committed, all", lambda v: requests.fetch(s.name("none"), version=v, everything=True), range(2, 11))
    s.each(
        "commit",
        lambda v: requests.commit(group, (one, [(0, 10 + v, f"m{v}"), (1, 20, "")]), (two, [(0, 30, None)]), ids=ids),
    )
    s.each("fetch", lambda v: requests.fetch(group, (two, [0]), (one, [1, 0, 2]), version=v, ids=ids))
    s.each("fetch all", lambda v: requests.fetch(group, version=v, everything=True), range(2, 11))
    s.each("fetch nothing", lambda v: requests.fetch(group, version=v))
    s.each("fetch no partitions", lambda v: requests.fetch(group, (one, []), version=v, ids=ids))
    s.each(
        "fetch stable",
        lambda v: requests.fetch(group, (one, [0]), version=v, ids=ids, require_stable=True),
        range(7, 11),
    )
    s.each(
        "fetch unknown topic", lambda v: requests.fetch(group, ("no-such-topic", [0]), (one, [0]), version=v, ids=ids)
    )
    s.each("fetch unknown partition", lambda v: requests.fetch(group, (one, [9, -1]), version=v, ids=ids))
    s.each("fetch bad name", lambda v: requests.fetch(group, ("a b", [0]), version=v))
    s.each("fetch the same twice", lambda v: requests.fetch(group, (one, [0, 0]), (one, [0]), version=v, ids=ids))
    s.each("fetch of the empty group", lambda v: requests.fetch("", (one, [0]), version=v, ids=ids))
    s.each(
        "fetch as a member",
        lambda v: requests.fetch(group, (one, [0]), version=v, ids=ids, member_id="m", member_epoch=3),
        [9, 10],
    )
    s.each(
        "fetch as nobody of an epoch",
        lambda v: requests.fetch(group, (one, [0]), version=v, ids=ids, member_id=None, member_epoch=3),
        [9, 10],
    )
    groups = [
        OffsetFetchRequestGroup(
            group_id=g, topics=[OffsetFetchRequestTopics(name=one, topic_id=ids[one], partition_indexes=[0])]
        )
        for g in (group, s.name("none"), group)
    ]
    s.each("fetch of several groups", lambda v: OffsetFetchRequest(groups=groups), [8, 9, 10])
    s.each("fetch of no groups", lambda v: OffsetFetchRequest(groups=[]), [8, 9, 10])
    s.each(
        "unknown topic", lambda v: requests.commit(group, ("no-such-topic", [(0, 1, "")]), (one, [(0, 1, "")]), ids=ids)
    )
    s.each("unknown partition", lambda v: requests.commit(group, (one, [(9, 1, ""), (-1, 1, ""), (0, 1, "")]), ids=ids))
    s.each("bad name", lambda v: requests.commit(group, ("a b", [(0, 1, "")])))
    s.each("offset -5", lambda v: requests.commit(group, (one, [(0, -5, "")]), ids=ids))
    s.each("offset -1", lambda v: requests.commit(group, (one, [(0, -1, "")]), ids=ids))
    s.each("fetch them", lambda v: requests.fetch(group, (one, [0]), version=v, ids=ids))
    s.each("metadata of 4096", lambda v: requests.commit(group, (one, [(0, 1, "x" * 4096)]), ids=ids))
    s.each("metadata of 4097", lambda v: requests.commit(group, (one, [(0, 1, "x" * 4097), (1, 2, "")]), ids=ids))
    s.each("metadata of 4096 bytes in umlauts", lambda v: requests.commit(group, (one, [(0, 1, "ä" * 4096)]), ids=ids))
    s.each(
        "the same twice",
        lambda v: requests.commit(group, (one, [(0, 1, ""), (0, 2, "")]), (one, [(0, 3, "")]), ids=ids),
    )
    s.each("no topics", lambda v: requests.commit(group))
    s.each("no partitions", lambda v: requests.commit(group, (one, []), ids=ids))
    s.each("the empty group", lambda v: requests.commit("", (one, [(0, 1, "")]), ids=ids))
    s.each(
        "a generation of nothing",
        lambda v: requests.commit(
            s.name("none"), (one, [(0, 1, "")]), ids=ids, generation_id_or_member_epoch=7, member_id="ghost"
        ),
    )
    s.each(
        "a generation without a member",
        lambda v: requests.commit(group, (one, [(0, 1, "")]), ids=ids, generation_id_or_member_epoch=7),
    )
    s.each(
        "a member without a generation",
        lambda v: requests.commit(group, (one, [(0, 1, "")]), ids=ids, member_id="ghost"),
    )
    s.each(
        "an instance",
        lambda v: requests.commit(group, (one, [(0, 1, "")]), ids=ids, group_instance_id="i"),
        range(7, 11),
    )
    s.each("retention", lambda v: requests.commit(group, (one, [(0, 1, "")]), ids=ids, retention_time_ms=5), [2, 3, 4])


def commit_as_member(s: Session) -> None:
    """OffsetCommit and OffsetFetch of a group that has a member."""
    s.until_coordinator()
    topic = s.make_topic()
    ids = {topic: s.topic_id(topic)}
    group = s.name("g")
    joined = requests.joined(s, "join", group)
    member, generation = joined.member_id, joined.generation_id
    s.call(
        "commit before sync",
        requests.commit(
            group, (topic, [(0, 1, "")]), ids=ids, generation_id_or_member_epoch=generation, member_id=member
        ),
    )
    s.call(
        "sync",
        requests.sync(group, generation, member, {member: b"x"}, protocol_type="consumer", protocol_name="range"),
    )
    s.each(
        "commit",
        lambda v: requests.commit(
            group, (topic, [(0, v, "")]), ids=ids, generation_id_or_member_epoch=generation, member_id=member
        ),
    )
    s.each("fetch", lambda v: requests.fetch(group, (topic, [0]), version=v, ids=ids))
    s.each(
        "fetch as the member",
        lambda v: requests.fetch(group, (topic, [0]), version=v, ids=ids, member_id=member, member_epoch=generation),
        [9, 10],
    )
    s.each(
        "fetch as a ghost",
        lambda v: requests.fetch(group, (topic, [0]), version=v, ids=ids, member_id="ghost", member_epoch=generation),
        [9, 10],
    )
    s.each(
        "old generation",
        lambda v: requests.commit(
            group, (topic, [(0, v, "")]), ids=ids, generation_id_or_member_epoch=generation - 1, member_id=member
        ),
    )
    s.each(
        "next generation",
        lambda v: requests.commit(
            group, (topic, [(0, v, "")]), ids=ids, generation_id_or_member_epoch=generation + 1, member_id=member
        ),
    )
    s.each(
        "ghost",
        lambda v: requests.commit(
            group, (topic, [(0, v, "")]), ids=ids, generation_id_or_member_epoch=generation, member_id="ghost"
        ),
    )
    s.each("nobody", lambda v: requests.commit(group, (topic, [(0, v, "")]), ids=ids))
    s.each(
        "the member without a generation",
        lambda v: requests.commit(group, (topic, [(0, v, "")]), ids=ids, member_id=member),
    )
    s.call(
        "delete offsets of the topic",
        OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
    )
    s.call("leave", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]))
    s.each("nobody, after leaving", lambda v: requests.commit(group, (topic, [(0, v, "")]), ids=ids))


def delete_offsets(s: Session) -> None:
    """OffsetDelete and DeleteGroups."""
    s.until_coordinator()
    topic = s.make_topic(partitions=2)
    group = s.name("g")
    s.ask(requests.commit(group, (topic, [(0, 1, ""), (1, 2, "")])), 9)

    def ask(name: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=name,
            topics=[
                OffsetDeleteRequestTopic(
                    name=t, partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in p]
                )
                for t, p in topics
            ],
        )

    s.call("one", ask(group, (topic, [0])))
    s.call("again", ask(group, (topic, [0])))
    s.call("what is left", requests.fetch(group, version=8, everything=True), 8)
    s.call("unknown", ask(group, (topic, [9, -1]), ("no-such-topic", [0])))
    s.call("bad name", ask(group, ("a b", [0])))
    s.call("the same twice", ask(group, (topic, [1, 1])))
    s.call("no topics", ask(group))
    s.call("no partitions", ask(group, (topic, [])))
    s.call("unknown group", ask(s.name("no-such"), (topic, [0])))
    s.call("empty group", ask("", (topic, [0])))
    for version in range(3):
        name = s.name(f"delete-{version}")
        s.ask(requests.commit(name, (topic, [(0, 1, "")])), 9)
        s.call("delete", DeleteGroupsRequest(groups_names=[name]), version)
        s.call("delete again", DeleteGroupsRequest(groups_names=[name]), version)
        s.call("what it had", requests.fetch(name, version=8, everything=True), 8)
    s.each("unknown", lambda v: DeleteGroupsRequest(groups_names=[s.name("no-such")]))
    s.each("none", lambda v: DeleteGroupsRequest(groups_names=[]))
    s.each("empty name", lambda v: DeleteGroupsRequest(groups_names=[""]))
    s.each("the same twice", lambda v: DeleteGroupsRequest(groups_names=[s.name("no-such")] * 2))


def list_groups(s: Session) -> None:
    """ListGroups and DescribeGroups: filters, states, unknown groups."""
    s.until_coordinator()
    topic = s.make_topic()
    offsets_only, stable, empty = s.name("a-offsets"), s.name("b-stable"), s.name("c-empty")
    s.ask(requests.commit(offsets_only, (topic, [(0, 1, "")])), 9)
    for group in (stable, empty):
        joined = requests.joined(s, "join", group)
        s.call(
            "sync",
            requests.sync(
                group,
                joined.generation_id,
                joined.member_id,
                {joined.member_id: b"x"},
                protocol_type="consumer",
                protocol_name="range",
            ),
        )
    s.call("leave", LeaveGroupRequest(group_id=empty, members=[MemberIdentity(member_id=joined.member_id)]))

    def listed(label: str, version: int, states: list[str] | None = None, types: list[str] | None = None) -> None:
        s.call(label, ListGroupsRequest(states_filter=states or [], types_filter=types or []), version)
        s.only_mine()

    for version in range(6):
        listed("all", version)
    for states in (
        ["Stable"],
        ["stable"],
        ["Empty"],
        ["Empty", "Stable"],
        ["Dead"],
        ["NoSuchState"],
        [""],
        ["PreparingRebalance"],
    ):
        listed(f"states {states}", 4, states)
        listed(f"states {states}", 5, states)
    for types in (
        ["classic"],
        ["Classic"],
        ["consumer"],
        ["share"],
        ["streams"],
        ["no-such"],
        [""],
        ["consumer", "classic"],
    ):
        listed(f"types {types}", 5, None, types)
    listed("state and type", 5, ["Stable"], ["classic"])
    for name in (offsets_only, stable, empty, s.name("no-such"), ""):
        s.each(f"describe {name!r}", lambda v, n=name: DescribeGroupsRequest(groups=[n]))  # type: ignore[misc]
        s.each(
            f"describe {name!r} with operations",
            lambda v, n=name: DescribeGroupsRequest(groups=[n], include_authorized_operations=True),  # type: ignore[misc]
            range(3, 7),
        )
    s.each("describe none", lambda v: DescribeGroupsRequest(groups=[]))
    s.each("describe several", lambda v: DescribeGroupsRequest(groups=[empty, offsets_only, stable, s.name("no-such")]))
    s.each("describe the same twice", lambda v: DescribeGroupsRequest(groups=[empty, empty]))


SCRIPTS = (
    find_coordinator,
    join_group,
    unknown_groups,
    two_members,
    static_members,
    commit_offsets,
    commit_as_member,
    delete_offsets,
    list_groups,
)
