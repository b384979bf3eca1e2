"""Groups between the classic and the consumer protocol: upgrade, downgrade, both kinds of members side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.differential.scripts import requests
from compat_tests.differential.scripts.consumers import LEAVE_STATIC, Member, assignable, describe, settle
from compat_tests.differential.session import Session
from pykbroker_wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.list_groups import ListGroupsRequest
from pykbroker_wire.messages.sync_group import SyncGroupResponse
from pykbroker_wire.primitives import pack_int16

NAMING: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
Parts = Sequence[tuple[str, Sequence[int]]]


def subscription(topics: Sequence[str], owned: Parts = (), version: int = 3, generation: int = -1) -> bytes:
    """Return the subscription that a classic consumer sends in JoinGroup."""
    body = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[SubscriptionTopicPartition(topic=name, partitions=list(parts)) for name, parts in owned],
        generation_id=generation,
    )
    return pack_int16(version) + body.encode_bytes(version)


def assignment(parts: Parts, version: int = 3) -> bytes:
    """Return the assignment that a classic leader sends for a member in SyncGroup."""
    body = ConsumerProtocolAssignment(
        assigned_partitions=[AssignmentTopicPartition(topic=name, partitions=list(each)) for name, each in parts]
    )
    return pack_int16(version) + body.encode_bytes(version)


class Classic:
    """A member of the classic protocol; each request is compared."""

    def __init__(
        self, s: Session, group: str, label: str, topics: Sequence[str], member: str = "", **fields: Any
    ) -> None:
        self._s = s
        self._group = group
        self._label = label
        self._topics = topics
        self._fields = fields
        self.member = member
        self.generation = -1
        self.owned: Parts = ()

    def _protocols(self) -> list[tuple[str, bytes]]:
        return [("range", subscription(self._topics, self.owned, generation=self.generation))]

    def join(self, label: str = "", *, rebalance_timeout_ms: int = 10_000) -> Any:
        said = f"{self._label} joins{label}"
        fields = {"protocols": self._protocols(), "rebalance_timeout_ms": rebalance_timeout_ms, **self._fields}
        if self.member:
            request = requests.join(self._group, self.member, **fields)
            answer = self._s.call(said, request, link=self._label)
        else:
            answer = requests.joined(self._s, said, self._group, link=self._label, **fields)
        self._take(answer)
        return answer

    def send_join(self, *, rebalance_timeout_ms: int = 10_000) -> Any:
        """Begin to join; returns the request for `receive`."""
        fields = {"protocols": self._protocols(), "rebalance_timeout_ms": rebalance_timeout_ms, **self._fields}
        request = requests.join(self._group, self.member, **fields)
        self._s.send(request, link=self._label)
        return request

    def receive_join(self, request: Any, label: str = "") -> Any:
        answer = self._s.receive(f"{self._label} has joined{label}", request, link=self._label)
        self._take(answer)
        return answer

    def _take(self, answer: Any) -> None:
        if answer is not None and answer.error_code == 0:
            self.member, self.generation = answer.member_id, answer.generation_id

    def sync(self, assignments: dict[str, bytes] | None = None, label: str = "") -> Any:
        naming = {**NAMING, **{name: text for name, text in self._fields.items() if name == "group_instance_id"}}
        request = requests.sync(self._group, self.generation, self.member, assignments, **naming)
        answer = self._s.call(f"{self._label} syncs{label}", request, link=self._label)
        if isinstance(answer, SyncGroupResponse) and answer.error_code == 0:
            self.owned = self.parsed(bytes(answer.assignment))
            self._s.note(f"{self._label} is assigned{label}", [[name, list(parts)] for name, parts in self.owned])
        return answer

    @staticmethod
    def parsed(data: bytes) -> Parts:
        if len(data) < 2:
            return ()
        body, _ = ConsumerProtocolAssignment.decode(data, 2, int.from_bytes(data[:2], "big"))
        return [(each.topic, list(each.partitions)) for each in body.assigned_partitions]

    def beat(self, label: str = "") -> Any:
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member)
        return self._s.call(f"{self._label} beats{label}", request, link=self._label)

    def leave(self) -> Any:
        identity = MemberIdentity(member_id=self.member, group_instance_id=self._fields.get("group_instance_id"))
        return self._s.call(
            f"{self._label} leaves", LeaveGroupRequest(group_id=self._group, members=[identity]), link=self._label
        )


def _both(s: Session, label: str, group: str) -> None:
    describe(s, f"{label}, as a consumer group", group)
    s.call(f"{label}, as a classic group", DescribeGroupsRequest(groups=[group]))
    s.call(f"{label}, listed", ListGroupsRequest())
    s.only_mine()


def _settled(classic: Classic, *members: Member) -> None:
    """Let each member take further turns: the classic member joins again as long as it is asked to."""
    for number in range(1, 5):
        told = classic.beat(f", turn {number}")
        if told is not None and told.error_code == 27:
            classic.join(f", turn {number}")
            classic.sync(label=f", turn {number}")
        for member in members:
            member.comply(f", turn {number}")


def upgraded_group(s: Session) -> None:
    """A classic group that a member of the consumer protocol joins; the classic one leaves at last."""
    s.until_coordinator()
    topic = assignable(s, partitions=4)
    group = s.name("g")
    classic = Classic(s, group, "classic", [topic])
    classic.join()
    classic.sync({classic.member: assignment([(topic, [0, 1, 2, 3])])})
    s.call("commit", requests.commit(group, (topic, [(0, 5, "")])), 8)
    s.call(
        "commit as the member",
        requests.commit(
            group,
            (topic, [(0, 5, "")]),
            member_id=classic.member,
            generation_id_or_member_epoch=classic.generation,
        ),
        8,
    )
    _both(s, "classic", group)
    modern = Member(s, group, "modern")
    modern.join([topic])
    _both(s, "upgraded", group)
    classic.beat(" after the upgrade")
    s.call(
        "an old generation beats",
        HeartbeatRequest(group_id=group, generation_id=classic.generation + 7, member_id=classic.member),
    )
    s.call("sync before it joins", requests.sync(group, classic.generation, classic.member, **NAMING))
    modern.beat()
    requests.join(" again")
    classic.sync(label=" again")
    _settled(classic, modern)
    _both(s, "settled", group)
    classic.beat(" settled")
    s.call(
        "commit as the classic member",
        requests.commit(
            group,
            (topic, [(1, 6, "")]),
            member_id=classic.member,
            generation_id_or_member_epoch=classic.generation,
        ),
        8,
    )
    s.call(
        "commit of an old generation",
        requests.commit(
            group,
            (topic, [(1, 6, "")]),
            member_id=classic.member,
            generation_id_or_member_epoch=classic.generation - 1,
        ),
        8,
    )
    s.call("what is committed", requests.fetch(group, (topic, [0, 1]), version=8), 8)
    classic.leave()
    modern.comply()
    modern.comply()
    _both(s, "only the modern one", group)
    modern.leave()
    _both(s, "empty", group)


def joining_classic_members(s: Session) -> None:
    """A consumer group that members of the classic protocol join, with and without an instance id."""
    s.until_coordinator()
    topic = assignable(s, partitions=4)
    group = s.name("g")
    modern = Member(s, group, "modern")
    modern.join([topic])
    modern.comply()
    guest = Classic(s, group, "guest", [topic])
    guest.join()
    guest.leave()
    modern.comply()
    # A consumer group accepts ids that members choose, so the order of the ids is not random.
    classic = Classic(s, group, "classic", [topic], "classic-id")
    classic.join()
    _both(s, "joined", group)
    classic.beat(", not synced")
    classic.sync()
    modern.comply()
    modern.comply()
    _settled(classic, modern)
    _both(s, "settled", group)
    s.call("an unknown member joins", requests.join(group, "ghost", protocols=[("range", subscription([topic]))]))
    s.call("and leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="ghost")]))
    s.call("another protocol type", requests.join(group, "", protocol_type="connect", protocols=[("range", b"")]))
    s.call("another protocol", requests.join(group, "", 3, protocols=[("sticky", subscription([topic]))]), 3)
    s.call(
        "sync of another protocol",
        requests.sync(group, classic.generation, classic.member, protocol_type="consumer", protocol_name="x"),
    )
    s.call("sync of an old generation", requests.sync(group, classic.generation - 1, classic.member, **NAMING))
    other = Classic(s, group, "other", [topic], "other-id")
    other.join()
    other.sync()
    _settled(classic, modern)
    _settled(other, modern)
    _both(s, "three", group)
    modern.leave()
    _both(s, "downgraded", group)
    classic.beat(" after the downgrade")
    one, two = classic.send_join(), other.send_join()
    classic.receive_join(one, ", all classic")
    other.receive_join(two, ", all classic")
    _both(s, "all classic", group)
    classic.leave()
    other.leave()
    _both(s, "empty", group)


def static_classic_members(s: Session) -> None:
    """Static members of the classic protocol in a consumer group: away, back, replaced. Each reads a topic of its own:
    who has which id, which the coordinator gives, decides nothing."""
    s.until_coordinator()
    topic, other = assignable(s, "a", partitions=2), assignable(s, "b", partitions=1)
    group = s.name("g")
    modern = Member(s, group, "modern")
    modern.join([other])
    modern.comply()
    static = Classic(s, group, "static", [topic], group_instance_id="i")
    static.join()
    static.sync()
    _settled(static, modern)
    static.join(" again")
    static.sync(label=" again")
    s.call(
        "a member with its own id",
        requests.join(group, "thief-id", protocols=[("range", subscription([topic]))], group_instance_id="i"),
    )
    thief = Classic(s, group, "thief", [topic], group_instance_id="i")
    thief.join(" for the instance")
    static.beat(" after it")
    static.join(" after it")
    thief.sync()
    _settled(thief, modern)
    _both(s, "replaced", group)
    thief = Classic(s, group, "thief", [other], group_instance_id="i")
    thief.join(" with another subscription")
    modern.beat()
    modern.leave()
    _both(s, "downgraded", group)
    thief.beat(" after the downgrade")
    thief.join(" after the downgrade")
    thief.leave()


def downgraded_group(s: Session) -> None:
    """The last member of the consumer protocol comes back as one of the classic protocol."""
    s.until_coordinator()
    topic = assignable(s, partitions=3)
    group = s.name("g")
    modern = Member(s, group, "modern", instance_id="m")
    modern.join([topic])
    modern.comply()
    classic = Classic(s, group, "classic", [topic], "classic-id")
    classic.join()
    classic.sync()
    _settled(classic, modern)
    modern.leave(LEAVE_STATIC)
    _both(s, "the modern one is away", group)
    classic.leave()
    _both(s, "only who is away", group)
    replacement = Classic(s, group, "replacement", [topic], group_instance_id="m")
    replacement.join(" for the modern one")
    _both(s, "replaced by a classic one", group)
    replacement.beat()
    replacement.sync()
    replacement.join(" again")
    replacement.sync({replacement.member: assignment([(topic, [0, 1, 2])])})
    _both(s, "classic", group)
    replacement.leave()


def refused_migrations(s: Session) -> None:
    """Groups that cannot be changed: other protocol types, what cannot be read, groups with only offsets."""
    s.until_coordinator()
    topic = assignable(s, partitions=2)
    connect = s.name("connect")
    joined = requests.joined(s, "connect", connect, protocol_type="connect", protocols=[("eager", b"x")])
    s.call(
        "connect syncs",
        requests.sync(
            connect,
            joined.generation_id,
            joined.member_id,
            {joined.member_id: b"y"},
            protocol_type="connect",
            protocol_name="eager",
        ),
    )
    Member(s, connect, "modern").join([topic], " a group of Connect")
    broken = s.name("broken")
    joined = requests.joined(s, "a consumer that cannot be read", broken, protocols=[("range", b"meta")])
    Member(s, broken, "modern").join([topic], " before it has synced")
    s.call(
        "it syncs", requests.sync(broken, joined.generation_id, joined.member_id, {joined.member_id: b"x"}, **NAMING)
    )
    Member(s, broken, "modern").join([topic], " a group that cannot be read")
    offsets = s.name("offsets")
    s.call("only offsets", requests.commit(offsets, (topic, [(0, 5, "")])), 8)
    modern = Member(s, offsets, "modern")
    modern.join([topic], " a group with only offsets")
    _both(s, "taken over", offsets)
    s.call("its offsets", requests.fetch(offsets, (topic, [0]), version=8), 8)
    modern.leave()
    classic = Classic(s, offsets, "classic", [topic])
    requests.join(" an empty consumer group")
    classic.sync({classic.member: assignment([(topic, [0, 1])])})
    _both(s, "classic again", offsets)
    classic.leave()
    modern.join([topic], " an empty classic group")
    settle(modern)
    _both(s, "modern again", offsets)
    modern.leave()


SCRIPTS = (upgraded_group, joining_classic_members, static_classic_members, downgraded_group, refused_migrations)
