"""Reads a partition's log into its shard, in turns, so that the loop serves other work in between.

Responsible for the order of loads, for the length of each turn, for turning records into inputs of the shard, and for a
log that cannot be read. Not responsible for which node leads which partition (machine.py), nor for the meaning of
records (the shard).

Invariants: hosts load one at a time, in the order of their elections, except that a request at a host that is not ready
runs a turn of that host. A host is ready when its shard has replayed the log to its end and no other node could have
written to it in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Generic, Protocol

from pykbroker.coordinator.host import Host, S
from pykbroker.coordinator.result import CoordinatorRecord, Result
from pykbroker.runtime import Runtime
from pykbroker.runtime.cold_reads import ColdReads
from pykbroker_log.disk import ColdRead
from pykbroker_log.log_config import StorageError
from pykbroker_log.results import ReadResult
from pykbroker_wire.errors import DecodeError, KafkaError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.batch import HEADER_SIZE, BatchHeader, iter_batches
from pykbroker_wire.records.compression import decompress
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records

logger = logging.getLogger(__name__)

#: Loading reads this much at a time.
LOAD_BYTES = 64 * 1024
#: The steps of one turn, of some 10 to 30 microseconds each. Other work waits for a turn no longer than for a request.
LOAD_TURN_STEPS = 1
#: Additional steps for each second that other work has taken since the last turn. They take about a tenth of that time.
#: If each turn of the loop has 10 ms of produce requests, a log of offset commits would load for hours at one step per
#: turn.
LOAD_STEPS_PER_SECOND = 5000
LOAD_TURN_MOST_STEPS = 500
#: A turn also ends after this time. The clock may be no finer than a millisecond, so this matters only where steps are
#: slow.
LOAD_TURN_SECONDS = 0.002
_STEP_RECORDS = 8
#: A request that finds its shard not loaded runs this many steps itself. Most partitions are small, and this spares a
#: retry.
FIRST_REQUEST_STEPS = 64


class RecordFormat(Protocol):
    """Encodes the topic's records as bytes and decodes them. A module (group/records.py) implements it."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]: ...
    def decode(self, key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None: ...


class Bulk(Protocol):
    """A faster way to load the records of plain batches into one shard (group/bulk.py)."""

    def load(self, data: bytes, count: int, base_offset: int, base_timestamp: int) -> Iterator[tuple[int, int]]: ...
    def forget(self) -> None: ...


class ShardLoading(Generic[S]):
    """The hosts of one runtime that are not ready yet."""

    def __init__(
        self,
        runtime: Runtime,
        record_format: RecordFormat,
        load_bytes: int,
        cold_reads: ColdReads,
        *,
        bulk: Callable[[S], Bulk] | None,
        carry_out: Callable[[Host[S], Result], None],
        finished: Callable[[Host[S]], None],
    ) -> None:
        """`bulk` makes a `Bulk` for each load. `carry_out` carries out the results of the shard once it has replayed
        the whole log. `finished` makes the host ready."""
        self._runtime = runtime
        self._loop = runtime.loop
        self._format = record_format
        self._cold_reads = cold_reads
        self._load_bytes = min(load_bytes, LOAD_BYTES)
        self._bulk = bulk
        self._carry_out = carry_out
        self._finished = finished
        self._waiting: deque[Host[S]] = deque()
        self._is_scheduled = False
        self._last_turn = 0.0

    def begin(self, host: Host[S]) -> None:
        host.load.began_s = self._loop.time()
        host.load.steps = self._read_log(host)
        host.partition.when_recovered(partial(self._enqueue, host))

    def _enqueue(self, host: Host[S]) -> None:
        self._waiting.append(host)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._last_turn = self._loop.time()
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Run one turn for the first host that still loads. The loop serves other work in between."""
        self._is_scheduled = False
        while self._waiting and not self._waiting[0].load.is_under_way:
            self._waiting.popleft()
        if self._waiting and self._waiting[0].load.reading is None:
            others = self._loop.time() - self._last_turn
            steps = LOAD_TURN_STEPS + int(others * LOAD_STEPS_PER_SECOND)
            self.turn(self._waiting[0], min(steps, LOAD_TURN_MOST_STEPS))
            self._schedule()

    def turn(self, host: Host[S], steps: int = LOAD_TURN_STEPS) -> None:
        """Run some steps of the load. Afterwards the host is ready, or still loads, or has failed."""
        load = host.load
        steps_left = load.steps
        if steps_left is None or host.partition.recovering or load.reading is not None:
            return
        until = self._loop.time() + LOAD_TURN_SECONDS
        try:
            for step, reading in enumerate(steps_left, 1):
                if load.steps is None:
                    # The shard asked for a write. The disk failed, and that ended the host.
                    return
                if reading is not None:
                    load.reading = reading
                    reading.add_done_callback(partial(self._read, host))
                    return
                if step >= steps or self._loop.time() >= until:
                    return
            load.steps = None
            self._log_success(host)
            self._finished(host)
        except (KafkaError, StorageError, ValueError, OverflowError, DecodeError) as error:
            # The error stays until an administrator repairs the log. Answer requests with an error, and wait for the
            # next election.
            host.silence()
            logger.error("%r: cannot be loaded: %s", host.partition, error)
        except Exception:
            # This is a bug and is logged as one. A half-loaded state must not be served, and other loads go on.
            host.silence()
            logger.exception("%r: cannot be loaded", host.partition)

    def _read(self, host: Host[S], done: asyncio.Future[ReadResult]) -> None:
        if not done.cancelled():
            # While the load runs, it handles an error itself. After that nothing else reads the exception.
            done.exception()
            host.load.reading = None
            self._schedule()

    def _log_success(self, host: Host[S]) -> None:
        load = host.load
        skipped = (
            f" and left out {load.skipped_records} of types that this version does not know"
            if load.skipped_records
            else ""
        )
        # Most of the 50 partitions are empty. Their lines would hide the lines of the others.
        logger.log(
            logging.INFO if load.loaded_records else logging.DEBUG,
            "%r: loaded %d records in leader epoch %d%s",
            host.partition,
            load.loaded_records,
            host.epoch,
            skipped,
        )

    def _read_log(self, host: Host[S]) -> Iterator[asyncio.Future[ReadResult] | None]:
        """Replay the log to its end. Yields None where a pause is possible, or the read to wait for."""
        log = host.partition.log
        offset = log.log_start_offset
        end = log.log_end_offset
        bulk = self._bulk(host.shard) if self._bulk is not None else None
        while offset < end:
            try:
                found = log.read(offset, self._load_bytes, end, wait=False)
            except ColdRead as cold:
                again = partial(log.read, offset, self._load_bytes, end)
                reading = self._cold_reads.retry(cold, lambda wait, again=again: again(wait=wait))  # type: ignore[misc]
                yield reading
                found = reading.result()
            data = found.joined()
            if not data:
                # A crash lost the records from here up to the end.
                break
            for position, header in iter_batches(data):
                if bulk is None or header.is_control or header.is_transactional:
                    yield from self._read_batch(host, data, position, header, bulk)
                else:
                    payload = data[position + HEADER_SIZE : position + header.size_in_bytes]
                    if header.compression:
                        payload = bytes(decompress(header.compression, payload))
                    records = bulk.load(payload, header.record_count, header.base_offset, header.base_timestamp)
                    for loaded, skipped in records:
                        host.load.loaded_records += loaded
                        host.load.skipped_records += skipped
                        yield None
                offset = header.next_offset
            # Otherwise the garbage collector scans these objects again and again, in the end for a tenth of a second
            # each time.
            self._runtime.keep()
            yield None
        host.written = end
        for result in host.shard.loaded(self._runtime.now_ms()):
            self._carry_out(host, result)
            self._runtime.keep()
            yield None

    def _read_batch(
        self, host: Host[S], data: bytes, position: int, header: BatchHeader, bulk: Bulk | None
    ) -> Iterator[None]:
        """Replay a batch of any kind, one record after another."""
        records = iter_records(data, position, header)
        if header.is_control:
            for record in records:
                marker = parse_control(record).type
                if marker in (ControlType.COMMIT, ControlType.ABORT):
                    host.shard.end_transaction(header.producer_id, commit=marker is ControlType.COMMIT)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        while chunk := list(islice(records, _STEP_RECORDS)):
            for record in chunk:
                if record.value is None and bulk is not None:
                    bulk.forget()
                self._replay(host, record.key, record.value, record.offset, producer_id)
            yield

    def _replay(self, host: Host[S], key: Buffer | None, value: Buffer | None, at: int, producer_id: int) -> None:
        record = self._format.decode(key, value)
        if record is None:
            host.load.skipped_records += 1
        else:
            host.load.loaded_records += 1
            host.shard.replay(record, at, producer_id)
