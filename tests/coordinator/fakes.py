"""A loop, a partition and a replica table for the coordinator's runtime, entirely controlled by a test."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from contextvars import Context
from types import SimpleNamespace
from typing import Any, cast

from pykbroker.replica.partition import Partition
from pykbroker.replica.table import ReplicaTable
from pykbroker.runtime import Runtime
from pykbroker.runtime.client_clock import LoopClock
from pykbroker_log.disk import ColdRead
from pykbroker_log.partition_log import AppendInfo, AppendOrigin
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import BatchHeader, iter_batches, stamp
from pykbroker_wire.records.control import end_txn_marker

TOPIC = "__consumer_offsets"


class Loop:
    """Time stands still until `advance`; `turn` runs what is ready."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: list[asyncio.Handle] = []
        self._scheduled: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        #: the time that each look at the clock takes, to make slow work visible
        self.cost_per_look = 0.0

    def time(self) -> float:
        self.now += self.cost_per_look
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=as_loop(self))

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, as_loop(self), context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, as_loop(self), context)
        self._count += 1
        heapq.heappush(self._scheduled, (when, self._count, handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise context["exception"]

    def turn(self) -> None:
        ready, self._ready = self._ready, []
        for handle in ready:
            if not handle.cancelled():
                handle._run()

    def settle(self) -> None:
        while self._ready:
            self.turn()

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        self.settle()
        while self._scheduled and self._scheduled[0][0] <= until:
            when, _, handle = heapq.heappop(self._scheduled)
            self.now = max(self.now, when)
            if not handle.cancelled():
                handle._run()
            self.settle()
        self.now = until

    def sleeping(self) -> int:
        return sum(not handle.cancelled() for _, _, handle in self._scheduled)


def as_loop(loop: Loop) -> asyncio.AbstractEventLoop:
    return cast(asyncio.AbstractEventLoop, loop)


class Log:
    log_start_offset = 0

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_end_offset = 0
        self.reads = 0
        #: True if the log is not in memory until it is loaded
        self.is_cold = False
        #: the reads that waited for it on the loop
        self.waits = 0
        #: the error that the next read raises
        self.fails: Exception | None = None

    def append(self, batch: bytes) -> int:
        buffer = bytearray(batch)
        base = self.log_end_offset
        stamp(buffer, 0, base, 0)
        self.batches.append(bytes(buffer))
        self.log_end_offset = BatchHeader.parse(buffer, 0).next_offset
        return base

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, wait: bool = True) -> Any:
        self.reads += 1
        if self.fails is not None:
            raise self.fails
        if self.is_cold:
            if not wait:
                raise ColdRead(cast(Any, self), offset, max_bytes)
            self.waits += 1
        slices: list[bytes] = []
        for batch in self.batches:
            header = BatchHeader.parse(batch, 0)
            if header.last_offset >= offset and header.base_offset < upper_offset:
                slices.append(batch)
                if sum(map(len, slices)) >= max_bytes:
                    break

        class Result:
            pass

        result = Result()
        result.joined = lambda: b"".join(slices)  # type: ignore[attr-defined]
        return result

    def load(self, offset: int, length: int) -> None:
        raise AssertionError("the loop is not to wait")

    def delete_before(self, offset: int) -> None:
        """Move the start, and forget the batches that are wholly below it."""
        assert self.log_start_offset <= offset <= self.log_end_offset
        self.log_start_offset = offset
        self.batches = [batch for batch in self.batches if BatchHeader.parse(batch, 0).last_offset >= offset]

    def headers(self) -> list[BatchHeader]:
        return [header for batch in self.batches for _, header in iter_batches(batch)]


class FakePartition:
    """Leads until `lose`. Commits at once unless `hold` is set."""

    topic = TOPIC

    def __init__(self, index: int, log: Log) -> None:
        self.index = index
        self.log = log
        self.high_watermark = log.log_end_offset
        self.hold = False
        self.refuse: ErrorCode | None = None
        #: at the next append
        self.disk_fails = False
        self.leads = True
        self.waiters: list[tuple[int, Callable[[ErrorCode], None]]] = []
        #: the arguments of each append
        self.verifications: list[object | None] = []
        self.transaction_versions: list[int] = []
        #: the result of `start_verification`, or its error
        self.guard: object | None = None
        self.unverifiable: ErrorCode | None = None
        #: an unclean stop has left its log
        self.recovering = False
        self.recovery_waiters: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def when_recovered(self, callback: Callable[[], None]) -> None:
        if self.recovering:
            self.recovery_waiters.append(callback)
        else:
            callback()

    def recovered(self) -> None:
        self.recovering = False
        waiters, self.recovery_waiters = self.recovery_waiters, []
        for callback in waiters:
            callback()

    def append(
        self,
        records: bytes,
        *,
        required_acks: int,
        origin: AppendOrigin,
        now_ms: int,
        verification: object | None = None,
    ) -> AppendInfo:
        self.verifications.append(verification)
        assert required_acks == -1
        assert origin is AppendOrigin.COORDINATOR
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        if self.disk_fails:
            self.fail_disk()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        first = self.log.append(records)
        if not self.hold:
            self.high_watermark = self.log.log_end_offset

        class Info:
            first_offset = first
            last_offset = self.log.log_end_offset - 1

        return cast(AppendInfo, Info())

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> object | None:
        if self.unverifiable is not None:
            raise KafkaError(self.unverifiable)
        return self.guard

    def takes_guard(self, producer_id: int, producer_epoch: int, guard: object) -> bool:
        return not self.leads or guard is self.guard

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
        now_ms: int,
    ) -> AppendInfo:
        self.transaction_versions.append(transaction_version)
        marker = end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        return self.append(marker, required_acks=-1, origin=AppendOrigin.COORDINATOR, now_ms=now_ms)

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        if self.high_watermark >= offset:
            callback(ErrorCode.NONE)
        else:
            self.waiters.append((offset, callback))

    def fail_disk(self) -> None:
        """Fail as replica/table.py does: callbacks that wait for a commit are called before the append raises."""
        self.leads = False
        waiters, self.waiters = self.waiters, []
        for _, waiter in waiters:
            waiter(ErrorCode.KAFKA_STORAGE_ERROR)

    def commit(self, upto: int | None = None) -> None:
        self.high_watermark = self.log.log_end_offset if upto is None else upto
        waiters, self.waiters = self.waiters, []
        for offset, callback in waiters:
            if offset <= self.high_watermark:
                callback(ErrorCode.NONE)
            else:
                self.waiters.append((offset, callback))


