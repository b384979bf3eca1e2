"""The machine that runs pure coordinator state over partitions of an internal topic: groups today, transactions next.

Responsible for: one shard per partition led by this node; loading it; running operations; append, replay, answer at
commit; timers as inputs; every way in which a request can end. Not responsible for what operations decide (the
shard), nor for finding the partition.

An operation runs at once and alone. Its records go to the local log through `Partition.append`: refused, and nothing
happened; accepted, and they are replayed before anything else runs. Answers leave when everything appended so far is
committed: an answer without records is a read, and may not show what a failover could take back. After an accepted
append there are three ends: committed; not committed in time (COORDINATOR_NOT_AVAILABLE, the state stays: the records
may yet commit); leadership lost (NOT_COORDINATOR, the state is dropped and whoever leads next loads it). There is no
undo.

Grouping: operations submitted with `barrier=False` whose records nobody needs to see (offset commits) are collected
for the rest of the loop turn, or for `linger_ms`, and written as one batch. Any other operation writes them first.

Effects are what a shard wants done outside once its records are committed (a transaction's markers are sent when
the log says that it is decided). They wait with the answers, but for no longer than it takes: only the end of the
leadership drops them.

Invariants: state only changes by `replay` and by operations; between an accepted append and its replay nothing runs;
each request is answered once; answers of one shard's appends leave in log order; loading takes no loop turn longer
than LOAD_TURN_SECONDS and a batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from pykbroker.coordinator.result import Record, Result, TimerKey, Token
from pykbroker.coordinator.timers import Timers
from pykbroker.replica.partition import Partition
from pykbroker.replica.table import ReplicaTable
from pykbroker.runtime import Runtime
from pykbroker_log.partition_log import AppendOrigin, StorageError
from pykbroker_wire.errors import DecodeError, ErrorCode, KafkaError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records

logger = logging.getLogger(__name__)

#: Loading reads this much at a time, and works this long before others have their turn.
LOAD_BYTES = 256 * 1024
LOAD_TURN_SECONDS = 0.002
_LOAD_LOOK_AT_CLOCK = 32
#: A collected batch is written when it has this many bytes; batches of results that need not be whole are cut here too.
BATCH_BYTES = 256 * 1024


class Shard(Protocol):
    """The state of one partition. `at` is a log offset; `producer_id` is -1 outside transactions."""

    def replay(self, record: Record, at: int, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...
    def loaded(self, now_ms: int) -> Iterator[Result]: ...
    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result: ...


class RecordFormat(Protocol):
    """The topic's records as bytes: a module (group/records.py) is one."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...
    def decode(self, key: Buffer | None, value: Buffer | None) -> Record | None: ...


S = TypeVar("S", bound=Shard)
Answer = TypeVar("Answer")
#: What an operation is given: the shard, its own token, the time.
Operation = Callable[[S, Token, int], Result]
Refusal = Callable[[ErrorCode], Answer]
#: Partition, leader epoch, and what a shard wants done.
OnEffect = Callable[[int, int, Any], None]


class _Request:
    """A request that is not answered yet. The future exists only if the answer did not come at once."""

    __slots__ = ("answer", "done", "future", "refusal")

    def __init__(self, refusal: Callable[[ErrorCode], Any]) -> None:
        self.refusal = refusal
        self.done = False
        self.answer: Any = None
        self.future: asyncio.Future[Any] | None = None

    def complete(self, answer: Any) -> None:
        assert not self.done
        self.done = True
        self.answer = answer
        # A connection that closed has cancelled it.
        if self.future is not None and not self.future.done():
            self.future.set_result(answer)

    def refuse(self, code: ErrorCode) -> None:
        self.complete(self.refusal(code))


class _Replies:
    """Answers that wait until the log is committed up to `offset`."""

    __slots__ = ("answers", "deadline", "offset")

    def __init__(self, offset: int, deadline: float, answers: list[tuple[_Request, Any]]) -> None:
        self.offset = offset
        self.deadline = deadline
        self.answers = answers


Encoded = list[tuple[bytes, bytes | None]]


class _Host(Generic[S]):
    """One shard and everything around it, from one election to the end of that leadership."""

    __slots__ = (
        "collected",
        "collected_bytes",
        "committed",
        "effects",
        "epoch",
        "load",
        "loaded_records",
        "partition",
        "ready",
        "reply_timer",
        "requests",
        "shard",
        "skipped_records",
        "timers",
        "waiting",
        "written",
    )

    def __init__(self, partition: Partition, epoch: int, shard: S) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard = shard
        #: loaded; until then `load` is what is left to do, or None when that failed
        self.ready = False
        self.load: Iterator[None] | None = None
        self.timers: Timers
        self.loaded_records = 0
        self.skipped_records = 0
        self.requests: dict[Token, _Request] = {}
        self.waiting: deque[_Replies] = deque()
        #: (offset to be committed, effect)
        self.effects: deque[tuple[int, Any]] = deque()
        self.reply_timer: asyncio.TimerHandle | None = None
        #: end of what this shard has seen, and of what of it is committed
        self.written = 0
        self.committed = 0
        self.collected: list[tuple[Result, Encoded]] = []
        self.collected_bytes = 0


