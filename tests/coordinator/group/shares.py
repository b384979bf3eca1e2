"""A shard that serves share groups (KIP-932), with share coordinators that answer when a test lets them.

A topic's id is its name, padded, so that answers are readable. Errors keep their message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykbroker.coordinator.group.configs import ShareGroupConfig
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_operations import (
    describe_share_groups,
    initialized_partitions,
    share_heartbeat,
    share_topics_deleted,
    states_answered,
)
from pykbroker.coordinator.group.share.share_states import ShareStart, TopicIdPartition
from pykbroker.coordinator.group.share.share_step import ShareClient, SharesToInitialize
from pykbroker.coordinator.result import Token
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_group_describe import DescribedGroup
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.coordinator.group.consumers import ConsumerBench, Partitions, topic_id, topic_name
from tests.coordinator.group.harness import Refused

INTERVAL_MS = 1_000


def share_settings(interval_ms: int = INTERVAL_MS, session_ms: int = 45_000, **others: Any) -> GroupSettings:
    config = ShareGroupConfig(assignment_interval_ms=interval_ms, session_timeout_ms=session_ms)
    return GroupSettings(share_config=lambda _group_id: config, **others)


class ShareBench(ConsumerBench):
    """A bench with share groups. Share coordinators answer in `initialize`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: the share partitions that share coordinators have been asked to initialise, with their start offsets
        self.asked: list[tuple[str, int, int]] = []

    def delete(self, *topics: str) -> None:
        super().delete(*topics)
        gone = [topic_id(name) for name in topics]
        self.carry_out(share_topics_deleted(self.shard, gone, self.now_ms), None)

    # -- members ------------------------------------------------------------------------------------------------------

    def send(
        self,
        member: str = "m1",
        epoch: int = 0,
        *,
        group: str = "g",
        topics: Iterable[str] | None = None,
        rack: str | None = None,
        client: str = "client",
    ) -> Token:
        """Send a heartbeat, which may have to wait for its answer."""
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        who = ShareClient(client, "/10.0.0.1")
        return self.run(lambda shard, token, now_ms: share_heartbeat(shard, request, who, token, now_ms))

    def share_beat(self, member: str = "m1", epoch: int = 0, **options: Any) -> ShareGroupHeartbeatResponse | Refused:
        """Send a heartbeat that is answered at once."""
        answer: ShareGroupHeartbeatResponse | Refused = self.answers.pop(self.send(member, epoch, **options))
        return answer

    def come(self, member: str = "m1", *topics: str, group: str = "g") -> tuple[int, Partitions]:
        """Let a member join, and share coordinators do their part. Return its epoch and its partitions."""
        token = self.send(member, topics=topics or ("t",), group=group)
        self.initialize()
        if token not in self.answers:
            self.advance(INTERVAL_MS)
        return told(self.answers.pop(token))

    # -- share coordinators -------------------------------------------------------------------------------------------

    def take_asked(self) -> list[ShareStart]:
        """Return what share coordinators are asked to initialise."""
        effects, self.effects = self.effects, []
        starts: list[ShareStart] = []
        for effect in effects:
            assert isinstance(effect, SharesToInitialize)
            starts += effect.starts
        self.asked += [(topic_name(start.topic_id), start.partition, start.start_offset) for start in starts]
        return starts

    def initialize(self, code: ErrorCode = ErrorCode.NONE, *, group: str = "g") -> None:
        """Let share coordinators answer everything that they are asked."""
        starts = self.take_asked()
        if starts:
            self.answer_states({(start.topic_id, start.partition): code for start in starts}, group=group)

    def answer_states(
        self, answers: dict[TopicIdPartition, ErrorCode], *, group: str = "g", asked_by_member: bool = True
    ) -> None:
        self.ask(
            lambda shard, token, now_ms: states_answered(
                shard, group, answers, token, now_ms, asked_by_member=asked_by_member
            )
        )

    # -- questions ----------------------------------------------------------------------------------------------------

    def share(self, name: str = "g") -> ShareGroup:
        group = self.shard.groups[name]
        assert isinstance(group, ShareGroup)
        return group

    def described(self, group: str = "g") -> DescribedGroup:
        found: list[DescribedGroup] = self.ask(
            lambda shard, token, now_ms: describe_share_groups(shard, [group], token, now_ms)
        )
        return found[0]

    def initialized(self, group: str = "g") -> Partitions:
        found = self.ask(lambda shard, token, now_ms: initialized_partitions(shard, group, token, now_ms))
        return {(topic_name(topic), partition) for topic, partition in found}


def told(answer: ShareGroupHeartbeatResponse | Refused) -> tuple[int, Partitions]:
    """Return the epoch and the partitions of an answer that has an assignment."""
    assert not isinstance(answer, Refused), answer
    assert answer.error_code == ErrorCode.NONE
    assert answer.assignment is not None
    return answer.member_epoch, {
        (topic_name(topic.topic_id), partition)
        for topic in answer.assignment.topic_partitions
        for partition in topic.partitions
    }


def share_groups(bench: ConsumerBench) -> dict[str, ShareGroup]:
    return {name: group for name, group in bench.shard.groups.items() if isinstance(group, ShareGroup)}
