"""Produce, versions 3-13. KIP-98 (idempotence), KIP-467 (record errors), KIP-516 (topic ids), KIP-951 (leader hints).

Works: acks 0, 1 and all, idempotent producers, transactions (produce_in_transaction.py; KIP-98, KIP-890), every record
checked. acks=0 with an error closes the connection, as in Apache Kafka: it is the only way to tell.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from pykbroker.api import produce_in_transaction
from pykbroker.api.produce_in_transaction import Unverified, Verified, is_transactional, keep_records
from pykbroker.coordinator.later import settle
from pykbroker.metadata.names import INTERNAL_TOPICS
from pykbroker.net.connection import CloseConnection, Connection
from pykbroker.net.promise import Promise
from pykbroker.replica.partition import Partition
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.serving.context import BrokerContext
from pykbroker.serving.leaders import leader_hint, node_on_listener
from pykbroker.serving.log_opening import unopened
from pykbroker_log.results import AppendInfo
from pykbroker_log.validate import NotOneBatch, RecordErrors
from pykbroker_wire import produce_single
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from pykbroker.serving.services import BrokerServices

_TOPIC_IDS_FROM = 13
#: Where a batch of magic 2 keeps the low byte of its attributes, and the bit in it.
_ATTRIBUTES_AT = 22
_TRANSACTIONAL = 0x10
_CODEC = 0x07
_ZSTD = 4
#: The client that Kafka lets write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"
_ZSTD_FROM = 7
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_ACKS = (-1, 0, 1)
_NONE = ErrorCode.NONE
#: Shared by all answers that name no leader; never changed.
_NO_LEADER = LeaderIdAndEpoch()
#: Partition, last offset, and its answer, which is not true yet.
_Waiting = list[tuple[Partition, int, PartitionProduceResponse]]


def handle_frame(
    ctx: BrokerContext, frame: memoryview, position: int
) -> bytes | ProduceResponse | Promise | None:
    """A request for one partition, without building messages when all goes well; None: `handle` decides.

    No append was tried when it returns None, so that what is unusual about a request is judged in one place only.
    """
    version = ctx.api_version
    single = produce_single.parse(frame, position, version)
    if single is None:
        return None
    acks, timeout_ms, topic, index, records, transactional_id = single
    services: BrokerServices = ctx.services
    if type(topic) is bytes:
        image = services.metadata.image.topics.by_id.get(topic)
        if image is None:
            return None
        name = image.name
    else:
        name = cast(str, topic)
    if (
        (acks != -1 and acks != 1)
        or len(records) <= _ATTRIBUTES_AT
        or name in INTERNAL_TOPICS
        or not ctx.authorize(Operation.WRITE, Resource.TOPIC, name)
    ):
        return None
    partition = services.replicas.find(name, index)
    if partition is None or (acks == -1 and not partition.is_alone):
        return None
    guard: object | None = None
    if transactional_id is not None or records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        ready, guard = produce_in_transaction.verify_at_once(ctx, partition, records, transactional_id)
        if not ready:
            return None
    try:
        info = partition.append(records, required_acks=acks, now_ms=ctx.arrival_ms, verification=guard)
    except KafkaError as error:
        # Not to be tried again: the batch may carry its offset already.
        answer = TopicProduceResponse(partition_responses=[_failure(ctx, name, index, error, partition)])
        if type(topic) is bytes:
            answer.topic_id = topic
        else:
            answer.name = name
        return _with_endpoints(ctx, ProduceResponse(responses=[answer]))
    if info.last_offset >= partition.owed_from:
        return _when_flushed(ctx, partition, topic, info, acks, timeout_ms)
    return produce_single.encode_answer(
        ctx.correlation_id, topic, index, info.first_offset, info.log_append_time_ms, info.log_start_offset
    )


def with_throttle(frame: bytes, throttle_ms: int) -> bytes:
    """An answer of `handle_frame`, with its throttle time: the last field, before the tagged ones."""
    return frame[:-5] + throttle_ms.to_bytes(4, "big") + frame[-1:]


def _when_flushed(
    ctx: BrokerContext, partition: Partition, topic: bytes | str, info: AppendInfo, acks: int, timeout_ms: int
) -> Promise:
    """The answer of `handle_frame` that a flush is owed before. As in Apache Kafka that may take its time, and the
    request's timeout begins behind it."""
    promise = Promise()

    def flushed(code: ErrorCode) -> None:
        if not code and (acks != -1 or partition.high_watermark > info.last_offset):
            place = topic, partition.index
            times = info.first_offset, info.log_append_time_ms, info.log_start_offset
            promise.set_result(produce_single.encode_answer(ctx.correlation_id, *place, *times))
            return
        answer = _answer(partition.index, info)
        named = {"topic_id": topic} if type(topic) is bytes else {"name": topic}
        response = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[answer], **named)])
        if code:
            # The partition was taken away.
            _fail(answer, KafkaError(code))
            promise.set_result(_with_endpoints(ctx, response))
            return
        # It has got another replica to wait for.
        wait = _Wait(ctx, acks, timeout_ms, response, [(partition, info.last_offset, answer)])
        wait.begin().add_done_callback(lambda done: None if done.cancelled() else promise.set_result(done.result()))

    partition.when_flushed(info.last_offset + 1, flushed)
    return promise


