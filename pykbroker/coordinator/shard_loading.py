"""Reading a partition's log into its shard, in turns, while the loop serves others.

Responsible for the order of loads, for how long each turn is, for records to inputs of the shard, and for a log that
cannot be read. Not responsible for which node leads what (machine.py), nor for what records mean (the shard).

Invariants: one host at a time, in the order of their elections, except that a request at a host that is not ready runs
a turn of that one; a host is ready when its shard has seen the log to its end and no other node could write to it
meanwhile.
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
#: A turn is so many steps, of some 10 to 30 microseconds each: others wait no longer than for a request.
LOAD_TURN_STEPS = 1
#: And so many more for each second that the others have taken since the last turn, about a tenth of it: where a turn of
#: the loop is 10 ms of produce requests, one offset commit in each would have a log of them loaded in hours.
LOAD_STEPS_PER_SECOND = 5000
LOAD_TURN_MOST_STEPS = 500
#: The clock, which may know nothing shorter than a millisecond, ends a turn only where steps are slow.
LOAD_TURN_SECONDS = 0.002
_STEP_RECORDS = 8
#: What a request that finds its shard not loaded does itself: most partitions are small, and it spares a retry.
FIRST_REQUEST_STEPS = 64


class RecordFormat(Protocol):
    """The topic's records as bytes: a module (group/records.py) is one."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]: ...
    def decode(self, key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None: ...


class Bulk(Protocol):
    """A faster way for the records of plain batches into one shard (group/bulk.py)."""

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
        """`bulk` makes one for each load; `carry_out` takes what the shard wants once it has seen everything;
        `finished` makes the host ready."""
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
        host.load = self._read_log(host)
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
        """One turn for the first that still loads; the loop serves others in between."""
        self._is_scheduled = False
        while self._waiting and self._waiting[0].load is None:
            self._waiting.popleft()
        if self._waiting and self._waiting[0].reading is None:
            others = self._loop.time() - self._last_turn
            steps = LOAD_TURN_STEPS + int(others * LOAD_STEPS_PER_SECOND)
            self.turn(self._waiting[0], min(steps, LOAD_TURN_MOST_STEPS))
            self._schedule()

    def turn(self, host: Host[S], steps: int = LOAD_TURN_STEPS) -> None:
        """Some of it; afterwards the host is ready, or not yet, or (without `load`) never."""
        load = host.load
        if load is None or host.partition.recovering or host.reading is not None:
            return
        until = self._loop.time() + LOAD_TURN_SECONDS
        try:
            for step, reading in enumerate(load, 1):
                if host.load is not load:
                    # What the shard wanted written met a disk that failed, and that was the end of the host.
                    return
                if reading is not None:
                    host.reading = reading
                    reading.add_done_callback(partial(self._read, host))
                    return
                if step >= steps or self._loop.time() >= until:
                    return
            host.load = None
            self._log_success(host)
            self._finished(host)
        except (KafkaError, StorageError, ValueError, OverflowError, DecodeError) as error:
            # What is wrong stays wrong until an administrator repairs it: answer, and wait for the next election.
            host.silence()
            logger.error("%r: cannot be loaded: %s", host.partition, error)
        except Exception:
            # A bug, and told as one: half a state must not be served, and other loads go on.
            host.silence()
            logger.exception("%r: cannot be loaded", host.partition)

    def _read(self, host: Host[S], done: asyncio.Future[ReadResult]) -> None:
        if not done.cancelled():
            # The load handles an error; after the load nothing does.
            done.exception()
            host.reading = None
            self._schedule()

    def _log_success(self, host: Host[S]) -> None:
        skipped = f", {host.skipped_records} of types that are not served here" if host.skipped_records else ""
        # Most of the 50 partitions hold nothing: their lines would bury the others.
        logger.log(
            logging.INFO if host.loaded_records else logging.DEBUG,
            "%r: loaded %d records in leader epoch %d%s",
            host.partition,
            host.loaded_records,
            host.epoch,
            skipped,
        )

    def _read_log(self, host: Host[S]) -> Iterator[asyncio.Future[ReadResult] | None]:
        """Replay the log to its end; yields where a pause is possible, or what has to be waited for."""
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
                # A crash took what was here: there are no records up to the end.
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
                        host.loaded_records += loaded
                        host.skipped_records += skipped
                        yield None
                offset = header.next_offset
            # Before the collector gets to see it again and again, for a tenth of a second in the end.
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
        """Of any kind, one record after another."""
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
            host.skipped_records += 1
        else:
            host.loaded_records += 1
            host.shard.replay(record, at, producer_id)
