"""Groups as request handlers see them: one method per API, which returns an answer or a future of one.

Responsible for finding the partition of `__consumer_offsets` for a group, for the checks that need no group, and for
spreading a request over partitions and joining the answers. It also builds each API's answer for the case that the
coordinator cannot answer. Not responsible for authorization and topics (api/), nor for anything that a group decides
(shard.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pykbroker.config.metric_windows import metric_windows
from pykbroker.coordinator.group import records
from pykbroker.coordinator.group.bulk import BulkLoad
from pykbroker.coordinator.group.classic.joining import Client, join_refused
from pykbroker.coordinator.group.configs import GroupConfigs
from pykbroker.coordinator.group.consumer.consumer_heartbeat import ConsumerClient
from pykbroker.coordinator.group.consumer.consumer_member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from pykbroker.coordinator.group.share.share_service import EndOffsets, ShareGroupService
from pykbroker.coordinator.group.share.share_states import ShareStateKeeper
from pykbroker.coordinator.group.share.share_step import SharesToInitialize
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.group.transactional import TransactionalOffsets, refused
from pykbroker.coordinator.java import hash_map_order, partition_for, topic_partition_hash
from pykbroker.coordinator.kept_count import KeptCount
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.request_guards import Verifier
from pykbroker.coordinator.result import Result, Token
from pykbroker.metadata.features import group_version, share_version
from pykbroker.metadata.image import ConfigResource
from pykbroker.runtime.later import CallWhenDone, Later, and_then, at_any_time, gather, then
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykbroker_wire.messages.delete_groups import DeletableGroupResult
from pykbroker_wire.messages.describe_groups import DescribedGroup
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker_wire.messages.list_groups import ListedGroup
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykbroker_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pykbroker_wire.primitives import random_uuid, uuid_to_str
from pykbroker_wire.records.compression import Codec

if TYPE_CHECKING:
    from pykbroker.config.live import LiveConfig
    from pykbroker.metadata.delta import MetadataDelta
    from pykbroker.metadata.image import MetadataImage
    from pykbroker.metadata.view import MetadataView
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime

OFFSETS_TOPIC: Final = "__consumer_offsets"


class GroupService:
    """The groups of one broker. Handlers use them as `ctx.services.groups`."""

    def __init__(
        self,
        runtime: Runtime,
        live: LiveConfig,
        node_id: int,
        replicas: ReplicaTable,
        metadata: MetadataView,
        share_states: ShareStateKeeper,
        end_offsets: EndOffsets,
        *,
        epochs_from: int = 0,
    ) -> None:
        """`share_states` asks share coordinators for the states of share partitions, and `end_offsets` asks leaders for
        the ends of partitions. `epochs_from`: groups that are loaded get at least this generation or epoch."""
        config = live.current
        self.node_id = node_id
        self.configs = GroupConfigs(
            lambda: live.current, lambda group_id: metadata.image.configs.of(ConfigResource.GROUP, group_id)
        )
        self.settings = GroupSettings.from_config(
            config, self.configs.consumer, self.configs.share, lambda: runtime.client_clock.jumps
        )
        self.topics = GroupTopics(metadata.image)
        self._has_consumer_protocol = "consumer" in config.list("group.coordinator.rebalance.protocols")
        self._runtime = runtime
        self._metadata = metadata
        self._partitions = KeptCount(OFFSETS_TOPIC, config.int("offsets.topic.num.partitions"))
        self.coordinator: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            runtime,
            replicas,
            lambda index: GroupShard(index, self.settings, self.topics, epochs_from=epochs_from),
            records,
            commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
            load_bytes=config.int("offsets.load.buffer.size"),
            codec=Codec(config.int("offsets.topic.compression.codec")),
            linger_ms=config.int("group.coordinator.append.linger.ms"),
            bulk=BulkLoad,
            on_effect=self._effect,
            windows=metric_windows(config),
        )
        self.shares = ShareGroupService(self.coordinator, self.partition_of, self.topics, share_states, end_offsets)
        self._transactional = TransactionalOffsets(OFFSETS_TOPIC, self.coordinator, replicas)

    def start(self) -> None:
        """Keep the number of partitions by which groups are found. Call it when the metadata is complete."""
        self._partitions.start(self._metadata.image)

    def close(self) -> None:
        """Stop, and answer the requests that wait with NOT_COORDINATOR."""
        self.coordinator.close()

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Take a change of the metadata. Groups look at topics that changed, and offsets of deleted topics are
        removed."""
        self._partitions.look(new)
        changed = self.topics.publish(delta, old, new)
        if changed:
            self.coordinator.input_all(lambda shard, now_ms: shard.topics_changed(changed, now_ms))
        deleted = [(topic.name, topic.id) for topic in delta.topics.deleted.values()]
        if deleted:
            self.coordinator.input_all(lambda shard, now_ms: shard.topics_deleted(deleted, now_ms))
            self.shares.topics_deleted([topic_id for _, topic_id in deleted])

    @property
    def served_shares(self) -> ShareGroupService | None:
        """The share groups, None if the cluster's feature level has none. The level may change while the node runs."""
        return self.shares if share_version(self._metadata.image) > 0 else None

    def _effect(self, _index: int, _epoch: int, effect: object) -> None:
        assert isinstance(effect, SharesToInitialize)
        self.shares.effect(effect)

    def partition_of(self, group_id: str) -> int:
        """Return the partition whose leader coordinates the group."""
        return partition_for(group_id, self._partitions.of(self._metadata.image))

    def _by_partition(self, group_ids: Iterable[str]) -> dict[int, list[str]]:
        grouped: dict[int, list[str]] = {}
        for group_id in group_ids:
            grouped.setdefault(self.partition_of(group_id), []).append(group_id)
        # Answers come in the order in which Apache Kafka walks its partitions.
        order = hash_map_order(grouped, lambda index: topic_partition_hash(OFFSETS_TOPIC, index))
        return {index: grouped[index] for index in order}

    # -- members of consumer groups (KIP-848) -------------------------------------------------------------------------

    @property
    def consumer_protocol_enabled(self) -> bool:
        """True if the configuration and the cluster's feature level allow it. The level may change while the node
        runs."""
        return self._has_consumer_protocol and group_version(self._metadata.image) > 0

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        api_version: int,
        may_describe: Callable[[str], bool],
        *,
        connection: int | None = None,
    ) -> Later[ConsumerGroupHeartbeatResponse]:
        """`connection` names the connection on which the request came."""
        try:
            self._check_consumer_heartbeat(request, api_version)
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=_special(error))
        new_member_id = "" if request.member_id else self._new_id()
        client = ConsumerClient(client_id, f"/{client_host}", new_member_id, may_describe, connection)
        message: str | None = None

        def operation(shard: GroupShard, token: Token, now_ms: int) -> Result:
            nonlocal message
            try:
                result = shard.consumer_heartbeat(request, client, token, now_ms)
            except KafkaError as error:
                message = _special(error)
                raise
            result.collectable = False
            return result

        return self.coordinator.submit(
            self.partition_of(request.group_id),
            operation,
            lambda code: ConsumerGroupHeartbeatResponse(error_code=code, error_message=message),
            barrier=False,
        )

    def _check_consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        """Check the fields of the request alone, in Apache Kafka's order. Raises KafkaError."""
        epoch = request.member_epoch
        if (api_version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
        for value, name in (
            (request.group_id, "GroupId"),
            (request.instance_id, "InstanceId"),
            (request.rack_id, "RackId"),
        ):
            if value is not None and not value.strip():
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
        if epoch == 0:
            if request.rebalance_timeout_ms == -1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                )
        elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
        elif epoch < LEAVE_STATIC_EPOCH:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
        supported = self.settings.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in supported:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(supported)}.",
            )

    def _new_id(self) -> str:
        return uuid_to_str(random_uuid(self._runtime.random))

    # -- members of classic groups, also of consumer groups by the classic protocol -----------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        client_id: str,
        client_host: str,
        api_version: int,
        may_describe: Callable[[str], bool],
    ) -> Later[JoinGroupResponse]:
        if not request.group_id:
            return join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if (
            not self.settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= self.settings.max_session_timeout_ms
        ):
            return join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        suffix = str(UUID(int=self._runtime.random.getrandbits(128), version=4))
        # Apache Kafka stores addresses as Java prints them.
        client = Client(client_id, f"/{client_host}", api_version, suffix, may_describe)
        return self.coordinator.submit(
            self.partition_of(request.group_id),
            lambda shard, token, now_ms: shard.join(request, client, token, now_ms),
            join_refused,
        )

    def sync(self, request: SyncGroupRequest) -> Later[SyncGroupResponse]:
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.coordinator.submit(
            self.partition_of(request.group_id),
            lambda shard, token, now_ms: shard.sync(request, token, now_ms),
            lambda code: SyncGroupResponse(error_code=code),
        )

    def heartbeat(self, request: HeartbeatRequest) -> Later[HeartbeatResponse]:
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.coordinator.submit(
            self.partition_of(request.group_id),
            lambda shard, token, now_ms: shard.heartbeat(request, token, now_ms),
            # While the group loads, its members get no error.
            lambda code: HeartbeatResponse(
                error_code=ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
            ),
            barrier=False,
        )

    def leave(self, request: LeaveGroupRequest) -> Later[LeaveGroupResponse]:
        """`request` has the form of version 3 and later, with the leaving members in `members`."""
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)

        def refuse(code: ErrorCode) -> LeaveGroupResponse:
            if code is not ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=code)
            # The group does not exist.
            return LeaveGroupResponse(
                members=[
                    MemberResponse(
                        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                    )
                    for member in request.members
                ]
            )

        return self.coordinator.submit(
            self.partition_of(request.group_id),
            lambda shard, token, now_ms: shard.leave(request, token, now_ms),
            refuse,
        )

    # -- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic], api_version: int
    ) -> Later[OffsetCommitResponse]:
        """`topics` are the topics of the request that may be committed, with name and id."""
        return self.coordinator.submit(
            self.partition_of(request.group_id),
            lambda shard, token, now_ms: shard.commit_offsets(request, topics, api_version, token, now_ms),
            lambda code: OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
                            for asked in topic.partitions
                        ],
                    )
                    for topic in topics
                ]
            ),
            barrier=False,
            waits_for_load=True,
        )

    def commit_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        topics: list[TxnOffsetCommitRequestTopic],
        api_version: int,
        verifier: Verifier,
        when_done: CallWhenDone = at_any_time,
    ) -> Later[TxnOffsetCommitResponse]:
        """`topics` are the topics of the request that may be committed. `when_done` runs the step between the wait for
        the transaction's coordinator and the append."""
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
            return TxnOffsetCommitResponse(topics=[refused(topic, code) for topic in topics])
        index = self.partition_of(request.group_id)
        return self._transactional.commit(index, request, topics, api_version, verifier, when_done)

    def fetch_offsets(
        self,
        group_id: str,
        topics: list[OffsetFetchRequestTopics] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Later[OffsetFetchResponseGroup]:
        """`topics` None stands for all topics. The answer has the form of version 8 and later."""

        def refuse(code: ErrorCode) -> OffsetFetchResponseGroup:
            # Old consumers do not expect COORDINATOR_NOT_AVAILABLE here. They expect NOT_COORDINATOR, which also makes
            # them look for the coordinator.
            if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                code = ErrorCode.NOT_COORDINATOR
            return OffsetFetchResponseGroup(group_id=group_id, error_code=code)

        return self.coordinator.submit(
            self.partition_of(group_id),
            lambda shard, token, now_ms: shard.fetch_offsets(
                group_id, topics, require_stable, token, now_ms, member_id, member_epoch
            ),
            refuse,
        )

    def delete_offsets(self, request: OffsetDeleteRequest) -> Later[OffsetDeleteResponse]:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.coordinator.submit(
            self.partition_of(request.group_id),
            lambda shard, token, now_ms: shard.delete_offsets(request, token, now_ms),
            lambda code: OffsetDeleteResponse(error_code=code),
        )

    # -- administration -----------------------------------------------------------------------------------------------

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> Later[tuple[ErrorCode, list[ListedGroup]]]:
        """Return the groups that this node coordinates. The code is an error while a partition is loading, because
        groups would be missing."""
        wanted_states = frozenset(state.strip().lower() for state in states)
        wanted_types = frozenset(kind.strip().lower() for kind in types)

        def refuse(code: ErrorCode) -> ErrorCode | list[ListedGroup]:
            return [] if code is ErrorCode.NOT_COORDINATOR else code

        parts: list[Later[ErrorCode | list[ListedGroup]]] = [
            self.coordinator.submit(
                index,
                lambda shard, token, now_ms: shard.list_groups(wanted_states, wanted_types, token, now_ms),
                refuse,
            )
            for index in self.coordinator.led()
        ]

        def join(answers: list[ErrorCode | list[ListedGroup]]) -> tuple[ErrorCode, list[ListedGroup]]:
            groups: list[ListedGroup] = []
            for answer in answers:
                if isinstance(answer, ErrorCode):
                    return answer, []
                groups += answer
            return ErrorCode.NONE, groups

        answers: Later[list[ErrorCode | list[ListedGroup]]] = gather(parts)
        return then(answers, join)

    def describe_groups(self, group_ids: Iterable[str], api_version: int) -> Later[list[DescribedGroup]]:
        parts: list[Later[list[DescribedGroup]]] = []
        for index, members in self._by_partition(group_ids).items():
            parts.append(self._describe(index, members, api_version))
        return then(gather(parts), lambda answers: [group for answer in answers for group in answer])

    def _describe(self, index: int, group_ids: list[str], api_version: int) -> Later[list[DescribedGroup]]:
        return self.coordinator.submit(
            index,
            lambda shard, token, now_ms: shard.describe_groups(group_ids, api_version, token, now_ms),
            lambda code: [DescribedGroup(group_id=group_id, error_code=code) for group_id in group_ids],
        )

    def describe_consumer_groups(self, group_ids: Iterable[str]) -> Later[list[DescribedConsumerGroup]]:
        nameless: list[DescribedConsumerGroup] = []
        named: list[str] = []
        for group_id in group_ids:
            if group_id:
                named.append(group_id)
            else:
                nameless.append(DescribedConsumerGroup(error_code=ErrorCode.INVALID_GROUP_ID))
        parts: list[Later[list[DescribedConsumerGroup]]] = []
        for index, members in self._by_partition(named).items():
            parts.append(self._describe_consumers(index, members))
        return then(gather(parts), lambda answers: nameless + [group for answer in answers for group in answer])

    def _describe_consumers(self, index: int, group_ids: list[str]) -> Later[list[DescribedConsumerGroup]]:
        return self.coordinator.submit(
            index,
            lambda shard, token, now_ms: shard.describe_consumer_groups(group_ids, token, now_ms),
            lambda code: [DescribedConsumerGroup(group_id=group_id, error_code=code) for group_id in group_ids],
        )

    def delete_groups(self, group_ids: Iterable[str]) -> Later[list[DeletableGroupResult]]:
        parts: list[Later[list[DeletableGroupResult]]] = []
        for index, members in self._by_partition(dict.fromkeys(group_ids)).items():
            parts.append(self._delete_with_states(index, members))
        return then(gather(parts), lambda answers: [result for answer in answers for result in answer])

    def _delete_with_states(self, index: int, group_ids: list[str]) -> Later[list[DeletableGroupResult]]:
        """Delete groups. The states of share groups are deleted first, and groups for which that fails stay."""

        def delete(refused: dict[str, ErrorCode]) -> Later[list[DeletableGroupResult]]:
            failed = [DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in refused.items()]
            others = [group_id for group_id in group_ids if group_id not in refused]
            return then(self._delete(index, others), lambda deleted: failed + deleted) if others else failed

        return and_then(self.shares.begin_deletion(index, group_ids), delete)

    def _delete(self, index: int, group_ids: list[str]) -> Later[list[DeletableGroupResult]]:
        return self.coordinator.submit(
            index,
            lambda shard, token, now_ms: shard.delete_groups(group_ids, token, now_ms),
            lambda code: [DeletableGroupResult(group_id=group_id, error_code=code) for group_id in group_ids],
        )


def _special(error: KafkaError) -> str | None:
    """Return the error's message if it differs from the text of its code."""
    return None if error.message == error.code.message else error.message
