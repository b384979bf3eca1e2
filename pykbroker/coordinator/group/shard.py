"""The groups of one partition of `__consumer_offsets`: all that requests, timers and the metadata can ask of them.

Responsible for finding the group, for the operations that are about several groups or about groups and offsets
together, for replay, and for what happens when loading is over. Not responsible for the protocols of members
(rebalance.py; heartbeat.py and mixed.py), for what administrators see (admin.py), for futures, the log or the clock
(runtime.py), nor for requests that need no group (service.py).

Each operation is pure: `(…, token, now_ms) -> Result`, or KafkaError when it was refused whole and nothing changed.
`groups` has the classic groups, `consumers` those of KIP-848; an id is in one of them at most. A group of one kind
becomes one of the other in one Result: tombstones of what it was, records of what it is. A classic group that comes of
it has soft state already when its record is replayed: it waits in `_pending` until then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pykbroker.coordinator.group import admin
from pykbroker.coordinator.group.classic import ClassicGroup, State
from pykbroker.coordinator.group.consumer import ConsumerGroup
from pykbroker.coordinator.group.consumer_records import group_tombstones
from pykbroker.coordinator.group.consumer_replay import CONSUMER_KEYS, replay_consumer
from pykbroker.coordinator.group.heartbeat import ConsumerClient
from pykbroker.coordinator.group.migration import upgrade
from pykbroker.coordinator.group.mixed import ClassicInput
from pykbroker.coordinator.group.offsets import NO_PRODUCER_ID, Offsets
from pykbroker.coordinator.group.rebalance import UNKNOWN_MEMBER, Client, Rebalance, join_refused
from pykbroker.coordinator.group.records import group_tombstone, offset_record
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import Record, Result, TimerKey, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.delete_groups import DeletableGroupResult
from pykbroker_wire.messages.heartbeat import HeartbeatRequest
from pykbroker_wire.messages.join_group import JoinGroupRequest
from pykbroker_wire.messages.leave_group import LeaveGroupRequest
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
from pykbroker_wire.stored.group.group_metadata import GroupMetadataKey, GroupMetadataValue
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey

logger = logging.getLogger(__name__)

_EXPIRE: TimerKey = ("expire",)
_END_OF_TIME_MS = (1 << 63) - 1
#: Groups and offsets that one turn of the expiry looks at: some milliseconds' worth.
_EXPIRE_GROUPS = 256
_EXPIRE_OFFSETS = 1_000
#: Groups of bare offsets that are made between two pauses when loading ends.
_LOADED_GROUPS = 32

#: OffsetCommit answers GROUP_ID_NOT_FOUND from this version on where it said ILLEGAL_GENERATION before.
_GROUP_ID_NOT_FOUND_FROM = 9


class GroupShard:
    """See the module. `index` is the partition."""

    __slots__ = ("_loading", "_pending", "consumers", "groups", "index", "offsets", "settings", "topics")

    def __init__(self, index: int, settings: GroupSettings, topics: GroupTopics | None = None) -> None:
        self.index = index
        self.settings = settings
        self.topics = GroupTopics() if topics is None else topics
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        #: classic groups whose first record is being written
        self._pending: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        #: what was read of each group so far; None when loading is over
        self._loading: dict[str, GroupMetadataValue] | None = {}

    # -- replicated state ---------------------------------------------------------------------------------------------

    def replay(self, record: Record, at: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """The only mutator of replicated state: while loading, and after every append."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, bytes)
            self.offsets.replay(key, value, at, producer_id)
            if value is not None:
                self.hold_offsets(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_group(key.group, value)
        elif isinstance(key, CONSUMER_KEYS):
            if value is not None:
                # Nobody but a consumer that assigned its partitions itself had this group: see `replay` of offsets.
                self.groups.pop(key.group_id, None)
                if self._loading is not None:
                    self._loading.pop(key.group_id, None)
            replay_consumer(self.consumers, record)
        else:
            raise AssertionError(f"no record of {type(key).__name__} is written here")

    def hold_offsets(self, group_id: str) -> None:
        """A commit of the group is in the log, decided or not. If it has no other records it is that of a consumer that
        assigns its partitions itself: without members or protocol. It stays until it expires, even if nothing comes of
        the commit. Its own time is of no consequence: its offsets expire each from its commit."""
        if group_id not in self.groups and group_id not in self.consumers:
            self.groups[group_id] = ClassicGroup(group_id, -1)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if self._loading is not None:
            if value is None:
                self._loading.pop(group_id, None)
                self.groups.pop(group_id, None)
            else:
                self._loading[group_id] = value
                self.consumers.pop(group_id, None)
        elif value is None:
            group = self.groups.pop(group_id, None)
            if group is not None:
                group.move_to(State.DEAD, group.state_timestamp_ms)
        else:
            group = self.groups.get(group_id)
            if group is None:
                group = self.groups[group_id] = self._pending.pop(group_id)
            group.stored = value

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A transaction marker in the log (WriteTxnMarkers): the other input that changes replicated state."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def loaded(self, now_ms: int) -> Iterator[Result]:
        """The log is read to its end. In slices: the caller may pause after each."""
        loading, self._loading = self._loading, None
        assert loading is not None
        for group_id, value in loading.items():
            group = ClassicGroup.from_stored(group_id, value)
            self.groups[group_id] = group
            if group.members:
                result = Result()
                Rebalance(group, self.settings, now_ms, result).resume()
                yield result
        # Timers run during the pauses: groups come and go.
        for consumer_group in list(self.consumers.values()):
            if consumer_group.members:
                result = Result()
                self._input(consumer_group, now_ms, result).resume()
                yield result
        for number, group_id in enumerate(self.offsets.groups()):
            # Whoever wrote the log may have deleted a group without its offsets: they are to expire.
            self.hold_offsets(group_id)
            if number % _LOADED_GROUPS == 0:
                yield Result()
        result = Result()
        result.set_timer(_EXPIRE, self.settings.offsets_retention_check_interval_ms)
        yield result

    # -- timers -------------------------------------------------------------------------------------------------------

    def on_timer(self, key: TimerKey, event: object, now_ms: int) -> Result:
        result = Result()
        if key == _EXPIRE:
            self._expire([*self.groups, *self.consumers] if event is None else event, now_ms, result)  # type: ignore[arg-type]
            return result
        kind, group_id = key[0], key[1]
        consumer_group = self.consumers.get(group_id)
        if consumer_group is not None:
            step = self._input(consumer_group, now_ms, result)
            step.timer(key, event)
            self._settle(step)
            return result
        group = self.groups.get(group_id)
        if group is None:
            return result
        rebalance = Rebalance(group, self.settings, now_ms, result)
        if kind == "session":
            rebalance.session_over(key[2])
        elif kind == "sync":
            assert isinstance(event, int)
            rebalance.sync_overdue(event)
        elif kind != "join":
            # Of the consumer group that this one was.
            pass
        elif event is None:
            rebalance.join_overdue()
        else:
            assert isinstance(event, tuple)
            rebalance.initial_delay_over(*event)
        return result

    def _expire(self, group_ids: list[str], now_ms: int, result: Result) -> None:
        """Offsets past their retention, and groups that are empty without any. `group_ids` is taken from the end."""
        result.atomic = False
        groups = offsets = 0
        while group_ids and groups < _EXPIRE_GROUPS and offsets < _EXPIRE_OFFSETS:
            group_id = group_ids.pop()
            groups += 1
            offsets += self.offsets.size(group_id)
            group = self.find(group_id)
            retained_from_ms = group.offsets_expire_from_ms() if group is not None else None
            if group is None or retained_from_ms is None:
                continue
            records, everything = self.offsets.expire(
                group_id, retained_from_ms, now_ms, self.settings.offsets_retention_ms, group.is_subscribed
            )
            if records:
                logger.info("Group %s: %d offsets expired", group_id, len(records))
            result.records += records
            if everything and group.is_empty:
                result.records += self._tombstones(group)
        if group_ids:
            result.set_timer(_EXPIRE, 0, group_ids)
        else:
            result.set_timer(_EXPIRE, self.settings.offsets_retention_check_interval_ms)

    def topics_changed(self, names: set[str], now_ms: int) -> Result:
        """Created, deleted, more partitions, other replicas: whoever subscribes looks at its next heartbeat."""
        for group in self.consumers.values():
            if not group.subscribers.keys().isdisjoint(names):
                group.refresh_topics()
        return Result()

    def topics_deleted(self, deleted: Iterable[tuple[str, bytes]], now_ms: int) -> Result:
        """Names and ids of topics that the metadata no longer has."""
        result = Result()
        result.atomic = False
        result.records += self.offsets.delete_topics(deleted)
        return result

    # -- both kinds ---------------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.groups.get(group_id) or self.consumers.get(group_id)

    def _tombstones(self, group: ClassicGroup | ConsumerGroup) -> list[Record]:
        if isinstance(group, ClassicGroup):
            return [group_tombstone(group.group_id)]
        return group_tombstones(group)

    def _input(self, group: ConsumerGroup, now_ms: int, result: Result) -> ClassicInput:
        return ClassicInput(group, self.settings, self.topics, now_ms, result)

    def _settle(self, step: ClassicInput) -> None:
        if step.became_classic is not None:
            self._await_record(step.became_classic, step.result)

    def _await_record(self, group: ClassicGroup, result: Result) -> None:
        """The group is there as soon as its record is; if that is refused it never was."""
        self._pending[group.group_id] = group
        before = result.append_failed

        def failed(error: ErrorCode, now_ms: int) -> Result:
            del self._pending[group.group_id]
            undone = Result() if before is None else before(error, now_ms)
            Rebalance(group, self.settings, now_ms, undone).unwritten(error)
            return undone

        result.append_failed = failed

    # -- members of consumer groups -----------------------------------------------------------------------------------

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ConsumerClient, token: Token, now_ms: int
    ) -> Result:
        result = Result()
        group_id = request.group_id
        classic = self.groups.get(group_id)
        group = self.consumers.get(group_id)
        joins = request.member_epoch == 0
        if group is None:
            if classic is not None and not joins:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            if not joins:
                which = "Group" if request.member_epoch < 0 else "Consumer group"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{which} {group_id} not found.")
            if classic is None:
                group = ConsumerGroup(group_id)
            elif classic.is_empty:
                logger.info("Group %s: the empty classic group becomes a consumer group", group_id)
                result.records.append(group_tombstone(group_id))
                group = ConsumerGroup(group_id)
            else:
                group, records = upgrade(classic, self.topics, self.settings, result)
                result.records += records
        step = self._input(group, now_ms, result)
        if request.member_epoch < 0:
            step.leave(request, token)
        else:
            step.heartbeat(request, client, token)
        if classic is not None:
            Rebalance(classic, self.settings, now_ms, result).give_way()
        self._settle(step)
        return result

    # -- members of classic groups ------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, token: Token, now_ms: int) -> Result:
        result = Result()
        group_id = request.group_id
        consumer_group = self.consumers.get(group_id)
        if consumer_group is not None and consumer_group.members:
            step = self._input(consumer_group, now_ms, result)
            step.join(request, client, token)
            self._settle(step)
            return result
        group = self.groups.get(group_id)
        is_new = group is None
        if group is None:
            if request.member_id != UNKNOWN_MEMBER:
                result.reply(token, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return result
            group = ClassicGroup(group_id, now_ms)
            if consumer_group is None:
                self.groups[group_id] = group
            else:
                logger.info("Group %s: the empty consumer group becomes a classic group", group_id)
                result.records += group_tombstones(consumer_group)
        Rebalance(group, self.settings, now_ms, result).join(request, client, token, group_is_new=is_new)
        if consumer_group is not None:
            self._await_record(group, result)
        return result

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Result:
        result = Result()
        consumer_group = self.consumers.get(request.group_id)
        if consumer_group is not None:
            self._input(consumer_group, now_ms, result).sync(request, token)
        else:
            Rebalance(self._group_of_member(request.group_id), self.settings, now_ms, result).sync(request, token)
        return result

    def heartbeat(self, request: HeartbeatRequest, token: Token, now_ms: int) -> Result:
        result = Result()
        consumer_group = self.consumers.get(request.group_id)
        if consumer_group is not None:
            self._input(consumer_group, now_ms, result).classic_heartbeat(request, token)
        else:
            Rebalance(self._group_of_member(request.group_id), self.settings, now_ms, result).heartbeat(request, token)
        return result

    def leave(self, request: LeaveGroupRequest, token: Token, now_ms: int) -> Result:
        result = Result()
        consumer_group = self.consumers.get(request.group_id)
        if consumer_group is not None:
            step = self._input(consumer_group, now_ms, result)
            step.classic_leave(request, token)
            self._settle(step)
        else:
            Rebalance(self._group_of_member(request.group_id), self.settings, now_ms, result).leave(request, token)
        return result

    def _group_of_member(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # -- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        topics: list[OffsetCommitRequestTopic],
        api_version: int,
        token: Token,
        now_ms: int,
    ) -> Result:
        """`topics` are those of the request that exist and may be read, with name and id."""
        group_id = request.group_id
        generation = request.generation_id_or_member_epoch
        result = Result()
        group = self.find(group_id)
        check = None
        if group is not None:
            check = group.check_offset_commit(
                request.member_id, request.group_instance_id, generation, api_version=api_version
            )
            if generation >= 0 and isinstance(group, ClassicGroup):
                Rebalance(group, self.settings, now_ms, result).commit_keeps_session(request.member_id)
        elif generation >= 0:
            if api_version >= _GROUP_ID_NOT_FOUND_FROM:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        limit = self.settings.offset_metadata_max_bytes
        # A client may ask for more time than there is.
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
        """`topics` None: everything that the group has."""
        group = self.consumers.get(group_id)
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
        group = self.find(request.group_id)
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
        result.reply(token, response)
        return result

    # -- administration -----------------------------------------------------------------------------------------------

    def list_groups(self, states: frozenset[str], types: frozenset[str], token: Token, now_ms: int) -> Result:
        """Filters are lower case; an empty one lets everything through."""
        result = Result()
        result.reply(token, admin.list_groups((*self.groups.values(), *self.consumers.values()), states, types))
        return result

    def describe_groups(self, group_ids: Iterable[str], api_version: int, token: Token, now_ms: int) -> Result:
        result = Result()
        result.reply(
            token,
            [
                admin.describe_classic(group_id, self.groups.get(group_id), group_id in self.consumers, api_version)
                for group_id in group_ids
            ],
        )
        return result

    def describe_consumer_groups(self, group_ids: Iterable[str], token: Token, now_ms: int) -> Result:
        result = Result()
        default = self.settings.consumer_assignors[0]
        result.reply(
            token,
            [
                admin.describe_consumer(
                    group_id, self.consumers.get(group_id), group_id in self.groups, default, self.topics
                )
                for group_id in group_ids
            ],
        )
        return result

    def delete_groups(self, group_ids: Iterable[str], token: Token, now_ms: int) -> Result:
        result = Result()
        answers: list[DeletableGroupResult] = []
        for group_id in group_ids:
            answer = DeletableGroupResult(group_id=group_id)
            answers.append(answer)
            group = self.find(group_id)
            if group is None:
                answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                answer.error_code = ErrorCode.NON_EMPTY_GROUP
            else:
                result.records += self.offsets.delete_group(group_id)
                result.records += self._tombstones(group)
        result.reply(token, answers)
        return result
