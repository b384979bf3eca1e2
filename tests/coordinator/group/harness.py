"""A shard without a runtime: a log in memory, timers on a clock that tests move, answers as they come.

It follows the order of `Result` exactly: append (as bytes, read back and replayed), timers, answers. Each append is
committed at once, and `refuse_next` makes the next one fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
from pykbroker.coordinator.group.classic.joining import Client
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

START_MS = 1_000_000


class Refused:
    """The answer to a request that failed as a whole."""

    def __init__(self, code: ErrorCode) -> None:
        self.error_code = code

    def __repr__(self) -> str:
        return f"Refused({self.error_code.name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refused) and other.error_code == self.error_code

    __hash__ = None  # type: ignore[assignment]


B = TypeVar("B", bound="Bench")


def classic_groups(shard: GroupShard) -> dict[str, ClassicGroup]:
    return {name: group for name, group in shard.groups.items() if isinstance(group, ClassicGroup)}


def consumer_groups(shard: GroupShard) -> dict[str, ConsumerGroup]:
    return {name: group for name, group in shard.groups.items() if isinstance(group, ConsumerGroup)}


class Bench:
    """One shard and its world."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        log: list[tuple[bytes, bytes | None]] | None = None,
        now_ms: int = START_MS,
        topics: GroupTopics | None = None,
    ) -> None:
        self.settings = settings or GroupSettings()
        self.topics = topics or GroupTopics()
        self.now_ms = now_ms
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[Token, Any] = {}
        #: effects of committed results, which a test carries out
        self.effects: list[Any] = []
        #: events of committed results
        self.counts: Counter[CountedEvent] = Counter()
        self.refuse_next: ErrorCode | None = None
        self._deadlines: dict[TimerKey, tuple[int, Any]] = {}
        self._last_token = 0
        self._ids = 0
        self.shard = GroupShard(0, self.settings, self.topics)
        for key, value in log or []:
            self.log.append((key, value))
            record = records.decode(key, value)
            assert record is not None
            self.shard.replay(record, len(self.log) - 1)
        for result in self.shard.loaded(self.now_ms):
            self.carry_out(result, None)

    def restart(self: B) -> B:
        """Let another coordinator take over from the log."""
        other = type(self)(self.settings, self.log, self.now_ms, self.topics)
        other._ids = self._ids
        return other

    # -- inputs -------------------------------------------------------------------------------------------------------

    def run(self, operation: Callable[[GroupShard, Token, int], Result]) -> Token:
        """Run an operation. Once its answer exists, it is in `answers` under the returned token."""
        self._last_token += 1
        token = self._last_token
        try:
            result = operation(self.shard, token, self.now_ms)
        except KafkaError as error:
            self.answers[token] = Refused(error.code)
        else:
            self.carry_out(result, token)
        return token

    def ask(self, operation: Callable[[GroupShard, Token, int], Result]) -> Any:
        """Run an operation that answers at once."""
        return self.answers.pop(self.run(operation))

    def advance(self, milliseconds: int) -> None:
        """Let time pass. Timers fire on the way."""
        until = self.now_ms + milliseconds
        while self._deadlines:
            key = min(self._deadlines, key=lambda name: (self._deadlines[name][0], name))
            deadline, event = self._deadlines[key]
            if deadline > until:
                break
            del self._deadlines[key]
            self.now_ms = max(self.now_ms, deadline)
            self.carry_out(self.shard.on_timer(key, event, self.now_ms), None)
        self.now_ms = until

    def timers(self) -> list[tuple[TimerKey, int]]:
        return sorted((key, deadline - self.now_ms) for key, (deadline, _) in self._deadlines.items())

    def carry_out(self, result: Result, token: Token | None) -> None:
        for timer in result.timers:
            if timer.delay_ms is None:
                self._deadlines.pop(timer.key, None)
            else:
                self._deadlines[timer.key] = (self.now_ms + timer.delay_ms, timer.event)
        if result.records and self.refuse_next is not None:
            code, self.refuse_next = self.refuse_next, None
            for waiting, _ in result.replies:
                self._answer(waiting, Refused(code))
            if result.append_failed is not None:
                self.carry_out(result.append_failed(code, self.now_ms), None)
            return
        for record in result.records:
            self._append(record)
        for waiting, answer in result.replies:
            self._answer(waiting, answer)
        self.effects += result.effects
        self.counts.update(result.counts or {})

    def _append(self, record: CoordinatorRecord) -> None:
        key, value = records.encode(record)
        self.log.append((key, value))
        read_back = records.decode(key, value)
        assert read_back is not None
        assert read_back.key == record.key
        self.shard.replay(read_back, len(self.log) - 1)

    def _answer(self, token: Token, answer: Any) -> None:
        assert token not in self.answers, f"request {token} is answered twice"
        self.answers[token] = answer

    # -- requests -----------------------------------------------------------------------------------------------------

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: str = "client",
    ) -> Token:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in offered.items()],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
        )
        self._ids += 1
        who = Client(client, "/10.0.0.1", version, f"id{self._ids}")
        return self.run(lambda shard, token, now_ms: shard.join(request, who, token, now_ms))

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Token:
        request = SyncGroupRequest(
            group_id=group,
            member_id=member,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        return self.run(lambda shard, token, now_ms: shard.sync(request, token, now_ms))

    def heartbeat(self, group: str, member: str, generation: int, instance: str | None = None) -> Token:
        request = HeartbeatRequest(
            group_id=group, member_id=member, generation_id=generation, group_instance_id=instance
        )
        return self.run(lambda shard, token, now_ms: shard.heartbeat(request, token, now_ms))

    def leave(self, group: str, *members: tuple[str, str | None]) -> Token:
        request = LeaveGroupRequest(
            group_id=group,
            members=[MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members],
        )
        return self.run(lambda shard, token, now_ms: shard.leave(request, token, now_ms))

    def commit(
        self,
        group: str,
        offsets: dict[tuple[str, int], int],
        member: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        leader_epoch: int = -1,
        topic_id: bytes = bytes(16),
        version: int = 9,
    ) -> Token:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
        )
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, topic_id=topic_id)).partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        asked = list(topics.values())
        return self.run(lambda shard, token, now_ms: shard.commit_offsets(request, asked, version, token, now_ms))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return all offsets of the group, as a client fetches them."""
        answer = self.ask(lambda shard, token, now_ms: shard.fetch_offsets(group, None, False, token, now_ms))
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }

    # -- whole rebalances ---------------------------------------------------------------------------------------------

    def new_member(self, group: str = "g", **options: Any) -> tuple[str, Token]:
        """Do the two rounds of a dynamic member. Return its id, and the token of its waiting JoinGroup."""
        first = self.answers.pop(self.join(group, **options))
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member: str = first.member_id
        return member, self.join(group, member, **options)

    def stable(self, count: int = 2, group: str = "g", **options: Any) -> list[str]:
        """Make a group in generation 1 with this many members. The first is its leader."""
        joined = [self.new_member(group, **options) for _ in range(count)]
        self.advance(2 * self.settings.initial_rebalance_delay_ms)
        members = [member for member, _ in joined]
        for _, token in joined:
            assert self.answers.pop(token).error_code == ErrorCode.NONE
        tokens = [self.sync(group, member, 1) for member in members[1:]]
        tokens.append(self.sync(group, members[0], 1, {member: member.encode() for member in members}))
        for token in tokens:
            assert self.answers.pop(token).error_code == ErrorCode.NONE
        return members


def subscription(*topics: str) -> bytes:
    return b"\x00\x00" + ConsumerProtocolSubscription(topics=list(topics)).encode_bytes(0)


__all__ = ["START_MS", "Bench", "Refused", "classic_groups", "consumer_groups", "subscription"]
