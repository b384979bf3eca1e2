"""A consumer group of 100 members on 1,000 partitions, as plain requests over one connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from compat_tests.node import Node
from compat_tests.topics import Topics
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.clients import wait_until
from testkit.nodes.wire import Wire

MEMBERS, TOPICS, PARTITIONS = 100, 10, 100
ROUNDS = 400

Places = frozenset[tuple[bytes, int]]


class Member:
    """A client's work between heartbeats: it takes assigned partitions at once, and gives up those that are not
    assigned."""

    def __init__(self, group: str, number: int) -> None:
        self.group = group
        self.member_id = uuid_to_str(number.to_bytes(16))
        self.epoch = 0
        self.owned: Places = frozenset()
        self.tells = True

    def heartbeat(self, topics: Sequence[str]) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, rebalance_timeout_ms=60_000
        )
        if self.epoch == 0:
            request.subscribed_topic_names = list(topics)
        if self.tells:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, partition in sorted(self.owned):
                by_topic.setdefault(topic_id, []).append(partition)
            request.topic_partitions = [
                RequestTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic.items()
            ]
        return request

    def hear(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        assignment = answer.assignment
        self.tells = assignment is not None
        if assignment is not None:
            self.owned = frozenset(
                (topic.topic_id, partition) for topic in assignment.topic_partitions for partition in topic.partitions
            )


class Group:
    """Heartbeats of all members, one after the other; the invariants hold after every single answer."""

    def __init__(self, wire: Wire, group: str, topics: Sequence[str]) -> None:
        self.wire, self.group, self.topics = wire, group, topics
        self.members: list[Member] = []
        self._names = iter(range(1, 10_000))

    def await_coordinator(self) -> None:
        self.wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]))
        nobody = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id="nobody", member_epoch=-1)
        wait_until(
            lambda: self.wire.call(nobody).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "the group has a coordinator"
        )

    def join(self, count: int) -> None:
        self.members += [Member(self.group, next(self._names)) for _ in range(count)]

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member.member_id, member_epoch=-1)
        assert self.wire.call(request).error_code == ErrorCode.NONE

    def round(self) -> None:
        for member in self.members:
            member.hear(self.wire.call(member.heartbeat(self.topics)))
        owned = [place for member in self.members for place in member.owned]
        assert len(owned) == len(set(owned)), "two members own the same partition"

    def settle(self) -> None:
        """Send rounds of heartbeats until all members are at the same epoch and all partitions are owned."""
        for _ in range(ROUNDS):
            self.round()
            if len({member.epoch for member in self.members}) == 1 and not any(m.tells for m in self.members):
                assert sum(len(member.owned) for member in self.members) == TOPICS * PARTITIONS
                sizes = {len(member.owned) for member in self.members}
                assert max(sizes) - min(sizes) <= 1
                return
        raise AssertionError(f"not settled after {ROUNDS} rounds")

    def owners(self) -> dict[tuple[bytes, int], str]:
        return {place: member.member_id for member in self.members for place in member.owned}


@pytest.fixture
def wire(quick: Node) -> Iterator[Wire]:
    with Wire(quick.bootstrap, timeout=60) as wire:
        yield wire


@pytest.mark.slow
def test_a_hundred_members_share_a_thousand_partitions(wire: Wire, quick_topics: Topics) -> None:
    topics = [quick_topics.create(partitions=PARTITIONS) for _ in range(TOPICS)]
    group = Group(wire, f"group-{topics[0]}", topics)
    group.await_coordinator()

    group.join(MEMBERS)
    group.settle()
    before = group.owners()

    gone = group.members[MEMBERS // 2]
    group.leave(gone)
    group.settle()
    after = group.owners()
    moved = {place for place, owner in after.items() if before[place] != owner}
    assert moved == gone.owned, "only what the leaver had has another owner"

    group.join(1)
    group.settle()
    moved = {place for place, owner in group.owners().items() if after[place] != owner}
    assert len(moved) == TOPICS * PARTITIONS // MEMBERS, "only what the newcomer has"
