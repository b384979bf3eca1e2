"""Share groups as request handlers see them: one method per API, which returns an answer or a future of one.

Responsible for the checks that need no group, for carrying the two halves of an operation to the shard and share
coordinators, and for each API's answer for the case that the coordinator cannot answer. Not responsible for
authorization (api/), nor for anything that a group decides (share_operations.py, share_offsets.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pykbroker.coordinator.group.share.share_member import JOIN_EPOCH, LEAVE_EPOCH
from pykbroker.coordinator.group.share.share_offsets import (
    GroupsDeletion,
    OffsetsAlteration,
    OffsetsDeletion,
    begin_alteration,
    begin_groups_deletion,
    begin_offsets_deletion,
    end_offsets_deletion,
)
from pykbroker.coordinator.group.share.share_operations import (
    describe_share_groups,
    forget_join,
    initialized_partitions,
    share_heartbeat,
    share_topics_deleted,
    states_answered,
)
from pykbroker.coordinator.group.share.share_states import (
    UNSET_OFFSET,
    ShareStateKeeper,
    ShareSummary,
    TopicIdPartition,
)
from pykbroker.coordinator.group.share.share_step import ShareClient, SharesToInitialize
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.result import Result, Token
from pykbroker.runtime.later import Later, and_then, gather, then
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from pykbroker_wire.messages.share_group_describe import DescribedGroup
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard

#: The lag of a partition whose start or whose count of completed deliveries is not known.
_NO_LAG = -1


class EndOffsets(Protocol):
    """Asks the leaders of partitions for their ends."""

    def latest(self, partitions: Sequence[tuple[str, int]]) -> Later[list[tuple[ErrorCode, int]]]:
        """Return an error, or the offset of the next record, for each (topic, partition) in the order of the
        request."""
        ...


class ShareGroupService:
    """The share groups of one broker. Handlers use them as `ctx.services.groups.shares`."""

    def __init__(
        self,
        coordinator: CoordinatorRuntime[GroupShard],
        partition_of: Callable[[str], int],
        topics: GroupTopics,
        keeper: ShareStateKeeper,
        ends: EndOffsets,
    ) -> None:
        """`partition_of` returns the partition of `__consumer_offsets` of a group."""
        self._coordinator = coordinator
        self._partition_of = partition_of
        self._topics = topics
        self._keeper = keeper
        self._ends = ends

    # -- share coordinators -------------------------------------------------------------------------------------------

    def effect(self, effect: SharesToInitialize) -> None:
        """Let share coordinators initialise share partitions, and pass their answers to the group. If this node is no
        longer its coordinator by then, the next one asks again."""
        answer = self._keeper.initialize(effect.group_id, effect.starts)
        places = [(start.topic_id, start.partition) for start in effect.starts]

        def pass_on(codes: list[ErrorCode]) -> Later[ErrorCode]:
            answers = dict(zip(places, codes, strict=True))
            return self._states_answered(effect.group_id, answers, asked_by_member=True)

        and_then(answer, pass_on)

    def _states_answered(
        self, group_id: str, answers: Mapping[TopicIdPartition, ErrorCode], *, asked_by_member: bool
    ) -> Later[ErrorCode]:
        """Return NONE once the answers are committed, otherwise the error."""
        done: Later[ErrorCode | None] = self._coordinator.submit(
            self._partition_of(group_id),
            lambda shard, token, now_ms: states_answered(
                shard, group_id, answers, token, now_ms, asked_by_member=asked_by_member
            ),
            lambda code: code,
        )
        return then(done, lambda code: ErrorCode.NONE if code is None else code)

    def topics_deleted(self, topic_ids: Sequence[bytes]) -> None:
        self._coordinator.input_all(lambda shard, now_ms: share_topics_deleted(shard, topic_ids, now_ms))

    # -- members ------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> Later[ShareGroupHeartbeatResponse]:
        """The answer to a join may have to wait. If its future is cancelled, the join waits no longer."""
        message = _wrong(request)
        if message is not None:
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        client = ShareClient(client_id, f"/{client_host}")
        index = self._partition_of(request.group_id)
        own_token: Token | None = None

        def operation(shard: GroupShard, token: Token, now_ms: int) -> Result:
            nonlocal message, own_token
            own_token = token
            try:
                result = share_heartbeat(shard, request, client, token, now_ms)
            except KafkaError as error:
                message = None if error.message == error.code.message else error.message
                raise
            result.collectable = False
            return result

        answer: Later[ShareGroupHeartbeatResponse] = self._coordinator.submit(
            index,
            operation,
            lambda code: ShareGroupHeartbeatResponse(error_code=code, error_message=message),
            barrier=False,
        )
        if request.member_epoch == JOIN_EPOCH and isinstance(answer, asyncio.Future) and own_token is not None:
            answer.add_done_callback(partial(self._ended, index, request.group_id, request.member_id, own_token))
        return answer

    def _ended(
        self,
        index: int,
        group_id: str,
        member_id: str,
        token: Token,
        answer: asyncio.Future[ShareGroupHeartbeatResponse],
    ) -> None:
        """Forget a join whose connection has ended."""
        if answer.cancelled():

            def operation(shard: GroupShard, own_token: Token, _now_ms: int) -> Result:
                result = forget_join(shard, group_id, member_id, token)
                result.reply(own_token, None)
                return result

            self._coordinator.submit(index, operation, lambda code: code)

    def describe(self, group_ids: Iterable[str]) -> Later[list[DescribedGroup]]:
        nameless: list[DescribedGroup] = []
        named: dict[int, list[str]] = {}
        for group_id in group_ids:
            if group_id:
                named.setdefault(self._partition_of(group_id), []).append(group_id)
            else:
                nameless.append(DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID))
        parts = [self._describe(index, group_ids) for index, group_ids in named.items()]
        return then(gather(parts), lambda answers: nameless + [group for answer in answers for group in answer])

    def _describe(self, index: int, group_ids: list[str]) -> Later[list[DescribedGroup]]:
        return self._coordinator.submit(
            index,
            lambda shard, token, now_ms: describe_share_groups(shard, group_ids, token, now_ms),
            lambda code: [DescribedGroup(group_id=group_id, error_code=code) for group_id in group_ids],
        )

    # -- administrators -----------------------------------------------------------------------------------------------

    def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> Later[AlterShareGroupOffsetsResponse]:
        """Set the start offsets of share partitions. `request` has the topics that may be altered."""
        if not request.group_id:
            return _not_altered(ErrorCode.INVALID_GROUP_ID)
        begun: Later[tuple[KafkaError | None, OffsetsAlteration]] = self._first_half(
            request.group_id, lambda shard, token, now_ms: begin_alteration(shard, request, token, now_ms)
        )

        def ask(found: tuple[KafkaError | None, OffsetsAlteration]) -> Later[AlterShareGroupOffsetsResponse]:
            refused, half = found
            if refused is not None:
                return _not_altered(refused.code, refused.message)
            if not half.starts:
                return half.response
            answer = self._keeper.initialize(request.group_id, half.starts)
            return and_then(answer, lambda codes: finish(half, codes))

        def finish(half: OffsetsAlteration, codes: list[ErrorCode]) -> Later[AlterShareGroupOffsetsResponse]:
            places = [(start.topic_id, start.partition) for start in half.starts]
            answers = dict(zip(places, codes, strict=True))
            for topic in half.response.responses:
                for partition in topic.partitions:
                    code = answers.get((topic.topic_id, partition.partition_index), ErrorCode.NONE)
                    if code and not partition.error_code:
                        partition.error_code, partition.error_message = code, code.message
            done = self._states_answered(request.group_id, answers, asked_by_member=False)
            return then(done, lambda code: _not_altered(code) if code else half.response)

        return and_then(begun, ask)

    def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> Later[DeleteShareGroupOffsetsResponse]:
        """Delete the states of all share partitions of topics. `request` has the topics that may be deleted."""
        group_id = request.group_id
        if not group_id:
            return _not_deleted(ErrorCode.INVALID_GROUP_ID)
        begun: Later[tuple[KafkaError | None, OffsetsDeletion]] = self._first_half(
            group_id, lambda shard, token, now_ms: begin_offsets_deletion(shard, request, token, now_ms)
        )

        def ask(found: tuple[KafkaError | None, OffsetsDeletion]) -> Later[DeleteShareGroupOffsetsResponse]:
            refused, half = found
            if refused is not None:
                return _not_deleted(refused.code, refused.message)
            if not half.partitions:
                return DeleteShareGroupOffsetsResponse(responses=half.failed)
            answer = self._keeper.delete(group_id, half.partitions)
            return and_then(answer, lambda codes: finish(half, codes))

        def finish(half: OffsetsDeletion, codes: list[ErrorCode]) -> Later[DeleteShareGroupOffsetsResponse]:
            by_topic = dict.fromkeys((topic_id for topic_id, _ in half.partitions), ErrorCode.NONE)
            for (topic_id, _), code in zip(half.partitions, codes, strict=True):
                by_topic[topic_id] = by_topic[topic_id] or code
            gone = [topic_id for topic_id, code in by_topic.items() if not code]
            response = DeleteShareGroupOffsetsResponse(responses=[self._deleted(*one) for one in by_topic.items()])
            response.responses += half.failed
            if not gone:
                return response
            done: Later[ErrorCode | None] = self._coordinator.submit(
                self._partition_of(group_id),
                lambda shard, token, now_ms: end_offsets_deletion(shard, group_id, gone, token, now_ms),
                lambda code: code,
            )
            return then(done, lambda code: _not_deleted(code) if code else response)

        return and_then(begun, ask)

    def _deleted(self, topic_id: bytes, code: ErrorCode) -> DeleteShareGroupOffsetsResponseTopic:
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=self._topics.name_of(topic_id) or "",
            topic_id=topic_id,
            error_code=code,
            error_message=code.message if code else None,
        )

    def _first_half(self, group_id: str, operation: Callable[[GroupShard, Token, int], Result]) -> Any:
        """Return (None, answer of the first half of an operation) or (KafkaError, None)."""
        refused: KafkaError | None = None

        def noting(shard: GroupShard, token: Token, now_ms: int) -> Result:
            nonlocal refused
            try:
                return operation(shard, token, now_ms)
            except KafkaError as error:
                refused = error
                raise

        answer: Later[Any] = self._coordinator.submit(
            self._partition_of(group_id),
            noting,
            lambda code: refused if refused is not None and refused.code is code else KafkaError(code),
        )
        return then(answer, lambda found: (found, None) if isinstance(found, KafkaError) else (None, found))

    def begin_deletion(self, index: int, group_ids: list[str]) -> Later[dict[str, ErrorCode]]:
        """Delete the states of the share groups among these groups, which one partition coordinates. Return the groups
        that may not be deleted, with their errors."""
        begun: Later[GroupsDeletion] = self._coordinator.submit(
            index,
            lambda shard, token, now_ms: begin_groups_deletion(shard, group_ids, token, now_ms),
            lambda code: GroupsDeletion({}, dict.fromkeys(group_ids, code)),
        )

        def ask(half: GroupsDeletion) -> Later[dict[str, ErrorCode]]:
            answers = [self._keeper.delete(group_id, places) for group_id, places in half.partitions.items()]

            def judge(found: list[list[ErrorCode]]) -> dict[str, ErrorCode]:
                for group_id, codes in zip(half.partitions, found, strict=True):
                    failed = next((code for code in codes if code), None)
                    if failed is not None:
                        half.refused[group_id] = failed
                return half.refused

            return then(gather(answers), judge)

        return and_then(begun, ask)

    def describe_offsets(
        self, group_id: str, topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None
    ) -> Later[DescribeShareGroupOffsetsResponseGroup]:
        """Return the start offset and the lag of share partitions, of all that have a state if `topics` is None.
        Absence of a group, a topic or a state is no error: the start offset is -1."""
        if not group_id:
            # Apache Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR.
            code = ErrorCode.INVALID_GROUP_ID
            return DescribeShareGroupOffsetsResponseGroup(error_code=code, error_message=code.message)
        if topics is None:
            found = self._initialized(group_id)

            def read(
                answer: tuple[ErrorCode, list[TopicIdPartition]],
            ) -> Later[DescribeShareGroupOffsetsResponseGroup]:
                code, places = answer
                if code:
                    return DescribeShareGroupOffsetsResponseGroup(
                        group_id=group_id, error_code=code, error_message=code.message
                    )
                known = [place for place in places if self._topics.name_of(place[0]) is not None]
                return self._summaries(group_id, known, [])

            return and_then(found, read)
        places: dict[TopicIdPartition, None] = {}
        missing: list[DescribeShareGroupOffsetsResponseTopic] = []
        for topic in topics:
            topic_id = self._topics.id_of(topic.topic_name)
            if topic_id is not None:
                places.update(dict.fromkeys((topic_id, partition) for partition in topic.partitions))
                continue
            absent = DescribeShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
            for partition in topic.partitions:
                absent.partitions.append(
                    DescribeShareGroupOffsetsResponsePartition(partition_index=partition, start_offset=UNSET_OFFSET)
                )
            missing.append(absent)
        return self._summaries(group_id, list(places), missing)

    def _initialized(self, group_id: str) -> Later[tuple[ErrorCode, list[TopicIdPartition]]]:
        found: Later[Any] = self._coordinator.submit(
            self._partition_of(group_id),
            lambda shard, token, now_ms: initialized_partitions(shard, group_id, token, now_ms),
            lambda code: code,
        )
        return then(found, lambda places: (places, []) if isinstance(places, ErrorCode) else (ErrorCode.NONE, places))

    def _summaries(
        self, group_id: str, places: list[TopicIdPartition], missing: list[DescribeShareGroupOffsetsResponseTopic]
    ) -> Later[DescribeShareGroupOffsetsResponseGroup]:
        """`missing` are the topics that do not exist, with their answers."""
        if not places:
            return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=missing)
        names = {topic_id: self._topics.name_of(topic_id) or "" for topic_id, _ in places}
        # A share coordinator would refuse a partition that does not exist, and would be asked again and again.
        existing = [place for place in places if 0 <= place[1] < self._topics.partition_count(place[0])]

        def with_ends(found: list[ShareSummary]) -> Later[DescribeShareGroupOffsetsResponseGroup]:
            known = dict(zip(existing, found, strict=True))
            summaries = [known.get(place, ShareSummary()) for place in places]
            counted = [place for place, summary in zip(places, summaries, strict=True) if _has_lag(summary)]
            ends: Later[list[tuple[ErrorCode, int]]] = []
            if counted:
                ends = self._ends.latest([(names[topic_id], partition) for topic_id, partition in counted])
            return then(ends, lambda latest: answer(summaries, dict(zip(counted, latest, strict=True))))

        def answer(
            summaries: list[ShareSummary], ends: Mapping[TopicIdPartition, tuple[ErrorCode, int]]
        ) -> DescribeShareGroupOffsetsResponseGroup:
            topics: dict[bytes, DescribeShareGroupOffsetsResponseTopic] = {}
            for place, summary in zip(places, summaries, strict=True):
                topic_id, partition = place
                topic = topics.get(topic_id)
                if topic is None:
                    topic = topics[topic_id] = DescribeShareGroupOffsetsResponseTopic(
                        topic_name=names[topic_id], topic_id=topic_id
                    )
                topic.partitions.append(_described(partition, summary, ends.get(place)))
            return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=[*topics.values(), *missing])

        return and_then(self._keeper.read_summaries(group_id, existing), with_ends)


def _wrong(request: ShareGroupHeartbeatRequest) -> str | None:
    """Return what is wrong with the fields of the request alone, in Apache Kafka's order."""
    for value, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            return "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    return None


def _not_altered(code: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message or code.message)


def _not_deleted(code: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message or code.message)


def _has_lag(summary: ShareSummary) -> bool:
    return not summary.error and summary.start_offset != UNSET_OFFSET and summary.delivery_complete_count != -1


def _described(
    partition: int, summary: ShareSummary, end: tuple[ErrorCode, int] | None
) -> DescribeShareGroupOffsetsResponsePartition:
    if summary.error:
        # As for a partition without offsets.
        summary = ShareSummary()
    described = DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=_NO_LAG,
    )
    if end is not None:
        code, offset = end
        if code:
            return DescribeShareGroupOffsetsResponsePartition(
                partition_index=partition, error_code=code, error_message=code.message
            )
        described.lag = offset - summary.start_offset - summary.delivery_complete_count
    return described
