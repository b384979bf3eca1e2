"""Classic groups in the middle of a rebalance: late and silent members, leaders, protocols; requests in every state."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.scripts import requests
from compat_tests.differential.session import Session
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

NAMING = {"protocol_type": "consumer", "protocol_name": "range"}
REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25


class Member:
    """One member on a connection of its own; its requests are compared, except those by which it waits."""

    def __init__(self, s: Session, group: str, name: str, **fields: Any) -> None:
        self._s = s
        self._group = group
        self.name = name
        self._fields = fields
        self.id = ""
        self.generation = -1
        self._pending: Any = None

    @property
    def _instance(self) -> dict[str, Any]:
        return {name: value for name, value in self._fields.items() if name == "group_instance_id"}

    def begin(self) -> None:
        """Get an id, and send a join without waiting for its answer."""
        if not self.id and not self._instance:
            self.id = self._s.ask(requests.join(self._group, **self._fields)).member_id
            self._s.know_text(self.id)
        self._pending = requests.join(self._group, self.id, **self._fields)
        self._s.send(self._pending, link=self.name)

    def joined(self, label: str = "") -> Any:
        answer = self._s.receive(f"{self.name} has joined{label}", self._pending, link=self.name)
        if answer is not None and answer.error_code == 0:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self, label: str = "") -> Any:
        self.begin()
        return self.joined(label)

    def _sync_request(self, assignments: dict[str, bytes] | None, protocol: str) -> Any:
        naming: dict[str, Any] = {**NAMING, "protocol_name": protocol, **self._instance}
        return requests.sync(self._group, self.generation, self.id, assignments, **naming)

    def sync(self, assignments: dict[str, bytes] | None = None, label: str = "", protocol: str = "range") -> Any:
        request = self._sync_request(assignments, protocol)
        return self._s.call(f"{self.name} syncs{label}", request, link=self.name)

    def begin_sync(self) -> None:
        self._pending = self._sync_request(None, "range")
        self._s.send(self._pending, link=self.name)

    def synced(self, label: str = "") -> Any:
        return self._s.receive(f"{self.name} has synced{label}", self._pending, link=self.name)

    def heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.id, **self._instance
        )

    def beat(self, label: str = "") -> Any:
        # Not on its own connection, because that one may be waiting.
        return self._s.call(f"{self.name} beats{label}", self.heartbeat())

    def until_told(self, *codes: int) -> None:
        self._s.until(lambda: self._s.ask(self.heartbeat()).error_code in codes, f"{self.name} is told {codes}")


def _begin(s: Session, group: str, *members: Member) -> None:
    """Let all send a join, one after the other, because the first one becomes the leader."""
    before = len(s.ask(DescribeGroupsRequest(groups=[group])).groups[0].members)
    for number, member in enumerate(members, 1):
        member.begin()
        s.until(
            lambda count=before + number: len(s.ask(DescribeGroupsRequest(groups=[group])).groups[0].members) == count,  # type: ignore[misc]
            f"{member.name} has come",
        )


def _described(s: Session, label: str, group: str) -> None:
    s.call(f"described, {label}", DescribeGroupsRequest(groups=[group]))


def _leave(s: Session, label: str, group: str, *members: MemberIdentity) -> None:
    s.call(label, LeaveGroupRequest(group_id=group, members=list(members)))


def states_of_groups(s: Session) -> None:
    """Every request in every state: while members join, while they sync, stable, empty."""
    s.until_coordinator()
    group = s.name("g")
    one, two = Member(s, group, "one"), Member(s, group, "two")
    one.join()
    _described(s, "completing", group)
    one.beat(", completing")
    s.call("commit, completing", _commit_of(group, one), 8)
    _begin(s, group, two)
    # A member that joins while the leader has not synced: the group prepares again.
    one.until_told(REBALANCE_IN_PROGRESS)
    _described(s, "preparing", group)
    one.beat(", preparing")
    one.sync({one.id: b"late"}, ", preparing")
    s.call("commit, preparing", _commit_of(group, one), 8)
    one.join(", again")
    two.joined()
    _described(s, "completing again", group)
    two.begin_sync()
    two.beat(", completing")
    one.sync({one.id: b"1", two.id: b"2"})
    two.synced()
    _described(s, "stable", group)
    two.beat(", stable")
    two.sync(label=", stable")
    # Members of the next generation that join after the first one has left.
    _leave(s, "the leader leaves", group, MemberIdentity(member_id=one.id))
    two.beat(", told of it")
    two.join(", alone")
    _described(s, "the new leader", group)
    two.sync({two.id: b"all"})
    _leave(s, "the last one leaves", group, MemberIdentity(member_id=two.id))
    _described(s, "empty", group)
    two.beat(", gone")
    two.sync(label=", gone")


def _commit_of(group: str, member: Member) -> Any:
    return requests.commit(
        group,
        ("no-such-topic", [(0, 1, "")]),
        member_id=member.id,
        generation_id_or_member_epoch=member.generation,
    )


def protocols_of_groups(s: Session) -> None:
    """The choice of a protocol: one that all members support, the one that most prefer; a member that supports none."""
    s.until_coordinator()
    for number, (first, second, third) in enumerate(
        (
            (["range", "sticky"], ["sticky", "range"], ["sticky", "range"]),
            (["range", "sticky", "a"], ["a", "sticky"], ["sticky", "a"]),
            (["b", "a"], ["a", "b"], ["b", "c", "a"]),
        )
    ):
        group = s.name(f"g-{number}")
        members = [
            Member(s, group, name, protocols=[(protocol, f"{name[1]}{protocol[0]}".encode()) for protocol in protocols])
            for name, protocols in (("one", first), ("two", second), ("three", third))
        ]
        members[0].join()
        _begin(s, group, *members[1:])
        found = members[0].join(", with all")
        for member in members[1:]:
            answer = member.joined()
            s.note("the same protocol", answer is not None and answer.protocol_name == found.protocol_name)
        s.call("none that all know", requests.join(group, protocols=[("other", b"")]))
        _leave(s, "all leave", group, *(MemberIdentity(member_id=member.id) for member in members))


def leaving_members(s: Session) -> None:
    """LeaveGroup of many: of present members, static and not, of unknown ones, of the same one twice."""
    s.until_coordinator()
    for version in (3, 4, 5):
        group = s.name(f"g-{version}")
        one, two = Member(s, group, "one"), Member(s, group, "two", group_instance_id="i")
        _begin(s, group, one, two)
        one.joined()
        two.joined()

        def leave(label: str, *members: MemberIdentity, at: int = version, name: str = group) -> None:
            s.call(label, LeaveGroupRequest(group_id=name, members=list(members)), at)

        leave("nobody")
        leave("no name", MemberIdentity(member_id=""))
        leave("strangers", MemberIdentity(member_id="x"), MemberIdentity(member_id="", group_instance_id="j"))
        leave("an instance of another", MemberIdentity(member_id=one.id, group_instance_id="i"))
        leave(
            "some",
            MemberIdentity(member_id="x"),
            MemberIdentity(member_id=one.id),
            MemberIdentity(member_id=one.id),
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="i"),
        )
        _described(s, "empty", group)


def late_members(s: Session) -> None:
    """Timeouts: a member that is silent, one that does not join again, a leader that does not sync."""
    s.until_coordinator()
    group = s.name("silent")
    one = Member(s, group, "one", session_timeout_ms=30_000)
    silent = Member(s, group, "silent", session_timeout_ms=2_500)
    _begin(s, group, one, silent)
    one.joined()
    silent.joined()
    leader, follower = one, silent
    leader.sync({one.id: b"1", silent.id: b"2"})
    follower.sync()
    _described(s, "both", group)
    one.until_told(REBALANCE_IN_PROGRESS)
    _described(s, "the silent one is gone", group)
    silent.beat(", too late")
    one.join(", alone")
    _described(s, "alone", group)
    one.sync({one.id: b"all"})
    # A member that sends heartbeats, and does not join again.
    group = s.name("stubborn")
    stubborn = Member(s, group, "stubborn", rebalance_timeout_ms=1_500)
    stubborn.join()
    stubborn.sync({stubborn.id: b"all"})
    other = Member(s, group, "other", rebalance_timeout_ms=1_500)
    _begin(s, group, other)
    stubborn.until_told(REBALANCE_IN_PROGRESS)
    stubborn.beat(", goes on")
    stubborn.until_told(UNKNOWN_MEMBER_ID)
    other.joined(", without the stubborn one")
    _described(s, "without the stubborn one", group)
    # The leader does not sync, and the members that wait for it are asked to join again.
    other.until_told(UNKNOWN_MEMBER_ID)
    _described(s, "nobody has synced", group)
    # A static member is absent for less than its session.
    group = s.name("static")
    static = Member(s, group, "static", group_instance_id="i", session_timeout_ms=2_500)
    static.join()
    static.sync({static.id: b"all"})
    back = Member(s, group, "back", group_instance_id="i", session_timeout_ms=2_500)
    back.join()
    back.sync()
    _described(s, "back", group)
    s.until(
        lambda: not s.ask(DescribeGroupsRequest(groups=[group])).groups[0].members, "the static member is gone, too"
    )
    _described(s, "gone", group)
    back.beat(", too late")


def full_classic_group(s: Session) -> None:
    """group.max.size: members that come too late."""
    s.until_coordinator()
    group = s.name("g")
    members = [Member(s, group, name) for name in ("one", "two")]
    _begin(s, group, *members)
    for member in members:
        member.joined()
    s.each("a third one", lambda v: requests.join(group, version=v))
    s.call("a static one", requests.join(group, group_instance_id="i"))
    _leave(s, "one leaves", group, MemberIdentity(member_id=members[0].id))
    s.call("the third one then", requests.join(group))


SCRIPTS = (states_of_groups, protocols_of_groups, leaving_members, late_members)
