"""Produce, versions 3-13. KIP-98 (idempotence), KIP-467 (record errors), KIP-516 (topic ids), KIP-951 (leader hints).

It supports acks 0, 1 and all, idempotent producers and transactions (KIP-98, KIP-890), and checks every record. An
error with acks=0 closes the connection, as in Apache Kafka, because that is the only way to report it.

`handle_frame` takes the simplest requests. `handle` takes all requests. It finds and checks the topics, waits for logs
that are not open, asks for the guards of a transaction, appends, and waits for the state that the acknowledgement
promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pykbroker.client_view.leader_hints import leader_hint, node_on_listener
from pykbroker.coordinator.request_guards import GuardsByPartition, RequestVerification
from pykbroker.coordinator.transaction.guards import (
    Unverified,
    for_client,
    guard_at_once,
    is_transactional,
    verification_of,
)
from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import unopened
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.topic_names import INTERNAL_TOPICS
from pykbroker.net.connection import CloseConnection
from pykbroker.net.promise import Promise
from pykbroker.replica.delayed_produce import ACKS_ALL, DelayedProduce
from pykbroker.replica.partition import Partition
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_log.results import AppendInfo
from pykbroker_log.validate import CheckedBatch, NotOneBatch, RecordErrors, TooMuchAtOnce
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
    TopicProduceData,
    TopicProduceResponse,
)
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import ATTRIBUTES_AT, CODEC_MASK
from pykbroker_wire.records.compression import Codec

_TOPIC_IDS_FROM = 13
#: The client that Kafka allows to write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"
_ZSTD = int(Codec.ZSTD)
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
_WRITE, _TOPIC = Operation.WRITE, Resource.TOPIC
_NONE_FAILED: dict[int, ErrorCode] = {}
#: Shared by all responses that name no leader; never changed.
_NO_LEADER = LeaderIdAndEpoch()
T = TypeVar("T")


def handle_frame(ctx: BrokerContext, frame: memoryview, position: int) -> bytes | ProduceResponse | Promise | None:
    """Handle a request for one partition, without building messages if all goes well. Return None to let `handle`
    decide.

    Nothing was appended when it returns None, so an unusual request is judged in one place only.
    """
    version = ctx.api_version
    single = produce_single.parse(frame, position, version)
    if single is None:
        return None
    acks, timeout_ms, topic, index, records, transactional_id = single
    services = ctx.services
    if isinstance(topic, bytes):
        image = services.metadata.image.topics.by_id.get(topic)
        if image is None:
            return None
        name = image.name
    else:
        name = topic
    if (
        (acks != -1 and acks != 1)
        or len(records) <= ATTRIBUTES_AT
        or name in INTERNAL_TOPICS
        or not ctx.authorize(_WRITE, _TOPIC, name)
    ):
        return None
    if services.inbox is not None and services.inbox.messages:
        # The authorizer made this loop wait, so the new metadata must be applied before the append.
        return None
    partition = services.replicas.find(name, index)
    if partition is None or (acks == -1 and not partition.is_alone):
        return None
    guard: object | None = None
    if transactional_id is not None or is_transactional(records):
        if transactional_id is None or not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
            return None
        ready, guard = guard_at_once(services.verifier, partition, records, transactional_id, version=version)
        if not ready:
            return None
    try:
        info = partition.append(records, required_acks=acks, now_ms=ctx.arrival_ms, verification=guard, at_once=True)
    except TooMuchAtOnce:
        services.batch_checks.met_by = ctx
        return None
    except KafkaError as error:
        # Do not repeat the append, because the batch may already have its offset.
        return _with_endpoints(ctx, _single(topic, _failure(ctx, name, index, error, partition)))
    if info.last_offset >= partition.owed_from:
        return _when_flushed(ctx, partition, topic, info, acks, timeout_ms)
    return produce_single.encode_answer(
        ctx.correlation_id, topic, index, info.first_offset, info.log_append_time_ms, info.log_start_offset
    )


def _when_flushed(
    ctx: BrokerContext, partition: Partition, topic: bytes | str, info: AppendInfo, acks: int, timeout_ms: int
) -> Promise:
    """Return the response of `handle_frame` that must wait for a flush. After the flush the records are usually
    committed; if not, the request waits like any other."""
    promise = Promise()
    index, last = partition.index, info.last_offset

    def answer(failed: dict[int, ErrorCode]) -> bytes | ProduceResponse:
        if failed:
            return _with_endpoints(ctx, _single(topic, _failure(ctx, None, index, KafkaError(failed[0]), None)))
        return produce_single.encode_answer(
            ctx.correlation_id, topic, index, info.first_offset, info.log_append_time_ms, info.log_start_offset
        )

    def flushed(code: ErrorCode) -> None:
        if code:
            promise.set_result(answer({0: code}))
        elif acks != ACKS_ALL or (partition.has_committed(last) and partition.had_enough_replicas):
            promise.set_result(answer(_NONE_FAILED))
        else:
            _wait(ctx, promise, [(partition, last)], acks, timeout_ms, answer)

    partition.when_flushed(last + 1, flushed)
    return promise


def _single(topic: bytes | str, answer: PartitionProduceResponse) -> ProduceResponse:
    """Return the response about one partition. `topic`: its id or its name, as in the request."""
    named = {"topic_id": topic} if type(topic) is bytes else {"name": topic}
    return ProduceResponse(responses=[TopicProduceResponse(partition_responses=[answer], **named)])


def handle(ctx: BrokerContext, request: ProduceRequest) -> ProduceResponse | Promise | None:
    """Return the response, now or later; None with acks=0, which has no response."""
    return _Produce(ctx, request).start()


class _Topic:
    """A topic of the request: the request's data, its name here, the error of all its partitions, and the responses of
    the partitions that were tried."""

    __slots__ = ("answers", "asked", "error", "name", "partitions")

    def __init__(self, asked: TopicProduceData, name: str | None) -> None:
        self.asked = asked
        self.name = name
        self.error = _NONE
        self.answers: list[PartitionProduceResponse] = []
        # A partition may be in the request twice; then its last entry counts.
        listed = asked.partition_data
        self.partitions: Iterable[PartitionProduceData] = (
            listed if len(listed) == 1 else {one.index: one for one in listed}.values()
        )


class _Produce:
    """One request, in steps: find and check topics, open, guard, append, wait. `start` and each step return the
    response, or the promise of it if they must wait."""

    __slots__ = (
        "_appended",
        "_ctx",
        "_failed",
        "_guards",
        "_left",
        "_promise",
        "_request",
        "_topics",
        "_transactional",
    )

    def __init__(self, ctx: BrokerContext, request: ProduceRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._promise: Promise | None = None
        topics = ctx.services.metadata.image.topics
        by_id = ctx.api_version >= _TOPIC_IDS_FROM
        self._topics: list[_Topic] = []
        self._transactional = False
        for asked in request.topic_data:
            name: str | None = asked.name
            if by_id:
                image = topics.by_id.get(asked.topic_id)
                name = None if image is None else image.name
            topic = _Topic(asked, name)
            self._topics.append(topic)
            # CVE-2018-17196: look for a transactional batch in each partition. A partition with more than one batch is
            # refused anyway.
            for one in topic.partitions:
                if one.records is not None and is_transactional(one.records):
                    self._transactional = True
        self._judge()

    def _judge(self) -> None:
        """Set the error of each topic. It comes from the whole request, the topic's name, or the client's
        permission."""
        ctx, request = self._ctx, self._request
        transactional_id = request.transactional_id
        if self._transactional and (
            transactional_id is None or not ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
        ):
            for topic in self._topics:
                topic.error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return
        refused = _NONE if request.acks in _ACKS else ErrorCode.INVALID_REQUIRED_ACKS
        known = ctx.services.metadata.image.topics.by_name
        for topic in self._topics:
            name = topic.name
            if name is None:
                topic.error = ErrorCode.UNKNOWN_TOPIC_ID
            elif not ctx.authorize(_WRITE, _TOPIC, name):
                topic.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif refused:
                topic.error = refused
            elif name in INTERNAL_TOPICS and ctx.client_id != _ADMIN_CLIENT_ID:
                there = name in known
                topic.error = ErrorCode.INVALID_TOPIC_EXCEPTION if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _verdict(self, topic: _Topic, index: int) -> ErrorCode:
        """Return the error of one partition of a judged topic. Apache Kafka checks if a partition exists before it
        checks the acks of the request."""
        if topic.error is ErrorCode.INVALID_REQUIRED_ACKS and topic.name is not None:
            known = self._ctx.services.metadata.image.topics.by_name.get(topic.name)
            if known is None or index not in known.partitions:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic.error

    def start(self) -> ProduceResponse | Promise | None:
        opening = unopened(self._ctx, (place for place, _ in self._good()))
        if opening is None:
            return self._guard()
        return self._wait_in_order(opening, lambda _: self._guard())

    def _good(self) -> Iterator[tuple[TopicPartition, Buffer]]:
        """Yield the batches that may be tried, with their partitions."""
        for topic in self._topics:
            if topic.name is not None and not topic.error:
                for one in topic.partitions:
                    if one.records is not None:
                        yield (topic.name, one.index), one.records

    def _guard(self) -> ProduceResponse | Promise | None:
        request = self._request
        if not self._transactional or request.transactional_id is None:
            return self._append({})
        services = self._ctx.services
        found = verification_of(
            services.replicas,
            services.verifier,
            request.transactional_id,
            self._good(),
            version=self._ctx.api_version,
        )
        return self._ask(found) if isinstance(found, RequestVerification) else self._append(found)

    def _ask(self, verification: RequestVerification) -> ProduceResponse | Promise | None:
        asked = verification.ask()
        if isinstance(asked, asyncio.Future):
            return self._wait_in_order(asked, lambda _: self._verified(verification))
        return self._verified(verification)

    def _verified(self, verification: RequestVerification) -> ProduceResponse | Promise | None:
        if verification.must_ask_again():
            return self._ask(verification)
        return self._append(for_client(verification.guards, self._ctx.api_version))

    def _append(self, guards: GuardsByPartition) -> ProduceResponse | Promise | None:
        """Append what may be appended."""
        self._guards = guards
        self._failed = False
        #: the appends that the response waits for: partition, last offset, and the response about it
        self._appended: list[tuple[Partition, int, PartitionProduceResponse]] = []
        #: the batches that were not tried yet, the next one last
        self._left = [(topic, one) for topic in self._topics for one in topic.partitions]
        self._left.reverse()
        checks = self._ctx.services.batch_checks
        if checks.met_by is self._ctx:
            checks.met_by = None
            if self._promise is None:
                # In this turn `handle_frame` has just checked as much of this batch as one turn may check.
                return self._wait_in_order(self._check_elsewhere(*self._left[-1]), self._append_left)
        return self._append_left(None)

    def _append_left(self, checked: CheckedBatch | KafkaError | None) -> ProduceResponse | Promise | None:
        """Append the batches that are left. `checked` is the outcome of the check of the next batch, if it was off the
        loop."""
        inbox, left = self._ctx.services.inbox, self._left
        if inbox is not None:
            # The request may have waited, and its leader must not append if the leadership is over by now.
            inbox.take_all()
        while left:
            topic, one = left[-1]
            try:
                answer = self._append_one(topic, one, checked)
            except TooMuchAtOnce:
                return self._wait_in_order(self._check_elsewhere(topic, one), self._append_left)
            checked = None
            topic.answers.append(answer)
            left.pop()
        return self._answer()

    def _append_one(
        self, topic: _Topic, one: PartitionProduceData, checked: CheckedBatch | KafkaError | None
    ) -> PartitionProduceResponse:
        """Append to one partition; return the response about it. Raises TooMuchAtOnce."""
        ctx = self._ctx
        index, name, records = one.index, topic.name, one.records
        partition: Partition | None = None
        try:
            if topic.error or name is None:
                raise KafkaError(self._verdict(topic, index))
            if records is None:
                raise NotOneBatch(ErrorCode.INVALID_RECORD, "the records field is null")
            before_zstd = ctx.api_version < _ZSTD_FROM
            if before_zstd and len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & CODEC_MASK == _ZSTD:
                raise NotOneBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            guard = self._guards.get((name, index))
            if isinstance(guard, KafkaError):
                raise guard
            partition = ctx.services.replicas.get(name, index)
            if ctx.api_version >= _TOPIC_IDS_FROM and partition.topic_id != topic.asked.topic_id:
                # While this request waited, another topic got the name.
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if isinstance(checked, KafkaError):
                raise checked
            acks = self._request.acks
            info = partition.append(
                records if checked is None else checked,
                required_acks=acks,
                now_ms=ctx.arrival_ms,
                verification=guard,
                at_once=True,
            )
        except KafkaError as error:
            self._failed = True
            return _failure(ctx, name, index, error, partition)
        answer = _answer(index, info)
        last = info.last_offset
        if (acks == ACKS_ALL and not partition.has_committed(last)) or last >= partition.owed_from:
            self._appended.append((partition, last, answer))
        return answer

    def _check_elsewhere(self, topic: _Topic, one: PartitionProduceData) -> asyncio.Future[CheckedBatch | KafkaError]:
        """Have a large batch checked off the loop."""
        services = self._ctx.services
        assert topic.name is not None
        self._outlive_frame()
        assert one.records is not None
        config = services.replicas.get(topic.name, one.index).log.config
        return services.batch_checks.check(one.records, config, self._ctx.arrival_ms)

    def _answer(self) -> ProduceResponse | Promise | None:
        """Return the response, or the promise of it, after all partitions were tried."""
        ctx, acks, failed = self._ctx, self._request.acks, self._failed
        topics = [
            TopicProduceResponse(
                name=topic.asked.name, topic_id=topic.asked.topic_id, partition_responses=topic.answers
            )
            for topic in self._topics
            if topic.answers
        ]
        if acks == 0:
            if failed:
                _close(ctx, topics)
            return None
        response = ProduceResponse(responses=topics)
        if not self._appended:
            return _with_endpoints(ctx, response) if failed else response
        untrue = [answer for _, _, answer in self._appended]

        def answer_all(codes: dict[int, ErrorCode]) -> ProduceResponse:
            for position, code in codes.items():
                _fail(untrue[position], KafkaError(code))
            return _with_endpoints(ctx, response)

        appended = [(partition, last) for partition, last, _ in self._appended]
        return _wait(ctx, self._promise or Promise(), appended, acks, self._request.timeout_ms, answer_all)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait_in_order(
        self, awaited: asyncio.Future[T], step: Callable[[T], ProduceResponse | Promise | None]
    ) -> Promise:
        """Take the next step when `awaited` is done. Until then no later request of the connection is dispatched,
        because it may be for the same partitions and must not overtake."""
        promise = self._outlive_frame()
        in_order(self._ctx)(awaited, lambda done: self._go_on(done, step))
        return promise

    def _outlive_frame(self) -> Promise:
        """Copy the records, because their frame is only valid during dispatch. It takes 0.1 ms for a megabyte."""
        if self._promise is None:
            self._promise = Promise()
            for topic in self._request.topic_data:
                for one in topic.partition_data:
                    if one.records is not None:
                        one.records = memoryview(bytearray(one.records))
        return self._promise

    def _go_on(self, done: asyncio.Future[T], step: Callable[[T], ProduceResponse | Promise | None]) -> None:
        """Take the next step, even if the client is gone. With acks=0 a client may close as soon as its bytes are sent,
        and records of a transaction count only if it commits."""
        promise = self._promise
        assert promise is not None
        if done.cancelled():
            promise.set_exception(asyncio.CancelledError())  # the node is stopping
            return
        try:
            found = step(done.result())
        except Exception as error:  # noqa: BLE001  # the connection closes with it, and says why
            promise.set_exception(error)
            return
        if found is not promise:
            promise.set_result(found)


def _wait(
    ctx: BrokerContext,
    promise: Promise,
    appended: list[tuple[Partition, int]],
    acks: int,
    timeout_ms: int,
    answer: Callable[[dict[int, ErrorCode]], bytes | ProduceResponse],
) -> Promise:
    """Fulfil the promise when its response is true, which is after due flushes, and with acks=all after commits."""

    def give(failed: dict[int, ErrorCode]) -> None:
        promise.set_result(answer(failed))

    delayed = DelayedProduce(ctx.services.runtime.loop, appended, acks=acks, timeout_ms=timeout_ms, answer=give)
    promise.when_cancelled(delayed.cancel)
    delayed.begin()
    return promise


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
        leader, epoch, _ = leader_hint(ctx.services.metadata.image, ctx.listener_name, name, index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return answer


def _fail(answer: PartitionProduceResponse, error: KafkaError, partition: Partition | None = None) -> None:
    """`partition` is the partition whose log refused the records. The response has its log start offset, unless the
    records never reached the log."""
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
        # Apache Kafka sends a message for these two kinds of errors only, and null for others.
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
    """Add the addresses of the leaders that the response names, each once."""
    if ctx.api_version >= 10:
        leaders = dict.fromkeys(
            answer.current_leader.leader_id
            for topic in response.responses
            for answer in topic.partition_responses
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        nodes = [
            node_on_listener(ctx.services.metadata.image, leader, ctx.listener_name)
            for leader in leaders
            if leader >= 0
        ]
        response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
            if node is not None
        ]
    return response


HANDLERS = Handlers(handle, handle_frame=handle_frame)
