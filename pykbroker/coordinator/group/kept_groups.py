"""Streams groups (KIP-1071): kept here, without service, for a coordinator that serves them.

In a cluster with Apache Kafka the coordinator of a group moves to the broker that leads its partition of
`__consumer_offsets`. While this node leads it, the group's records stay as they are: only commits of clients are
written, no session runs out, and no offset expires. Members that use the group's own protocol get no service. Their
sessions begin anew with the next coordinator.

Responsible for the ids of such groups, and for the errors that clients of other kinds of groups get. The errors are
those of Apache Kafka 4.3.1 (compat_tests/mixed_cluster compares both). Two answers are stricter than Apache Kafka's. An
empty streams group does not become a group of another kind, and it cannot be deleted here. Only the epoch of a member
is read from the values, because a later release may write the other values in another version.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pykbroker.coordinator.group.contract import STALE_TO_PRODUCERS_FROM, GroupKind
from pykbroker.coordinator.result import CoordinatorRecord, TimerKey, Token
from pykbroker_wire.errors import DecodeError, ErrorCode, KafkaError
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.group.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from pykbroker_wire.stored.group.streams_group_member_metadata import StreamsGroupMemberMetadataKey
from pykbroker_wire.stored.group.streams_group_metadata import StreamsGroupMetadataKey

STREAMS: Final = "streams"

#: From this version of OffsetCommit on, members of the newer protocols get STALE_MEMBER_EPOCH.
_COMMIT_WITH_EPOCH_FROM: Final = 9
_UNKNOWN_EPOCH: Final = -1


class StreamsGroup:
    """The stored part of a group: its id and its members, which commit offsets like those of a consumer group."""

    kind: Final = STREAMS
    protocol_type: Final = STREAMS

    __slots__ = ("group_id", "members")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: member id -> its epoch, -1 if no record has given it
        self.members: dict[str, int] = {}

    @property
    def state_name(self) -> str:
        """Return "Unknown" if the group has members, because the records with their state are not read here."""
        return "Empty" if self.is_empty else "Unknown"

    @property
    def newest_epoch(self) -> int:
        # Groups of this kind are not raised.
        return 0

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed(self, topic: str) -> bool:
        """Return True for each topic if the group has members, because their topics are in records that are not read
        here."""
        return not self.is_empty

    def topics_changed(self, names: Collection[str]) -> None:
        """Do nothing, because nothing is computed from topics."""

    def offsets_expire_from_ms(self) -> int | None:
        return None

    def session_after_commit(self, member_id: str) -> int | None:
        return None

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = _COMMIT_WITH_EPOCH_FROM,
    ) -> None:
        if generation < 0 and self.is_empty:
            # The client is an admin client.
            return
        if transactional and generation == -1 and not member_id and instance_id is None:
            return
        epoch = self._epoch_of(member_id)
        if not transactional and api_version < _COMMIT_WITH_EPOCH_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if generation != epoch:
            unknown = transactional and api_version < STALE_TO_PRODUCERS_FROM
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION if unknown else ErrorCode.STALE_MEMBER_EPOCH)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        if epoch != self._epoch_of(member_id or ""):
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_offset_delete(self) -> None:
        """Do nothing. The shard refuses topics to which the group subscribes."""

    def check_delete(self) -> None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION if self.is_empty else ErrorCode.NON_EMPTY_GROUP)

    def _epoch_of(self, member_id: str) -> int:
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.members[member_id]


class KeptStep:
    """Refuses each request of a member, and sets no timer."""

    becomes = None

    __slots__ = ()

    def resume(self) -> None:
        """Do nothing, because the group has no soft state."""

    def timer(self, key: TimerKey, event: object) -> None:
        """Do nothing. A group of another kind, which had this id before, has set the timer."""

    def join(self, request: JoinGroupRequest, client: object, token: Token) -> None:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def sync(self, request: SyncGroupRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def classic_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def classic_leave(self, request: LeaveGroupRequest, token: Token) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


_STEP: Final = KeptStep()

STREAMS_KEYS: Final = (
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupCurrentMemberAssignmentKey,
)


def _group_id(key: TopLevel) -> str:
    assert isinstance(key, STREAMS_KEYS)
    return key.group_id


def _replay(group: StreamsGroup | None, record: CoordinatorRecord) -> StreamsGroup | None:
    """Replay a record. A group begins with its own record or a member's record, and ends with the tombstone of its own
    record."""
    key, value = record.key, record.value
    if isinstance(key, StreamsGroupMetadataKey):
        return None if value is None else group or StreamsGroup(key.group_id)
    if isinstance(key, StreamsGroupMemberMetadataKey):
        if value is not None:
            group = group or StreamsGroup(key.group_id)
            group.members.setdefault(key.member_id, _UNKNOWN_EPOCH)
        elif group is not None:
            group.members.pop(key.member_id, None)
        return group
    assert isinstance(key, StreamsGroupCurrentMemberAssignmentKey)
    if group is not None and key.member_id in group.members:
        assert value is None or isinstance(value, bytes)
        group.members[key.member_id] = _member_epoch(value)
    return group


def _member_epoch(value: bytes | None) -> int:
    if value is None:
        return _UNKNOWN_EPOCH
    try:
        version = int.from_bytes(value[:2], "big")
        return StreamsGroupCurrentMemberAssignmentValue.decode(value, 2, version)[0].member_epoch
    except DecodeError:
        # A later release wrote the record. The member's commits are refused while this node coordinates the group.
        return _UNKNOWN_EPOCH


def _no_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    raise AssertionError(f"group {group.group_id} of kind {group.kind} is not deleted here")


STREAMS_KIND: Final[GroupKind[StreamsGroup]] = GroupKind(
    group=StreamsGroup,
    keys=STREAMS_KEYS,
    group_id_of_key=_group_id,
    replay_record=_replay,
    tombstones_of=_no_tombstones,
    # The coordinator that serves the group keeps its epochs.
    raised_to=lambda *_: [],
    step_of=lambda *_: _STEP,
)