def handle(ctx: BrokerContext, request: ProduceRequest) -> Any:
    """A response, a future of one, or None: acks=0 has no answer."""
    opening = unopened(ctx, _asked(ctx, request))
    return _handle(ctx, request) if opening is None else _when_open(ctx, request, opening)


def _asked(ctx: BrokerContext, request: ProduceRequest) -> Iterator[tuple[str, int]]:
    topics = ctx.services.metadata.image.topics
    by_id = ctx.api_version >= _TOPIC_IDS_FROM
    for topic in request.topic_data:
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        if image is not None:
            for asked in topic.partition_data:
                yield image.name, asked.index


def _when_open(ctx: BrokerContext, request: ProduceRequest, opening: asyncio.Future[None]) -> asyncio.Future[Any]:
    """The next request of this connection may be for the same partitions, and must not overtake: it is not read before
    this one is appended, as in Apache Kafka."""
    keep_records(request)
    connection = ctx.peer if isinstance(ctx.peer, Connection) else None
    if connection is not None:
        connection.mute()
    answer: asyncio.Future[Any] = ctx.services.runtime.loop.create_future()

    def opened(done: asyncio.Future[None]) -> None:
        if done.cancelled():
            answer.cancel()  # the node is stopping
        else:
            # Also when the client is gone: without acks it does not wait for more than that its bytes were taken.
            settle(answer, lambda: _handle(ctx, request))
        if connection is not None:
            connection.unmute()

    opening.add_done_callback(opened)
    return answer


def _handle(ctx: BrokerContext, request: ProduceRequest) -> Any:
    refused, transactional = _judge(ctx, request)
    if transactional and not refused:
        return produce_in_transaction.handle(ctx, request, append)
    return append(ctx, request, None, refused)


def append(
    ctx: BrokerContext, request: ProduceRequest, verified: Verified | None, refused: ErrorCode = _NONE
) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
    """Append what may be appended. `verified`: what is known of the partitions of a transaction; `refused`: what is
    wrong with all of it."""
    acks = request.acks
    services = ctx.services
    now_ms = ctx.arrival_ms
    by_id = ctx.api_version >= _TOPIC_IDS_FROM
    before_zstd = ctx.api_version < _ZSTD_FROM
    topics: list[TopicProduceResponse] = []
    waiting: _Waiting = []
    failed = False
    for topic in request.topic_data:
        name: str | None
        topic_error = refused
        if by_id:
            image = services.metadata.image.topics.by_id.get(topic.topic_id)
            name = None if image is None else image.name
        else:
            name = topic.name
        if topic_error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            pass  # of the whole request, before anything else is asked
        elif name is None:
            topic_error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not ctx.authorize(Operation.WRITE, Resource.TOPIC, name):
            topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name in INTERNAL_TOPICS and not topic_error and ctx.client_id != _ADMIN_CLIENT_ID:
            there = name in services.metadata.image.topics.by_name
            topic_error = ErrorCode.INVALID_TOPIC_EXCEPTION if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers: list[PartitionProduceResponse] = []
        for asked in topic.partition_data if len(topic.partition_data) == 1 else _each_once(topic.partition_data):
            index = asked.index
            partition: Partition | None = None
            try:
                if topic_error or name is None:
                    raise KafkaError(topic_error)
                records = asked.records
                if records is None:
                    raise NotOneBatch(ErrorCode.INVALID_RECORD, "the records field is null")
                if before_zstd and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _CODEC == _ZSTD:
                    raise NotOneBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
                guard = None
                if verified is not None:
                    guard = verified.get((name, index))
                    if isinstance(guard, KafkaError):
                        raise guard
                partition = services.replicas.get(name, index)
                info = partition.append(records, required_acks=acks, now_ms=now_ms, verification=guard)
            except KafkaError as error:
                failed = True
                answers.append(_failure(ctx, name, index, error, partition))
                continue
            answer = _answer(index, info)
            answers.append(answer)
            last = info.last_offset
            if (acks == -1 and partition.high_watermark <= last) or last >= partition.owed_from:
                waiting.append((partition, last, answer))
        if answers:
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if acks == 0:
        if failed:
            _close(ctx, topics)
        return None
    response = ProduceResponse(responses=topics)
    if waiting:
        return _Wait(ctx, acks, request.timeout_ms, response, waiting).begin()
    return _with_endpoints(ctx, response) if failed else response