class Replicas:
    """One partition per index, each with a log that outlives its leaderships."""

    def __init__(self, topic: str = TOPIC) -> None:
        self.topic = topic
        #: `cold_reads`: where loading waits for data that is not in memory
        self.logs: Any = SimpleNamespace(cold_reads=None)
        self.stored: dict[int, Log] = {}
        self.partitions: dict[int, FakePartition] = {}
        self.epoch = 0
        self._callbacks: list[Callable[[Partition, bool, int], None]] = []

    def on_leadership(self, callback: Callable[[Partition, bool, int], None]) -> None:
        self._callbacks.append(callback)

    def get(self, topic: str, index: int) -> FakePartition:
        assert topic == TOPIC
        return self.partitions[index]

    def find(self, topic: str, index: int) -> FakePartition | None:
        assert topic == TOPIC
        return self.partitions.get(index)

    def lead(self, index: int = 0, *, recovering: bool = False) -> FakePartition:
        partition = FakePartition(index, self.stored.setdefault(index, Log()))
        partition.recovering = recovering
        partition.topic = self.topic
        self.partitions[index] = partition
        self.epoch += 1
        for callback in self._callbacks:
            callback(cast(Partition, partition), True, self.epoch)
        return partition

    def lead_on(self, index: int = 0, *, epochs: int = 1) -> None:
        """Begin a new leader epoch with the same leader and the same log. `epochs`: how many come in one step."""
        self.epoch += epochs
        for callback in self._callbacks:
            callback(cast(Partition, self.partitions[index]), True, self.epoch)

    def lose(self, index: int = 0) -> None:
        partition = self.partitions[index]
        partition.leads = False
        waiters, partition.waiters = partition.waiters, []
        for _, waiter in waiters:
            waiter(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for callback in self._callbacks:
            callback(cast(Partition, partition), False, self.epoch)


class World:
    """The part of a node's runtime that the coordinator uses."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.client_clock = LoopClock(as_loop(self.loop))
        self.random = random.Random(1)
        self.kept = 0

    def now_ms(self) -> int:
        return 1_000_000 + int(self.loop.now * 1000)

    def keep(self) -> None:
        self.kept += 1


def as_runtime(world: World) -> Runtime:
    return cast(Runtime, world)


def as_replicas(replicas: Replicas) -> ReplicaTable:
    return cast(ReplicaTable, replicas)