#: What a refused append means to a client of a coordinator.
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


class CoordinatorRuntime(Generic[S]):
    """See the module. One per internal topic."""

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
        linger_ms: int = -1,
        on_effect: OnEffect | None = None,
    ) -> None:
        """`linger_ms`: -1 collects for the rest of the loop turn, 0 not at all."""
        self.topic = topic
        self._runtime = runtime
        self._loop = runtime.loop
        self._shard_factory = shard_factory
        self._format = record_format
        self._codec = codec
        self._commit_timeout = commit_timeout_ms / 1000
        self._load_bytes = load_bytes
        self._linger_ms = linger_ms
        self._on_effect = on_effect
        self._hosts: dict[int, _Host[S]] = {}
        self._loading: deque[_Host[S]] = deque()
        self._load_scheduled = False
        self._flush_scheduled = False
        self._last_token = 0
        replicas.on_leadership(self._leadership_changed)

    # -- requests -----------------------------------------------------------------------------------------------------

    def submit(
        self, index: int, operation: Operation[S], refusal: Refusal[Answer], *, barrier: bool = True
    ) -> Answer | asyncio.Future[Answer]:
        """Run an operation on a partition's shard. The answer, if it is there already, or a future of it.

        barrier=False: collected records need not be written before it, and its own may be collected.
        """
        host = self._hosts.get(index)
        if host is None:
            return refusal(ErrorCode.NOT_COORDINATOR)
        if not host.ready:
            # Most partitions are small: one turn of loading now may spare the client a retry.
            self._load_turn(host)
            if not host.ready:
                loading = host.load is not None
                return refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)
        if barrier and host.collected:
            self._write_collected(host)
        self._last_token = token = self._last_token + 1
        request = _Request(refusal)
        host.requests[token] = request
        try:
            result = operation(host.shard, token, self._runtime.now_ms())
        except KafkaError as error:
            del host.requests[token]
            return refusal(error.code)
        except BaseException:
            del host.requests[token]
            raise
        self._carry_out(host, result, collect=not barrier)
        if request.done:
            answer: Answer = request.answer
            return answer
        request.future = self._loop.create_future()
        return request.future

    def leader_epoch(self, index: int) -> int | None:
        """The coordinator epoch of a shard that is led here, loading or not."""
        host = self._hosts.get(index)
        return host.epoch if host is not None else None

    def led(self) -> list[int]:
        """The partitions whose coordinator this node is, loading or not."""
        return sorted(index for index, host in self._hosts.items() if host.ready or host.load is not None)

    def input_all(self, operation: Callable[[S, int], Result]) -> None:
        """Something happened that concerns every shard and that nobody waits for."""
        for host in list(self._hosts.values()):
            if host.ready:
                self._write_collected(host)
                self._carry_out(host, operation(host.shard, self._runtime.now_ms()))

    # -- results ------------------------------------------------------------------------------------------------------

    def _carry_out(self, host: _Host[S], result: Result, *, collect: bool = False) -> None:
        for timer in result.timers:
            host.timers.apply(timer)
        if not result.records:
            if result.replies:
                self._answer_when_committed(host, self._take_requests(host, result))
            if result.effects:
                self._await_effects(host, result)
            return
        encoded = [self._format.encode(record) for record in result.records]
        if collect and self._linger_ms and result.atomic and result.append_failed is None:
            self._collect(host, result, encoded)
        elif result.atomic:
            self._write(host, [result], encoded)
        else:
            self._write_in_parts(host, result, encoded)

    def _take_requests(self, host: _Host[S], result: Result) -> list[tuple[_Request, Any]]:
        """From here on they are answered by this Result."""
        return [(host.requests.pop(token), answer) for token, answer in result.replies]

    def _write(self, host: _Host[S], results: list[Result], encoded: Encoded) -> bool:
        """One batch, whole or not at all."""
        now_ms = self._runtime.now_ms()
        answers = [pair for result in results for pair in self._take_requests(host, result)]
        try:
            batch = build_batch(((key, value, (), now_ms) for key, value in encoded), codec=self._codec)
            info = host.partition.append(batch, required_acks=-1, origin=AppendOrigin.COORDINATOR, now_ms=now_ms)
        except KafkaError as error:
            logger.warning(
                "%s-%d: %d records could not be written: %s", self.topic, host.partition.index, len(encoded), error
            )
            code = _TRANSLATION.get(error.code, error.code)
            for request, _ in answers:
                request.refuse(code)
            for result in results:
                if result.append_failed is not None:
                    self._carry_out(host, result.append_failed(code, now_ms))
            return False
        at = info.first_offset
        for result in results:
            for record in result.records:
                host.shard.replay(record, at)
                at += 1
        assert at == info.last_offset + 1
        host.written = at
        for result in results:
            if result.effects:
                host.effects.extend((at, effect) for effect in result.effects)
        if host.partition.high_watermark >= at:
            # Alone in the replica set: committed already.
            self._advance(host, at)
            self._answer_when_committed(host, answers)
            self._deliver_effects(host)
        else:
            self._answer_when_committed(host, answers)
            host.partition.when_committed(at, partial(self._committed, host, at))
        return True

    def _write_in_parts(self, host: _Host[S], result: Result, encoded: Encoded) -> None:
        """A Result that need not be whole, in batches that the log accepts; its answers come with the last."""
        start = 0
        while start < len(encoded):
            end = start
            size = 0
            while end < len(encoded) and (end == start or size < BATCH_BYTES):
                key, value = encoded[end]
                size += len(key) + len(value or b"")
                end += 1
            part = Result()
            part.records = result.records[start:end]
            if end == len(encoded):
                part.replies = result.replies
                part.effects = result.effects
            if not self._write(host, [part], encoded[start:end]):
                return
            start = end

    def _collect(self, host: _Host[S], result: Result, encoded: Encoded) -> None:
        size = sum(len(key) + len(value or b"") for key, value in encoded)
        if host.collected and host.collected_bytes + size > BATCH_BYTES:
            self._write_collected(host)
        host.collected.append((result, encoded))
        host.collected_bytes += size
        if not self._flush_scheduled:
            self._flush_scheduled = True
            if self._linger_ms < 0:
                self._loop.call_soon(self._flush)
            else:
                self._loop.call_later(self._linger_ms / 1000, self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        for host in list(self._hosts.values()):
            if host.collected:
                self._write_collected(host)

    def _write_collected(self, host: _Host[S]) -> None:
        collected, host.collected = host.collected, []
        host.collected_bytes = 0
        if collected:
            self._write(
                host, [result for result, _ in collected], [record for _, encoded in collected for record in encoded]
            )

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer_when_committed(self, host: _Host[S], answers: list[tuple[_Request, Any]]) -> None:
        if not answers:
            return
        if host.committed >= host.written:
            for request, answer in answers:
                request.complete(answer)
            return
        deadline = self._loop.time() + self._commit_timeout
        host.waiting.append(_Replies(host.written, deadline, answers))
        if host.reply_timer is None:
            host.reply_timer = self._loop.call_at(deadline, self._replies_overdue, host)

    def _committed(self, host: _Host[S], offset: int, code: ErrorCode) -> None:
        if self._hosts.get(host.partition.index) is not host:
            return
        if code:
            logger.info("%s-%d: no longer its coordinator: %s", self.topic, host.partition.index, code.name)
            self._unload(host)
            return
        self._advance(host, offset)
        self._deliver_effects(host)

    def _advance(self, host: _Host[S], offset: int) -> None:
        host.committed = max(host.committed, offset)
        while host.waiting and host.waiting[0].offset <= host.committed:
            for request, answer in host.waiting.popleft().answers:
                request.complete(answer)
        if not host.waiting and host.reply_timer is not None:
            host.reply_timer.cancel()
            host.reply_timer = None

    def _await_effects(self, host: _Host[S], result: Result) -> None:
        host.effects.extend((host.written, effect) for effect in result.effects)
        self._deliver_effects(host)

    def _deliver_effects(self, host: _Host[S]) -> None:
        """An effect may submit the next operation of this shard at once: whatever is committed by then follows here."""
        while host.ready and host.effects and host.effects[0][0] <= host.committed:
            _, effect = host.effects.popleft()
            assert self._on_effect is not None
            self._on_effect(host.partition.index, host.epoch, effect)

    def _replies_overdue(self, host: _Host[S]) -> None:
        host.reply_timer = None
        now = self._loop.time()
        while host.waiting and host.waiting[0].deadline <= now:
            for request, _ in host.waiting.popleft().answers:
                request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if host.waiting:
            host.reply_timer = self._loop.call_at(host.waiting[0].deadline, self._replies_overdue, host)

    # -- timers -------------------------------------------------------------------------------------------------------

    def _timer_fired(self, host: _Host[S], key: TimerKey, event: Any) -> None:
        self._write_collected(host)
        self._carry_out(host, host.shard.on_timer(key, event, self._runtime.now_ms()))

    # -- leadership ---------------------------------------------------------------------------------------------------

    def _leadership_changed(self, partition: Partition, is_leader: bool, epoch: int) -> None:
        if partition.topic != self.topic:
            return
        host = self._hosts.get(partition.index)
        if host is not None:
            if is_leader and host.epoch == epoch:
                return
            self._unload(host)
        if is_leader:
            host = _Host(partition, epoch, self._shard_factory(partition.index))
            host.timers = Timers(self._loop, partial(self._timer_fired, host))
            host.load = self._read_log(host)
            self._hosts[partition.index] = host
            self._loading.append(host)
            self._schedule_load()

    def _unload(self, host: _Host[S]) -> None:
        """The end of a host: everything that waits is answered, nothing of it fires again."""
        del self._hosts[host.partition.index]
        self._silence(host)
        requests = [request for replies in host.waiting for request, _ in replies.answers]
        requests += host.requests.values()
        host.waiting.clear()
        host.effects.clear()
        host.requests = {}
        host.collected = []
        for request in requests:
            request.refuse(ErrorCode.NOT_COORDINATOR)

    def _silence(self, host: _Host[S]) -> None:
        host.timers.clear()
        host.load = None
        if host.reply_timer is not None:
            host.reply_timer.cancel()
            host.reply_timer = None

    def close(self) -> None:
        """The node stops."""
        for host in list(self._hosts.values()):
            self._write_collected(host)
        for host in list(self._hosts.values()):
            self._unload(host)

    # -- loading ------------------------------------------------------------------------------------------------------

    def _schedule_load(self) -> None:
        if not self._load_scheduled:
            self._load_scheduled = True
            self._loop.call_soon(self._load_next)

    def _load_next(self) -> None:
        """One turn for the first that still loads; the loop serves others in between."""
        self._load_scheduled = False
        while self._loading and self._loading[0].load is None:
            self._loading.popleft()
        if self._loading:
            self._load_turn(self._loading[0])
            self._schedule_load()

    def _load_turn(self, host: _Host[S]) -> None:
        load = host.load
        if load is None:
            return
        until = self._loop.time() + LOAD_TURN_SECONDS
        try:
            while True:
                next(load)
                if self._loop.time() >= until:
                    return
        except StopIteration:
            host.load = None
            host.ready = True
            skipped = f", {host.skipped_records} of types that are not served here" if host.skipped_records else ""
            # Most of the 50 partitions hold nothing: their lines would bury the others.
            logger.log(
                logging.INFO if host.loaded_records else logging.DEBUG,
                "%s-%d: loaded %d records in leader epoch %d%s",
                self.topic,
                host.partition.index,
                host.loaded_records,
                host.epoch,
                skipped,
            )
            self._deliver_effects(host)
        except (KafkaError, StorageError, ValueError, DecodeError) as error:
            # Whatever is wrong stays wrong until somebody repairs it: answer, and wait for the next election.
            self._silence(host)
            logger.error("%s-%d: cannot be loaded: %s", self.topic, host.partition.index, error)

    def _read_log(self, host: _Host[S]) -> Iterator[None]:
        """Replay the log to its end; yields where a pause is possible."""
        partition = host.partition
        shard = host.shard
        log = partition.log
        offset = log.log_start_offset
        end = log.log_end_offset
        while offset < end:
            data = b"".join(bytes(part) for part in log.read(offset, self._load_bytes, end).slices)
            if not data:
                # A crash took what was here: there are no records up to the end.
                break
            for position, header in iter_batches(data):
                records = iter_records(data, position, header)
                if header.is_control:
                    for record in records:
                        marker = parse_control(record).type
                        if marker in (ControlType.COMMIT, ControlType.ABORT):
                            shard.end_transaction(header.producer_id, commit=marker is ControlType.COMMIT)
                else:
                    producer_id = header.producer_id if header.is_transactional else -1
                    while chunk := list(islice(records, _LOAD_LOOK_AT_CLOCK)):
                        for record in chunk:
                            self._replay_loaded(host, record.key, record.value, record.offset, producer_id)
                        yield
                offset = header.next_offset
            yield
        host.written = end
        for result in shard.loaded(self._runtime.now_ms()):
            self._carry_out(host, result)
            yield
        host.committed = min(partition.high_watermark, host.written)
        partition.when_committed(host.written, partial(self._committed, host, host.written))

    def _replay_loaded(
        self, host: _Host[S], key: Buffer | None, value: Buffer | None, at: int, producer_id: int
    ) -> None:
        record = self._format.decode(key, value)
        if record is None:
            host.skipped_records += 1
        else:
            host.loaded_records += 1
            host.shard.replay(record, at, producer_id)
