"""The machine that runs pure coordinator state over partitions of an internal topic: groups and transactions.

Responsible for one shard per partition that this node leads (host.py), which is loaded first (shard_loading.py). It
runs operations, appends, replays and answers at commit. It passes timers and markers as inputs, and handles all ways in
which a request can end. Not responsible for what operations decide (the shard), nor for finding the partition.

An operation runs at once and alone. Its records go to the local log through `Partition.append`. If the append is
refused, nothing has happened. If it is accepted, the records are replayed before anything else runs. Answers are sent
when everything appended so far is committed. An answer without records is a read, and may not show what a failover
could take back. After an accepted append there are three outcomes, and no undo:

* committed;
* not committed in time: COORDINATOR_NOT_AVAILABLE, and the state stays because the records may yet commit;
* leadership lost: NOT_COORDINATOR, and the state is dropped and the next leader loads it.

A new leader epoch with the same leader is none of these outcomes. The log is the same, so the shard stays and only the
epoch changes. Work that began in an earlier epoch of this leadership goes on (`has_led_since`).

Grouping: operations submitted with `barrier=False` whose records no other operation needs to see (offset commits) are
collected for the rest of the loop turn, or for `linger_ms`, and written as one batch. Any other operation writes them
first. With a function as `barrier` only the operations that need them do so (writes of the same share partition).

Transactions: a Result with `transaction` is one batch of that producer, and its records are replayed as undecided.
`end_transaction` writes the producer's marker and passes the decision to the shard in the same call. Its answer is sent
at commit, and so is each answer that shows the marker's decision.

Effects are actions outside the shard that follow when its records are committed. For example, the markers of a
transaction are sent when its decision is committed. Effects wait with the answers, but have no timeout. Only the end of
the leadership drops them.

Invariants:

* state only changes by `replay` and by operations;
* between an accepted append and its replay nothing runs;
* each request is answered once, and answers of one shard's appends are sent in log order;
* nothing is written to a partition before its shard has replayed all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from pykbroker.coordinator.collected_batch import BATCH_BYTES, Encoded, encoded_bytes
from pykbroker.coordinator.deferred_answers import DeferredAnswers, Request
from pykbroker.coordinator.held_requests import HeldRequests
from pykbroker.coordinator.host import Host, S
from pykbroker.coordinator.measures import CoordinatorMeasures
from pykbroker.coordinator.result import Result, Timer, TimerKey, Token
from pykbroker.coordinator.shard_loading import FIRST_REQUEST_STEPS, LOAD_BYTES, Bulk, RecordFormat, ShardLoading
from pykbroker.coordinator.timers import Timers
from pykbroker.metrics.recent import KAFKAS_WINDOWS, SampleWindows
from pykbroker.replica.partition import Partition
from pykbroker.replica.table import ReplicaTable
from pykbroker.runtime import Runtime
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_log.partition_log import AppendOrigin
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec

logger = logging.getLogger(__name__)

#: A timer whose input is refused fires again after this time, as in Apache Kafka.
TIMER_REST_MS = 500

Answer = TypeVar("Answer")
#: An operation gets the shard, its own token and the time.
CoordinatorOperation = Callable[[S, Token, int], Result]
Refusal = Callable[[ErrorCode], Answer]
#: Called with the partition, the leader epoch and the effect.
OnEffect = Callable[[int, int, Any], None]


#: The error codes that a client of a coordinator gets for a refused append.
_TRANSLATION = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_code(code: ErrorCode) -> ErrorCode:
    return _TRANSLATION.get(code, code)


def _report(result: Result, measures: CoordinatorMeasures) -> None:
    """Log the lines of a result whose records are written, and count its events."""
    for logger_of_shard, line, args in result.lines:
        logger_of_shard.info(line, *args)
    if result.counts is not None:
        measures.count(result.counts)


class CoordinatorRuntime(Generic[S]):
    """The machine of one internal topic (see the module's docstring)."""

    def __init__(
        self,
        topic: str,
        runtime: Runtime,
        replicas: ReplicaTable,
        shard_factory: Callable[[int], S],
        record_format: RecordFormat,
        *,
        commit_timeout_ms: int,
        load_bytes: int = LOAD_BYTES,
        codec: Codec = Codec.NONE,
        base_sequence: int = 0,
        linger_ms: int = -1,
        on_effect: OnEffect | None = None,
        bulk: Callable[[S], Bulk] | None = None,
        windows: SampleWindows = KAFKAS_WINDOWS,
    ) -> None:
        """`linger_ms`: -1 collects for the rest of the loop turn, 0 does not collect. `base_sequence` is written into
        each batch. The records have no sequence numbers, but Apache Kafka's group coordinator writes 0 and its
        transaction coordinator -1."""
        self.topic = topic
        self._runtime = runtime
        self._loop = runtime.loop
        self._shard_factory = shard_factory
        self._format = record_format
        self._codec = codec
        self._base_sequence = base_sequence
        self._commit_timeout = commit_timeout_ms / 1000
        self._linger_ms = linger_ms
        self._on_effect = on_effect
        self.measures = CoordinatorMeasures(self._loop.time, windows)
        self._hosts: dict[int, Host[S]] = {}
        self._loading: ShardLoading[S] = ShardLoading(
            runtime,
            record_format,
            load_bytes,
            replicas.logs.cold_reads,
            bulk=bulk,
            carry_out=self._carry_out,
            finished=self._loaded,
        )
        #: the hosts that have collected something since the last flush
        self._collecting: dict[Host[S], None] = {}
        self._last_token = 0
        self._refusals = LineLimit(self._loop.time)
        replicas.on_leadership(self._leadership_changed)

    # -- requests -----------------------------------------------------------------------------------------------------

    def submit(
        self,
        index: int,
        operation: CoordinatorOperation[S],
        refusal: Refusal[Answer],
        *,
        barrier: bool | Callable[[S], bool] = True,
        verification: object | None = None,
        waits_for_load: bool = False,
    ) -> Answer | asyncio.Future[Answer]:
        """Run an operation on the shard of a partition. Return the answer if it is there already, otherwise a future of
        it.

        * `barrier`: if False, the operation does not need the collected records to be written first, and its own
          records may be collected. A function of the shard decides whether this operation needs them; its own records
          may be collected in either case.
        * `verification`: the log's proof that the coordinator knows the transaction of a transactional Result.
        * `waits_for_load`: if the shard is being loaded and is ready soon, the operation waits for it
          (held_requests.py).
        """
        host = self._ready_host(index)
        if isinstance(host, ErrorCode):
            if waits_for_load and host is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                again = partial(self.submit, index, operation, refusal, barrier=barrier, verification=verification)
                held = self._hosts[index].held.add(again)
                if held is not None:
                    return held
            return refusal(host)
        must_see = barrier if isinstance(barrier, bool) else bool(host.batch) and barrier(host.shard)
        if must_see and host.batch and not self._write_collected(host):
            return refusal(ErrorCode.NOT_COORDINATOR)
        began_s = self._loop.time()
        self._last_token = token = self._last_token + 1
        request = Request(refusal)
        host.requests[token] = request
        try:
            result = operation(host.shard, token, self._runtime.now_ms())
        except KafkaError as error:
            del host.requests[token]
            return refusal(error.code)
        except BaseException:
            del host.requests[token]
            raise
        self._carry_out(host, result, collect=barrier is not True, verification=verification)
        self.measures.processing.record(self.measures.ms_since(began_s))
        answer: Answer | asyncio.Future[Answer] = self._answer_of(request)
        return answer

    def end_transaction(
        self,
        index: int,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        refusal: Refusal[Answer],
    ) -> Answer | asyncio.Future[Answer]:
        """Write the marker of a transaction and pass the decision to the shard at once. The answer comes when the
        marker is committed; it is `refusal(NONE)` on success."""
        host = self._ready_host(index)
        if isinstance(host, ErrorCode):
            return refusal(host)
        # Collected records are written before the marker, as before each other input.
        if not self._write_collected(host):
            return refusal(ErrorCode.NOT_COORDINATOR)
        request = Request(refusal)
        try:
            info = host.partition.append_marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                now_ms=self._runtime.now_ms(),
            )
        except KafkaError as error:
            self._refused(error, "%r: the marker of producer %d could not be written: %s", host.partition, producer_id)
            return refusal(client_code(error.code))
        host.shard.end_transaction(producer_id, commit=commit)
        self._written(host, info.last_offset + 1, [(request, refusal(ErrorCode.NONE))])
        answer: Answer | asyncio.Future[Answer] = self._answer_of(request)
        return answer

    def _ready_host(self, index: int) -> Host[S] | ErrorCode:
        host = self._hosts.get(index)
        if host is None:
            return ErrorCode.NOT_COORDINATOR
        if not host.ready:
            self._loading.turn(host, FIRST_REQUEST_STEPS)
            if not host.ready:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if host.load.is_under_way else ErrorCode.NOT_COORDINATOR
        return host

    def _answer_of(self, request: Request) -> Any:
        if request.done:
            return request.answer
        request.future = self._loop.create_future()
        return request.future

    def leader_epoch(self, index: int) -> int | None:
        """Return the coordinator epoch of a shard that this node leads, loaded or not, or None if it leads none."""
        host = self._hosts.get(index)
        return host.epoch if host is not None else None

    def has_led_since(self, index: int, epoch: int) -> bool:
        """Return True if the leadership in which `epoch` was the coordinator epoch has lasted until now."""
        host = self._hosts.get(index)
        return host is not None and host.first_epoch <= epoch <= host.epoch

    def led(self) -> list[int]:
        """Return the partitions that this node coordinates, loaded or not."""
        return sorted(index for index, host in self._hosts.items() if host.ready or host.load.is_under_way)

    def hosts(self) -> list[Host[S]]:
        """Return the partitions that this node leads, for reading."""
        return list(self._hosts.values())

    def input_all(self, operation: Callable[[S, int], Result]) -> None:
        """Run an operation on each shard that is ready. No request waits for its outcome."""
        for host in list(self._hosts.values()):
            if host.ready and self._write_collected(host):
                self._carry_out(host, operation(host.shard, self._runtime.now_ms()))

    # -- results ------------------------------------------------------------------------------------------------------

    def _carry_out(
        self, host: Host[S], result: Result, *, collect: bool = False, verification: object | None = None
    ) -> None:
        for timer in result.timers:
            host.timers.apply(timer)
        if not result.records:
            _report(result, self.measures)
            if result.replies:
                self._answer_when_committed(host, self._take_requests(host, result))
            if result.effects:
                self._await_effects(host, result)
            return
        encoded = [self._format.encode(record) for record in result.records]
        if result.transaction is not None:
            # A batch has one producer. The collected records have another producer, or none.
            if self._write_collected(host):
                self._write(host, [result], encoded, result.transaction, verification)
        elif collect and self._linger_ms and result.atomic and result.collectable and result.append_failed is None:
            self._collect(host, result, encoded)
        elif result.atomic:
            if self._write_collected(host):
                self._write(host, [result], encoded)
        else:
            self._write_in_parts(host, result, encoded)

    def _take_requests(self, host: Host[S], result: Result) -> list[tuple[Request, Any]]:
        """Remove the requests that this Result answers, and return them with their answers."""
        return [(host.requests.pop(token), answer) for token, answer in result.replies]

    def _write(
        self,
        host: Host[S],
        results: list[Result],
        encoded: Encoded,
        transaction: tuple[int, int] | None = None,
        verification: object | None = None,
    ) -> ErrorCode:
        """Append the results as one batch, whole or not at all. `transaction`: producer id and epoch of the batch.
        Returns the error code that the requests of a refused append get."""
        now_ms = self._runtime.now_ms()
        answers = [pair for result in results for pair in self._take_requests(host, result)]
        try:
            records = ((key, value, (), now_ms) for key, value in encoded)
            producer_id, epoch = (-1, -1) if transaction is None else transaction
            batch = build_batch(
                records,
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self._base_sequence,
                transactional=transaction is not None,
            )
            began_s = self._loop.time()
            info = host.partition.append(
                batch, required_acks=-1, origin=AppendOrigin.COORDINATOR, now_ms=now_ms, verification=verification
            )
            self.measures.flushes.record(self.measures.ms_since(began_s))
        except KafkaError as error:
            self._refused(error, "%r: %d records could not be written: %s", host.partition, len(encoded))
            code = client_code(error.code)
            for request, _ in answers:
                request.refuse(code)
            for result in results:
                if result.append_failed is not None and self._is_alive(host):
                    self._carry_out(host, result.append_failed(code, now_ms))
            return code
        at = info.first_offset
        for result in results:
            for record in result.records:
                host.shard.replay(record, at, producer_id)
                at += 1
        assert at == info.last_offset + 1
        for result in results:
            _report(result, self.measures)
            if result.effects:
                host.effects.extend((at, effect) for effect in result.effects)
        self._written(host, at, answers)
        return ErrorCode.NONE

    def _refused(self, error: KafkaError, line: str, *args: object) -> None:
        """Log the line at most once a minute for each error, because clients try again at once."""
        left_out = self._refusals.take(error.code.name)
        if left_out is not None:
            logger.warning(line + "%s", *args, error, left_out)

    def _written(self, host: Host[S], at: int, answers: list[tuple[Request, Any]]) -> None:
        """Note that the log has everything before `at` and that the shard has replayed it. Answers and effects follow
        at commit."""
        host.written = at
        if host.partition.high_watermark >= at:
            # This node is the only replica in sync, so the records are committed already.
            self._advance(host, at)
            self._answer_when_committed(host, answers)
            self._deliver_effects(host)
        else:
            self._answer_when_committed(host, answers)
            host.partition.when_committed(at, partial(self._committed, host, at))

    def _write_in_parts(self, host: Host[S], result: Result, encoded: Encoded) -> None:
        """Append a Result that may be divided as several batches. Its answers come with the last batch."""
        start = 0
        while start < len(encoded):
            end = start
            size = 0
            while end < len(encoded) and (end == start or size < BATCH_BYTES):
                size += encoded_bytes(encoded[end : end + 1])
                end += 1
            part = Result()
            part.records = result.records[start:end]
            if end == len(encoded):
                part.replies = result.replies
                part.effects = result.effects
                part.lines = result.lines
                part.counts = result.counts
            code = self._write(host, [part], encoded[start:end])
            if code:
                if end < len(encoded) and self._is_alive(host):
                    for request, _ in self._take_requests(host, result):
                        request.refuse(code)
                return
            start = end

    def _collect(self, host: Host[S], result: Result, encoded: Encoded) -> None:
        size = encoded_bytes(encoded)
        if not host.batch.has_room_for(size) and not self._write_collected(host):
            return
        if not host.batch:
            host.batch.began_s = self._loop.time()
        host.batch.add(result, encoded, size)
        if not self._collecting:
            if self._linger_ms < 0:
                self._loop.call_soon(self._flush)
            else:
                self._loop.call_later(self._linger_ms / 1000, self._flush)
        self._collecting[host] = None

    def _flush(self) -> None:
        collecting, self._collecting = self._collecting, {}
        for host in collecting:
            if self._is_alive(host):
                self._write_collected(host)

    def _write_collected(self, host: Host[S]) -> bool:
        """Return False if a failed disk ended the host. Then all requests that waited there have been answered."""
        if host.batch:
            self.measures.lingers.record(self.measures.ms_since(host.batch.began_s))
            self._write(host, *host.batch.take())
        return self._is_alive(host)

    def _is_alive(self, host: Host[S]) -> bool:
        return self._hosts.get(host.partition.index) is host

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer_when_committed(self, host: Host[S], answers: list[tuple[Request, Any]]) -> None:
        if not answers:
            return
        if host.committed >= host.written:
            for request, answer in answers:
                request.complete(answer)
            return
        host.answers.add(host.written, answers)

    def _committed(self, host: Host[S], offset: int, code: ErrorCode) -> None:
        if not self._is_alive(host):
            return
        if code:
            logger.info(
                "%s-%d: this node is no longer its coordinator: %s", self.topic, host.partition.index, code.name
            )
            self._unload(host)
            return
        self._advance(host, offset)
        self._deliver_effects(host)

    def _advance(self, host: Host[S], offset: int) -> None:
        host.committed = max(host.committed, offset)
        host.answers.committed(host.committed)

    def _await_effects(self, host: Host[S], result: Result) -> None:
        host.effects.extend((host.written, effect) for effect in result.effects)
        self._deliver_effects(host)

    def _deliver_effects(self, host: Host[S]) -> None:
        """Pass on the effects that are committed. An effect may submit the next operation of this shard at once; the
        effects that are committed by then follow in the same call."""
        while host.ready and host.effects and host.effects[0][0] <= host.committed:
            _, effect = host.effects.popleft()
            assert self._on_effect is not None
            self._on_effect(host.partition.index, host.epoch, effect)

    # -- timers -------------------------------------------------------------------------------------------------------

    def _timer_fired(self, host: Host[S], key: TimerKey, event: Any) -> None:
        if not self._write_collected(host):
            return
        began_s = self._loop.time()
        try:
            result = host.shard.on_timer(key, event, self._runtime.now_ms())
        except KafkaError as error:
            if key not in host.failing_timers:
                host.failing_timers.add(key)
                logger.error(
                    "%r: the action of the timer %s failed and is tried again: %s", host.partition, "/".join(key), error
                )
            host.timers.apply(Timer(key, TIMER_REST_MS, event, repeats=True))
            return
        host.failing_timers.discard(key)
        self._carry_out(host, result)
        self.measures.processing.record(self.measures.ms_since(began_s))

    # -- leadership ---------------------------------------------------------------------------------------------------

    def _leadership_changed(self, partition: Partition, is_leader: bool, epoch: int) -> None:
        if partition.topic != self.topic:
            return
        host = self._hosts.get(partition.index)
        if host is not None:
            if is_leader and host.epoch == epoch:
                return
            goes_on = epoch == host.epoch + 1 and host.partition is partition
            if is_leader and goes_on and (host.ready or host.load.is_under_way):
                # This node goes on leading the same log, so the state and all waiting requests stay valid in the new
                # epoch. But if an epoch was missed, another broker may have led in it, and then the shard is loaded
                # anew.
                host.epoch = epoch
                return
            self._unload(host)
        if is_leader:
            answers = DeferredAnswers(self._loop, self._commit_timeout, self.measures.purgatory)
            host = Host(partition, epoch, self._shard_factory(partition.index), answers)
            host.held = HeldRequests(self._loop)
            host.timers = Timers(self._runtime.client_clock, partial(self._timer_fired, host))
            self._hosts[partition.index] = host
            self._loading.begin(host)

    def _loaded(self, host: Host[S]) -> None:
        partition = host.partition
        host.committed = min(partition.high_watermark, host.written)
        host.ready = True
        self.measures.loads.record(self.measures.ms_since(host.load.began_s))
        partition.when_committed(host.written, partial(self._committed, host, host.written))
        self._deliver_effects(host)
        host.held.release()

    def _unload(self, host: Host[S]) -> None:
        """End a host. Answer all waiting requests, and stop its timers."""
        del self._hosts[host.partition.index]
        host.silence()
        requests = [*host.answers.take_all(), *host.requests.values()]
        host.effects.clear()
        host.requests = {}
        host.batch.take()
        for request in requests:
            request.refuse(ErrorCode.NOT_COORDINATOR)
        host.held.release()

    def close(self) -> None:
        """Stop the machine when the node stops."""
        for host in list(self._hosts.values()):
            self._write_collected(host)
        for host in list(self._hosts.values()):
            self._unload(host)
