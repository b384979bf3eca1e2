"""Members of the consumer protocol (KIP-848) as short calls: builders for the scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compat_tests.differential.session import Session
from pykbroker_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from pykbroker_wire.messages.delete_groups import DeleteGroupsRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP_RESOURCE = 32
LEAVE, LEAVE_STATIC = -1, -2
Owned = Sequence[tuple[bytes, Sequence[int]]]


def beat(
    group: str, member: str, epoch: int, owned: Owned | None = None, **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat; fields that are not named have not changed."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topic_partitions=None
        if owned is None
        else [RequestTopicPartitions(topic_id=topic, partitions=list(indexes)) for topic, indexes in owned],
        **fields,
    )


def join(group: str, member: str, topics: Sequence[str] | None, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """Return the first heartbeat of a member; with `topics` None it has only the given fields."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        **{
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": None if topics is None else list(topics),
            "topic_partitions": [],
            **fields,
        },
    )


def assignable(s: Session, what: str | None = None, partitions: int = 1) -> str:
    """Make a topic that the coordinators know, too."""
    topic = s.make_topic(what, partitions)
    s.know("uuid", s.topic_id(topic))
    until_assignable(s, topic)
    return topic


def until_assignable(s: Session, topic: str) -> None:
    probe = s.name("probe")

    def assigned() -> bool:
        answer = s.ask(join(probe, "probe", [topic]))
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    s.until(assigned, f"{topic} is assigned")
    s.ask(beat(probe, "probe", LEAVE))
    s.ask(DeleteGroupsRequest(groups_names=[probe]))


class Member:
    """A member that follows its assignment, one heartbeat at a time; each is compared."""

    def __init__(self, s: Session, group: str, name: str, version: int = 1, **fields: Any) -> None:
        self._s = s
        self._group = group
        self.name = name
        self._version = version
        self._fixed = fields
        self.epoch = 0
        self.owned: list[tuple[bytes, list[int]]] = []
        self.told: list[tuple[bytes, list[int]]] | None = None

    def join(self, topics: Sequence[str] | None, label: str = "", **fields: Any) -> Any:
        self.owned = []
        asked = join(self._group, self.name, topics, **self._fixed, **fields)
        return self._ask(f"{self.name} joins{label}", asked)

    def beat(self, label: str = "", **fields: Any) -> Any:
        """Send a heartbeat without changes."""
        return self._ask(f"{self.name} beats{label}", beat(self._group, self.name, self.epoch, **fields))

    def comply(self, label: str = "") -> Any:
        """Take the assigned partitions, and report them."""
        if self.told is not None:
            self.owned = self.told
        return self._ask(f"{self.name} complies{label}", beat(self._group, self.name, self.epoch, self.owned))

    def leave(self, epoch: int = LEAVE, label: str = "") -> Any:
        fields = {name: value for name, value in self._fixed.items() if name == "instance_id"}
        return self._ask(f"{self.name} leaves{label}", beat(self._group, self.name, epoch, **fields))

    def _ask(self, label: str, request: ConsumerGroupHeartbeatRequest) -> Any:
        answer = self._s.call(label, request, self._version)
        if answer is not None and answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.member_id:
                self.name = answer.member_id
            if answer.assignment is not None:
                self.told = [(each.topic_id, list(each.partitions)) for each in answer.assignment.topic_partitions]
        return answer


def settle(*members: Member, rounds: int = 6) -> None:
    """Send heartbeats in turn until no member gets anything new; each round is compared."""
    for number in range(1, rounds + 1):
        before = [(member.epoch, member.owned, member.told) for member in members]
        for member in members:
            member.comply(f", round {number}")
        if [(member.epoch, member.owned, member.told) for member in members] == before:
            return


def describe(s: Session, label: str, *groups: str, version: int = 1) -> Any:
    return s.call(label, ConsumerGroupDescribeRequest(group_ids=list(groups)), version)


def set_group_config(s: Session, group: str, **configs: str) -> None:
    """Prepare: set these configs of a group, and wait until they are published."""
    values = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=values)
    s.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    s.until_published()