def _judge(ctx: BrokerContext, request: ProduceRequest) -> tuple[ErrorCode, bool]:
    """What is wrong with the request as a whole, and whether it belongs to a transaction. CVE-2018-17196: every batch
    of it tells if it is transactional. One batch: a partition with more of them is refused anyway."""
    transactional = any(
        is_transactional(asked.records) for topic in request.topic_data for asked in topic.partition_data
    )
    if transactional and (
        request.transactional_id is None
        or not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id)
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True
    return _NONE if request.acks in _ACKS else ErrorCode.INVALID_REQUIRED_ACKS, transactional


def _each_once(asked: list[PartitionProduceData]) -> Iterable[PartitionProduceData]:
    """Of a partition that stands there twice the last one counts."""
    return {one.index: one for one in asked}.values()


def _answer(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
        current_leader=_NO_LEADER,
    )


def _failure(
    ctx: BrokerContext, name: str | None, index: int, error: KafkaError, partition: Partition | None
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index)
    _fail(answer, error, partition)
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.api_version >= 10 and name is not None:
        leader, epoch, _ = leader_hint(ctx.services, ctx.listener_name, name, index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return answer


def _fail(answer: PartitionProduceResponse, error: KafkaError, partition: Partition | None = None) -> None:
    """`partition`: whose log refused the records. It says where it begins, unless the records never reached it."""
    answer.error_code = error.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    log = None if partition is None else partition.log_if_open
    reached = error.code not in _WITHOUT_LOG_START and not isinstance(error, NotOneBatch)
    answer.log_start_offset = log.log_start_offset if log is not None and reached else -1
    if isinstance(error, RecordErrors):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
        answer.error_message = error.message
    elif isinstance(error, Unverified):
        answer.error_message = error.message or None
    elif isinstance(error, NotOneBatch) and error.code == ErrorCode.CORRUPT_MESSAGE:
        # Apache Kafka fills the message of these two kinds only; the others carry null.
        answer.error_message = error.message or None


def _close(ctx: BrokerContext, topics: list[TopicProduceResponse]) -> None:
    failures = [
        f"{topic.name}-{answer.index}: {ErrorCode(answer.error_code).name}"
        for topic in topics
        for answer in topic.partition_responses
        if answer.error_code
    ]
    raise CloseConnection(f"a Produce request with acks=0 from client {ctx.client_id!r} failed: {', '.join(failures)}")


def _with_endpoints(ctx: BrokerContext, response: ProduceResponse) -> ProduceResponse:
    """Where the leaders are that answers name, each once."""
    if ctx.api_version >= 10:
        leaders = dict.fromkeys(
            answer.current_leader.leader_id
            for topic in response.responses
            for answer in topic.partition_responses
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        nodes = [node_on_listener(ctx.services, leader, ctx.listener_name) for leader in leaders if leader >= 0]
        response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
            if node is not None
        ]
    return response


class _Wait:
    """An answer that is not true yet: first the flushes that are owed, however long they take, as Apache Kafka's
    append does; then with acks=all every partition has to commit, for which the request gives it time."""

    def __init__(
        self,
        ctx: BrokerContext,
        acks: int,
        timeout_ms: int,
        response: ProduceResponse,
        waiting: _Waiting,
    ) -> None:
        self._ctx = ctx
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._response = response
        self._waiting = waiting
        self._loop = ctx.services.runtime.loop
        self._future: asyncio.Future[ProduceResponse] = self._loop.create_future()
        self._unflushed = len(waiting)
        self._open = {id(answer): answer for _, _, answer in waiting}

    def begin(self) -> asyncio.Future[ProduceResponse]:
        for partition, last, answer in self._waiting:
            partition.when_flushed(last + 1, functools.partial(self._flushed, partition, answer))
        return self._future

    def _flushed(self, partition: Partition, answer: PartitionProduceResponse, code: ErrorCode) -> None:
        if code or self._acks != -1:
            self.finish(partition, answer, code)
        self._unflushed -= 1
        if not self._unflushed and self._open:
            self._await_commits()

    def _await_commits(self) -> None:
        for partition, last, answer in self._waiting:
            if id(answer) in self._open:
                partition.when_committed(last + 1, functools.partial(self.finish, partition, answer))
        if not self._future.done():
            timer = self._loop.call_later(max(0, self._timeout_ms) / 1000, self._expired)
            self._future.add_done_callback(lambda _: timer.cancel())

    def finish(self, partition: Partition | None, answer: PartitionProduceResponse, code: ErrorCode) -> None:
        if self._open.pop(id(answer), None) is None:
            return
        if not code and self._acks == -1 and partition is not None and not partition.has_enough_replicas:
            # The replica set shrank meanwhile, and that is why it is committed.
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if code:
            _fail(answer, KafkaError(code))
        if not self._open and not self._future.done():
            self._future.set_result(_with_endpoints(self._ctx, self._response))

    def _expired(self) -> None:
        for answer in list(self._open.values()):
            self.finish(None, answer, ErrorCode.REQUEST_TIMED_OUT)
