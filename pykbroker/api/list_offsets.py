"""ListOffsets, versions 1-11. KIP-79 (by time), KIP-734 (max timestamp), KIP-405 and KIP-1023 (tiers).

A consumer gets OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) if the high watermark is before the start
of the leader's epoch, because committed records of former leaders may lie between them (KIP-207).

It takes a timestamp; latest (-1), earliest (-2), max timestamp (-3, from version 7), earliest local (-4, from 8),
latest tiered (-5, from 9), earliest pending upload (-6, from 11); the isolation level; leader epochs. There is no
tiered storage here, so -5 and -6 get the response of a log without it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.replica.partition import Partition
from pykbroker.runtime.cold_reads import MAX_ROUNDS
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_log.disk import ColdRead
from pykbroker_log.log_config import StorageError
from pykbroker_log.time_search import FoundRecord, SearchKey, TimeSearch, TooMuchToSearch, TurnIsOver
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
        answer = _InTurns(ctx, request, progress)
        answer.after(rest)
        return answer.future


class _Progress:
    """The finished part of the response."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        #: the search in the next partition
        self.search = TimeSearch()


class _InTurns:
    """A response that waits for a device, for the next turn of the loop, or for a search off the loop."""

    def __init__(self, ctx: BrokerContext, request: ListOffsetsRequest, progress: _Progress) -> None:
        self._ctx = ctx
        self._request = request
        self._progress = progress
        self._rounds = 0
        #: the search that has just failed off the loop
        self._failed: SearchKey | None = None
        self.future: asyncio.Future[ListOffsetsResponse] = ctx.services.runtime.loop.create_future()

    def after(self, rest: ColdRead | TurnIsOver | TooMuchToSearch) -> None:
        """Continue when the cause of the wait is over."""
        services = self._ctx.services
        if isinstance(rest, ColdRead):
            cold_reads = services.replicas.logs.cold_reads
            cold_reads.load(rest.source, rest.offset, rest.length).add_done_callback(self._loaded)
        elif isinstance(rest, TooMuchToSearch):
            searching = services.batch_checks.search(rest.read)
            searching.add_done_callback(partial(self._found, rest.key))
            # The search stops if the client has left.
            self.future.add_done_callback(lambda _: searching.cancel())
        else:
            services.runtime.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.future.done():
            return
        self._progress.search.begin_turn()
        try:
            self.future.set_result(_respond(self._ctx, self._request, self._progress, self._rounds >= MAX_ROUNDS))
        except (ColdRead, TurnIsOver, TooMuchToSearch) as rest:
            self.after(rest)
        except Exception as error:  # noqa: BLE001  # dispatch logs it and closes the connection
            self.future.set_exception(error)

    def _loaded(self, loaded: asyncio.Future[None]) -> None:
        if loaded.cancelled():
            self.future.cancel()  # the node is stopping
            return
        # If the thread could not read, the log cannot read either, and raises the right error.
        self._rounds = MAX_ROUNDS if loaded.exception() is not None else self._rounds + 1
        self._go_on()

    def _found(self, key: SearchKey, found: asyncio.Future[FoundRecord | None]) -> None:
        if found.cancelled():
            self.future.cancel()
            return
        error = found.exception()
        if error is None:
            self._progress.search.found[key] = found.result()
        elif key != self._failed:
            # The batch may have been deleted since, so search again. If it is still there, the search fails again.
            self._failed = key
        elif not self.future.done():
            self.future.set_exception(error)
        self._go_on()


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
