"""ListOffsets, versions 1-11. KIP-79 (by time), KIP-734 (max timestamp), KIP-405 and KIP-1023 (tiers).

A consumer gets OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) if the high watermark is before the start
of the leader's epoch, because committed records of former leaders may lie between them (KIP-207).

It takes a timestamp; latest (-1), earliest (-2), max timestamp (-3, from version 7), earliest local (-4, from 8),
latest tiered (-5, from 9), earliest pending upload (-6, from 11); the isolation level; leader epochs. There is no
tiered storage here, so -5 and -6 get the response of a log without it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.replica.partition import Partition
from pykbroker.replica.search_turns import SearchTurns
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_log.disk import ColdRead
from pykbroker_log.log_config import StorageError
from pykbroker_log.time_search import TimeSearch, TooMuchToSearch, TurnIsOver
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_CONSUMER = -1
_DEBUGGING = -2


def handle(ctx: BrokerContext, request: ListOffsetsRequest) -> Later[ListOffsetsResponse]:
    asked = ((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    return when_open(ctx, asked, lambda: _respond_when_read(ctx, request))


def _respond_when_read(ctx: BrokerContext, request: ListOffsetsRequest) -> Later[ListOffsetsResponse]:
    progress = _Progress()
    try:
        return _respond(ctx, request, progress)
    except (ColdRead, TurnIsOver, TooMuchToSearch) as rest:
        services = ctx.services
        turns = SearchTurns(
            services.runtime.loop,
            services.replicas.logs.cold_reads,
            services.batch_checks,
            progress.search,
            partial(_respond, ctx, request, progress),
        )
        turns.after(rest)
        return turns.future


class _Progress:
    """The finished part of the response."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        #: the search in the next partition
        self.search = TimeSearch()


def _respond(
    ctx: BrokerContext, request: ListOffsetsRequest, progress: _Progress, wait: bool = False
) -> ListOffsetsResponse:
    """Return the response, without repeating the searches of an earlier turn. Raises ColdRead unless `wait`,
    TurnIsOver, TooMuchToSearch."""
    seen = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    refused: set[tuple[str, int]] = set()
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for topic in request.topics:
        allowed = ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
        if not topic.partitions:
            continue
        answers = topics.setdefault(topic.name, ListOffsetsTopicResponse(name=topic.name)).partitions
        for asked in topic.partitions:
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                place = topic.name, asked.partition_index
                if seen[place] > 1:
                    if place in refused:
                        continue
                    refused.add(place)
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the partition more than once")
                if place not in progress.answers:
                    progress.answers[place] = _answer(ctx, request, topic.name, asked, progress.search, wait)
                    progress.search.found.clear()
                answers.append(progress.answers[place])
            except KafkaError as error:
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error.code, timestamp=-1, offset=-1
                    )
                )
    return ListOffsetsResponse(topics=list(topics.values()))


def _answer(
    ctx: BrokerContext,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    search: TimeSearch,
    wait: bool,
) -> ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or ctx.api_version < _FIRST_VERSION.get(timestamp, 0):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"version {ctx.api_version} does not support the timestamp {timestamp}"
        )
    if request.isolation_level not in (0, 1):
        # Apache Kafka returns UNKNOWN_SERVER_ERROR. This code is the same as in Fetch.
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"isolation level {request.isolation_level} is neither 0 nor 1")
    partition: Partition = ctx.services.replicas.get(topic, asked.partition_index)
    if request.replica_id != _DEBUGGING:
        partition.require_leader(asked.current_leader_epoch)
    try:
        offset, found_timestamp, epoch = _find(partition, timestamp, request, search, wait)
    except KafkaError as error:
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < 5:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.message) from error
        raise
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found_timestamp,
        offset=offset,
        leader_epoch=epoch if ctx.api_version >= 4 else -1,
    )


def _find(
    partition: Partition, timestamp: int, request: ListOffsetsRequest, search: TimeSearch, wait: bool
) -> tuple[int, int, int]:
    """Return offset, timestamp and leader epoch, -1 for each of them that is unknown."""
    log = partition.log
    if request.replica_id != _CONSUMER:
        end = log.log_end_offset
    elif request.isolation_level == 1:
        end = log.last_stable_offset
    else:
        end = log.high_watermark
    is_known = request.replica_id != _CONSUMER or not _is_lagging(partition)
    if timestamp == LATEST:
        if not is_known:
            raise _not_available(partition)
        return end, -1, partition.leader_epoch
    if timestamp == EARLIEST:
        return log.log_start_offset, -1, log.epochs.of_offset(log.log_start_offset)
    if timestamp == EARLIEST_LOCAL:
        return log.local_log_start_offset, -1, log.epochs.of_offset(log.local_log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    try:
        if timestamp == MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp(wait=wait, search=search)
        else:
            found = log.offset_for_timestamp(timestamp, wait=wait, search=search)
    except StorageError as error:
        raise partition.storage_failed(error) from error
    if found is None or found[0] >= end:
        if not is_known:
            raise _not_available(partition)
        return -1, -1, -1
    return found


def _is_lagging(partition: Partition) -> bool:
    """Return True if the leader does not know yet that everything before its epoch is committed."""
    leader = partition.leader
    return leader is not None and leader.start_offset is not None and leader.start_offset > partition.high_watermark


def _not_available(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{partition}: the high watermark has not reached the start of the leader's epoch yet",
    )


HANDLERS = Handlers(handle)
