"""The groups of one partition of `__consumer_offsets`, with the operations of requests, timers and the metadata.

Responsible for finding the group, for operations on several groups or on groups and offsets together, for replay, and
for the end of loading. Not responsible for the kinds of groups (contract.py, group_kinds.py), their steps (classic/,
consumer/, mixed.py) and groups that change their kind (migration.py). The runtime (machine.py) handles futures, the log
and the clock, and service.py handles requests that need no group.

Each operation is pure: `(…, token, now_ms) -> Result`. It raises KafkaError if it is refused as a whole, and then
nothing has changed. `groups` has the groups of all kinds. A group changes its kind in one Result, which has the
tombstones of the old group and the records of the new group. The new group may have soft state before its record is
replayed, and waits in `_awaiting_record` until then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pykbroker.coordinator.group.classic.classic_answers import describe_classic
from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
from pykbroker.coordinator.group.classic.classic_step import ClassicStep
from pykbroker.coordinator.group.classic.joining import UNKNOWN_MEMBER, Client, join_refused
from pykbroker.coordinator.group.classic.rebalance import Rebalance, session_timer
from pykbroker.coordinator.group.consumer.consumer_description import describe_consumer
from pykbroker.coordinator.group.consumer.consumer_heartbeat import ConsumerClient
from pykbroker.coordinator.group.contract import Group, GroupKind, Step
from pykbroker.coordinator.group.group_kinds import KINDS, kinds_by_key
from pykbroker.coordinator.group.migration import consumer_group_for, gives_way_to_classic
from pykbroker.coordinator.group.mixed import MixedStep
from pykbroker.coordinator.group.offsets import NO_PRODUCER_ID, OffsetAges, Offsets
from pykbroker.coordinator.group.records import offset_record
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.delete_groups import DeletableGroupResult
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
from pykbroker_wire.messages.list_groups import ListedGroup
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from pykbroker_wire.messages.sync_group import SyncGroupRequest
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey

logger = logging.getLogger(__name__)

_EXPIRE: TimerKey = ("expire",)
_END_OF_TIME_MS = (1 << 63) - 1
#: The most groups and offsets that one turn of the expiry looks at, which takes some milliseconds.
_EXPIRE_GROUPS = 256
_EXPIRE_OFFSETS = 1_000
#: Groups that are handled between two pauses when loading ends.
_LOADED_GROUPS = 32

#: From this version on OffsetCommit answers GROUP_ID_NOT_FOUND where it answered ILLEGAL_GENERATION before.
_GROUP_ID_NOT_FOUND_FROM = 9


class GroupShard:
    """The groups of partition `index` (see the module's docstring)."""

    __slots__ = ("_awaiting_record", "_epochs_from", "_kind_of_key", "groups", "index", "offsets", "settings", "topics")

    def __init__(
        self,
        index: int,
        settings: GroupSettings,
        topics: GroupTopics | None = None,
        *,
        epochs_from: int = 0,
    ) -> None:
        """`epochs_from`: each group that is loaded gets at least this generation or epoch."""
        self.index = index
        self._epochs_from = epochs_from
        self._kind_of_key = kinds_by_key(KINDS)
        self.settings = settings
        self.topics = GroupTopics() if topics is None else topics
        self.groups: dict[str, Group] = {}
        #: groups whose first record is being written
        self._awaiting_record: dict[str, Group] = {}
        self.offsets = Offsets()

    # -- replicated state ---------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Replay a record, while loading and after each append. Only this and `end_transaction` change replicated
        state."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, bytes)
            self.offsets.replay(key, value, at, producer_id)
            if value is not None:
                self.hold_offsets(key.group)
            return
        kind = self._kind_of_key.get(type(key))
        assert kind is not None, f"no record of {type(key).__name__} is written here"
        self._replay_group(kind, kind.group_id_of_key(key), record)

    def _replay_group(self, kind: GroupKind[Group], group_id: str, record: CoordinatorRecord) -> None:
        """A record replaces a group of another kind with this id. A tombstone does not."""
        group = self.groups.get(group_id)
        if not kind.is_of(group):
            group = self._awaiting_record.pop(group_id) if kind.is_of(self._awaiting_record.get(group_id)) else None
        after = kind.replay(group, record)
        if after is not None:
            self.groups[group_id] = after
        elif group is not None:
            del self.groups[group_id]

    def hold_offsets(self, group_id: str) -> None:
        """Make sure that the group of a commit in the log exists, whether the commit is decided or not. A group without
        records of its own belongs to a consumer that assigns its partitions itself, and has no members or protocol. It
        stays until it expires, even if the commit is aborted. Its timestamp does not matter, because each of its
        offsets expires from its own commit."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, -1)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker in the log (WriteTxnMarkers). It is the other input that changes replicated
        state."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def loaded(self, now_ms: int) -> Iterator[Result]:
        """Start soft state after the log was read to its end. This is done in slices, and the caller may pause after
        each."""
        if self._epochs_from:
            # The records are replayed before the groups resume.
            for group in list(self.groups.values()):
                if group.newest_epoch < self._epochs_from:
                    result = Result()
                    result.records += KINDS[group.kind].raised(group, self._epochs_from)
                    yield result
        # Timers run during the pauses, so groups come and go.
        for number, group in enumerate(list(self.groups.values())):
            if self.groups.get(group.group_id) is group:
                result = Result()
                self._step(group, now_ms, result).resume()
                if result.timers or number % _LOADED_GROUPS == 0:
                    yield result
        for number, group_id in enumerate(self.offsets.groups()):
            # Another program may have written the log and deleted a group but not its offsets. Those must still expire.
            self.hold_offsets(group_id)
            if number % _LOADED_GROUPS == 0:
                yield Result()
        result = Result()
        result.set_timer(_EXPIRE, self.settings.offsets_retention_check_interval_ms, repeats=True)
        yield result

    # -- timers -------------------------------------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, event: object, now_ms: int) -> Result:
        result = Result()
        if key == _EXPIRE:
            self._expire(list(self.groups) if event is None else event, now_ms, result)  # type: ignore[arg-type]
            return result
        group = self.groups.get(key[1])
        if group is not None:
            step = self._step(group, now_ms, result)
            step.timer(key, event)
            self._settle(step, result)
        return result

    def _expire(self, group_ids: list[str], now_ms: int, result: Result) -> None:
        """Remove offsets past their retention, and empty groups without offsets. Groups are taken from the end of
        `group_ids`."""
        result.atomic = False
        groups = offsets = 0
        while group_ids and groups < _EXPIRE_GROUPS and offsets < _EXPIRE_OFFSETS:
            group_id = group_ids.pop()
            groups += 1
            offsets += self.offsets.size(group_id)
            group = self.groups.get(group_id)
            retained_from_ms = group.offsets_expire_from_ms() if group is not None else None
            if group is None or retained_from_ms is None:
                continue
            records, everything = self.offsets.expire(
                group_id,
                OffsetAges(self.settings.jumps(), now_ms, retained_from_ms, self.settings.offsets_retention_ms),
                group.is_subscribed,
            )
            if records:
                logger.info("Group %s: %d offsets expired", group_id, len(records))
                result.count(CountedEvent.OFFSET_EXPIRATION, len(records))
            result.records += records
            if everything and group.is_empty:
                result.records += KINDS[group.kind].tombstones(group)
        if group_ids:
            result.set_timer(_EXPIRE, 0, group_ids)
        else:
            result.set_timer(_EXPIRE, self.settings.offsets_retention_check_interval_ms, repeats=True)

    def topics_changed(self, names: set[str], now_ms: int) -> Result:
        """Let groups that subscribe to these topics look at the topics at their next heartbeat. The topics were
        created, deleted, or got other partitions or replicas."""
        for group in self.groups.values():
            group.topics_changed(names)
        return Result()

    def topics_deleted(self, deleted: Iterable[tuple[str, bytes]], now_ms: int) -> Result:
        """Remove the offsets of topics, given by name and id, that the metadata no longer has."""
        result = Result()
        result.atomic = False
        result.records += self.offsets.delete_topics(deleted)
        return result

    # -- steps of one group -------------------------------------------------------------------------------------------

    def _step(self, group: Group, now_ms: int, result: Result) -> Step:
        return KINDS[group.kind].step(group, self.settings, self.topics, now_ms, result)

    def _settle(self, step: Step, result: Result) -> None:
        if step.becomes is not None:
            self.await_record(step.becomes, result)

    def await_record(self, group: Group, result: Result) -> None:
        """Keep the group until its first record is replayed. If that record is refused, the group is dropped."""
        assert result.records
        self._awaiting_record[group.group_id] = group
        before = result.append_failed

        def failed(error: ErrorCode, now_ms: int) -> Result:
            del self._awaiting_record[group.group_id]
            undone = Result()
            if isinstance(group, ClassicGroup):
                Rebalance(group, self.settings, now_ms, undone).unwritten(error)
            if before is not None:
                # These timers override those of the dropped group, because the group that stays keeps the sessions of
                # its members.
                stays = before(error, now_ms)
                assert not stays.records
                undone.timers += stays.timers
                undone.replies += stays.replies
            return undone

        result.append_failed = failed

    # -- members of consumer groups -----------------------------------------------------------------------------------

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient, token: Token, now_ms: int
    ) -> Result:
        result = Result()
        before = self.groups.get(request.group_id)
        group = consumer_group_for(before, request, self.topics, self.settings, result)
        step = MixedStep(group, self.settings, self.topics, now_ms, result)
        if request.member_epoch < 0:
            step.leave(request, token)
        else:
            step.heartbeat(request, client, token)
        if isinstance(before, ClassicGroup):
            Rebalance(before, self.settings, now_ms, result).give_way()
        if before is not group:
            self.await_record(group, result)
        self._settle(step, result)
        return result

    # -- members of the classic protocol ------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, token: Token, now_ms: int) -> Result:
        result = Result()
        group_id = request.group_id
        before = self.groups.get(group_id)
        if before is not None and not gives_way_to_classic(before):
            step = self._step(before, now_ms, result)
            step.join(request, client, token)
            self._settle(step, result)
            return result
        if request.member_id != UNKNOWN_MEMBER:
            result.reply(token, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return result
        group = ClassicGroup(group_id, now_ms)
        if before is None:
            self.groups[group_id] = group
        else:
            logger.info("Group %s: the empty consumer group becomes a classic group", group_id)
            result.records += KINDS[before.kind].tombstones(before)
        ClassicStep(group, self.settings, now_ms, result).join_new_group(request, client, token)
        if before is not None:
            self.await_record(group, result)
        return result

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Result:
        result = Result()
        self._step_of_member(request.group_id, now_ms, result).sync(request, token)
        return result

    def heartbeat(self, request: HeartbeatRequest, token: Token, now_ms: int) -> Result:
        result = Result()
        self._step_of_member(request.group_id, now_ms, result).classic_heartbeat(request, token)
        return result

    def leave(self, request: LeaveGroupRequest, token: Token, now_ms: int) -> Result:
        result = Result()
        step = self._step_of_member(request.group_id, now_ms, result)
        step.classic_leave(request, token)
        self._settle(step, result)
        return result

    def _step_of_member(self, group_id: str, now_ms: int, result: Result) -> Step:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self._step(group, now_ms, result)

    # -- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        topics: list[OffsetCommitRequestTopic],
        api_version: int,
        token: Token,
        now_ms: int,
    ) -> Result:
        """`topics` are the topics of the request that exist and may be read, with name and id."""
        group_id = request.group_id
        generation = request.generation_id_or_member_epoch
        result = Result()
        group = self.groups.get(group_id)
        check = None
        if group is not None:
            check = group.check_offset_commit(
                request.member_id, request.group_instance_id, generation, api_version=api_version
            )
            session_ms = group.session_after_commit(request.member_id) if generation >= 0 else None
            if session_ms is not None:
                result.set_timer(session_timer(group_id, request.member_id), session_ms)
        elif generation >= 0:
            if api_version >= _GROUP_ID_NOT_FOUND_FROM:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        limit = self.settings.offset_metadata_max_bytes
        # A client may ask for a time beyond the greatest timestamp.
        expire_ms = -1 if request.retention_time_ms == -1 else min(now_ms + request.retention_time_ms, _END_OF_TIME_MS)
        response = OffsetCommitResponse()
        for topic in topics:
            answers: list[OffsetCommitResponsePartition] = []
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                answer = OffsetCommitResponsePartition(partition_index=asked.partition_index)
                answers.append(answer)
                if len(metadata) > limit:
                    answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                    continue
                if check is not None:
                    check(topic.name, topic.topic_id, asked.partition_index)
                result.records.append(
                    offset_record(
                        group_id,
                        topic.name,
                        asked.partition_index,
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_ms=now_ms,
                        expire_ms=expire_ms,
                        topic_id=topic.topic_id,
                    )
                )
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
            )
        if result.records:
            result.count(CountedEvent.OFFSET_COMMIT, len(result.records))
        result.reply(token, response)
        return result

    def fetch_offsets(
        self,
        group_id: str,
        topics: list[OffsetFetchRequestTopics] | None,
        require_stable: bool,
        token: Token,
        now_ms: int,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Result:
        """`topics` None stands for all topics of the group."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_offset_fetch(member_id, member_epoch)
        if topics is None:
            found = self.offsets.fetch_all(group_id, require_stable=require_stable)
        else:
            found = self.offsets.fetch(group_id, topics, require_stable=require_stable)
        result = Result()
        result.reply(token, OffsetFetchResponseGroup(group_id=group_id, topics=found))
        return result

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token, now_ms: int) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        result = Result()
        response = OffsetDeleteResponse()
        for topic in request.topics:
            subscribed = group.is_subscribed(topic.name)
            answers: list[OffsetDeleteResponsePartition] = []
            for asked in topic.partitions:
                answer = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
                answers.append(answer)
                if subscribed:
                    answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    result.records += self.offsets.delete(request.group_id, topic.name, asked.partition_index)
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        result.count(CountedEvent.OFFSET_DELETION, len(result.records))
        result.reply(token, response)
        return result

    # -- administration -----------------------------------------------------------------------------------------------

    def list_groups(self, states: frozenset[str], types: frozenset[str], token: Token, now_ms: int) -> Result:
        """Filters are in lower case. All groups pass an empty filter."""
        result = Result()
        listed = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in self.groups.values()
            if (not types or group.kind in types) and (not states or group.state_name.lower() in states)
        ]
        result.reply(token, listed)
        return result

    def describe_groups(self, group_ids: Iterable[str], api_version: int, token: Token, now_ms: int) -> Result:
        result = Result()
        result.reply(
            token, [describe_classic(group_id, self.groups.get(group_id), api_version) for group_id in group_ids]
        )
        return result

    def describe_consumer_groups(self, group_ids: Iterable[str], token: Token, now_ms: int) -> Result:
        result = Result()
        default = self.settings.consumer_assignors[0]
        result.reply(
            token,
            [describe_consumer(group_id, self.groups.get(group_id), default, self.topics) for group_id in group_ids],
        )
        return result

    def delete_groups(self, group_ids: Iterable[str], token: Token, now_ms: int) -> Result:
        result = Result()
        answers: list[DeletableGroupResult] = []
        for group_id in group_ids:
            answer = DeletableGroupResult(group_id=group_id)
            answers.append(answer)
            group = self.groups.get(group_id)
            if group is None:
                answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                continue
            try:
                group.check_delete()
            except KafkaError as error:
                answer.error_code = error.code
                continue
            result.records += self.offsets.delete_group(group_id)
            result.records += KINDS[group.kind].tombstones(group)
        result.reply(token, answers)
        return result
