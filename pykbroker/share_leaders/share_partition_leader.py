"""The leader of one share partition, which is a group's state of a partition that this broker leads (Apache Kafka:
SharePartition, and its part of SharePartitionManager).

Responsible for driving the machine (share_partitions/): it loads the state, writes changes to the share coordinator,
answers when they are written, and ends locks at their time. It has dead letters written, and wakes the fetches that
wait. Not responsible for reading the log (fetches/), nor for the choice of the leaders that exist (leader_table.py).

A leader object belongs to one leader epoch of the partition. It never becomes active again: the next fetch makes a new
one, which reads the state anew.

Invariants: nothing is acquired before the start of the group is stored at the share coordinator. So a group whose start
was resolved by `latest` does not lose records if this broker is killed before their first acknowledgement (in Apache
Kafka it does). An acknowledgement is answered after its write. After the leader has left the table, it writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pykbroker.net.promise import Promise
from pykbroker.replica.parked import FetchWaiter, Isolation
from pykbroker.runtime.early_timer import EarlyTimer
from pykbroker.share_leaders.change_turns import ChangeTurns
from pykbroker.share_leaders.dead_letter_flow import DeadLetterFlow
from pykbroker.share_leaders.fetch_wakes import FetchWakes
from pykbroker.share_leaders.leader_states import LeaderState, error_for_clients, is_fencing
from pykbroker.share_leaders.state_load import LoadedState, StateLoad
from pykbroker.share_leaders.state_writes import JoinedWrites
from pykbroker.share_partitions.share_partition import SharePartition
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
    from pykbroker.replica.partition import Partition
    from pykbroker.runtime.client_clock import ClientClock
    from pykbroker.share_leaders.dead_letters import DeadLetterWriter
    from pykbroker.share_leaders.leader_configs import ShareLeaderConfig
    from pykbroker.share_leaders.share_measures import ShareMeasures
    from pykbroker.share_partitions.acknowledged_ranges import AcknowledgedRange
    from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange
    from pykbroker.share_partitions.delivery_states import ShareLimits
    from pykbroker.share_partitions.state_changes import DeliveryWrite, StateChange
    from pykbroker.share_persister.state_operations import ShareStateAnswer, WrittenBatch

logger = logging.getLogger(__name__)


class StateKeeper(Protocol):
    """The part of `SharePersister` that a leader uses. Each call returns a promise of a `ShareStateAnswer`."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Promise: ...

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[WrittenBatch],
    ) -> Promise: ...


@dataclass(frozen=True, slots=True)
class LeaderServices:
    """The parts of a broker that all its leaders use."""

    #: the locks end by its time; everything else is on its loop
    clock: ClientClock
    keeper: StateKeeper
    #: the present configuration of a group
    config_of: Callable[[str], ShareLeaderConfig]
    #: returns a promise of the offset at which a group starts (`StartOffsets.find`)
    find_start: Callable[[Partition, str], Promise]
    dead_letters: DeadLetterWriter
    measures: ShareMeasures
    #: called once for each leader, when it is no longer to be found
    left: Callable[[SharePartitionLeader], None]
    #: called when all dead letters of a leader are written, and their records archived
    letters_ended: Callable[[SharePartitionLeader], None]


class SharePartitionLeader:
    """The state of one group for one partition, in one leader epoch.

    A fetch waits for it as for a partition: `fetch_waiters` is that of a `WatchedPartition` (replica/parked.py). The
    fetch is woken when records may have become available for it, and when the leader has left the table.
    """

    __slots__ = (
        "_changes",
        "_is_start_stored",
        "_load",
        "_services",
        "_start_write",
        "_timer",
        "_wakes",
        "_writes",
        "error",
        "fetch_waiters",
        "key",
        "leader_epoch",
        "letters",
        "machine",
        "partition",
        "state",
    )

    def __init__(self, key: SharePartitionKey, partition: Partition, services: LeaderServices) -> None:
        """Begin to load. `partition` is led by this broker."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = LeaderState.LOADING
        #: the error for clients, once the leader has left the table
        self.error = ErrorCode.NONE
        #: the fetches that wait, in the order in which they came
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._services = services
        #: the state, for questions; before the load it is empty
        self.machine = SharePartition(0)
        self._is_start_stored = True
        self._start_write: Promise | None = None
        self._timer = EarlyTimer(services.clock, self._expire, per_second=1000)
        #: the dead letters that are not written yet
        self.letters = DeadLetterFlow(
            services.clock.loop, key, services.dead_letters, self._archive, lambda: services.letters_ended(self)
        )
        self._changes = ChangeTurns(services.clock.loop)
        self._wakes = FetchWakes(services.clock.loop, self.fetch_waiters, self._may_get_more)
        partition.fetch_waiters[self] = None
        self._load = StateLoad(
            lambda: services.find_start(partition, self._config.offset_reset),
            partial(self._loaded, services.clock.loop.time()),
        )
        self._load.begin(services.keeper.read(key, self.leader_epoch))

    def __repr__(self) -> str:
        return f"Group {self.key.group_id}: share partition {self.partition}"

    # -- loading ------------------------------------------------------------------------------------------------------

    def _loaded(self, began_s: float, found: LoadedState | KafkaError) -> None:
        self._services.measures.loaded(began_s)
        if isinstance(found, KafkaError):
            # A group that is not initialised, and a moved leader, are usual.
            is_usual = found.code is ErrorCode.UNKNOWN_SERVER_ERROR or is_fencing(found.code)
            logger.log(logging.INFO if is_usual else logging.WARNING, "%s could not be loaded: %s", self, found)
            self._leave(LeaderState.FAILED, found.code)
            return
        self.machine, self._is_start_stored = found.machine, found.is_start_stored
        state_epoch = found.state_epoch

        def send(write: DeliveryWrite) -> Promise:
            return self._services.keeper.write(
                self.key, state_epoch, self.leader_epoch, write.start, write.delivered, write.ranges
            )

        self._writes = JoinedWrites(self.key, send, self._write_ended)
        for size in found.batch_sizes:
            self._services.measures.partition(self.key).batch_sizes.record(size)
        self._become(LeaderState.ACTIVE)
        self.letters.add(self.machine.unfinished_letters(self.limits))
        self.store_start()
        self._wakes.soon()

    def store_start(self) -> None:
        """Write a resolved start to the share coordinator, unless it is stored or its write is out. After a write that
        has failed, the next fetch calls this."""
        if self._is_start_stored or self._start_write is not None or self.state is not LeaderState.ACTIVE:
            return
        self._start_write = self._write(self.machine.start_write())
        self._start_write.add_done_callback(self._start_written)

    def _start_written(self, promise: Promise) -> None:
        self._start_write = None
        if promise.result().error is ErrorCode.NONE:
            self._is_start_stored = True
            self._wakes.now()

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Leave the table: the broker no longer leads the partition, or no member of the group reads here. `error` is
        for requests that have this object. Does nothing if the leader has left already."""
        if not self.has_left:
            self._leave(LeaderState.ENDED, error)

    @property
    def has_left(self) -> bool:
        """True if the leader is no longer in the table. `error` is for the clients then."""
        return self.error is not ErrorCode.NONE

    def _leave(self, state: LeaderState, error: ErrorCode) -> None:
        if self.state is LeaderState.ACTIVE:
            # Before the next leader reads the state.
            self._writes.send_all()
        self._become(state)
        self.error = error
        self.partition.fetch_waiters.pop(self, None)
        self._timer.cancel()
        self.letters.stop()
        self._load.cancel()
        self._services.left(self)
        self._wakes.soon()

    def _become(self, state: LeaderState) -> None:
        assert self.state.may_become(state), f"{self.state} cannot become {state}"
        self.state = state

    # -- what a fetch asks --------------------------------------------------------------------------------------------

    @property
    def _config(self) -> ShareLeaderConfig:
        return self._services.config_of(self.key.group_id)

    @property
    def limits(self) -> ShareLimits:
        """The present limits of the group."""
        limits = self._config.limits
        if self._services.dead_letters.is_wanted(self.key.group_id):
            return limits._replace(dead_letters=True)
        return limits

    @property
    def read_committed(self) -> bool:
        """True if the group reads committed records only (share.isolation.level)."""
        return self._config.read_committed

    def can_acquire(self) -> bool:
        """Return True if a fetch may acquire records: the leader is active, the start of the group is stored, and there
        is room for locks and for dead letters."""
        is_ready = self.state is LeaderState.ACTIVE and self._is_start_stored and self.letters.has_room
        return is_ready and self.machine.can_acquire(self._config.limits)

    def acquire(self, ask: Acquire) -> list[AcquiredRange]:
        """Lock records for a member and return their ranges. Call it only if `can_acquire()`, in the turn of the loop
        in which the log was read from `next_fetch_offset` on."""
        assert self._is_start_stored
        note_batch = self._services.measures.partition(self.key).batch_sizes.record
        found = self.machine.acquire(ask, self._config.limits, self._now_ms(), note_batch)
        self._timer.set(self.machine.next_expiry_ms())
        return found

    def give_back(self, member: str, acquired: Sequence[AcquiredRange]) -> None:
        """Undo an acquisition whose records were never sent."""
        if self.state is LeaderState.ACTIVE:
            self.machine.give_back(member, acquired)
            self._wakes.soon()

    def log_start_moved(self, log_start: int) -> None:
        """Note the start of the log after a read has returned OFFSET_OUT_OF_RANGE. Records before it are done; the next
        write has the new start."""
        if self.state is LeaderState.ACTIVE:
            self.machine.move_start(log_start)
            self._wakes.soon()

    # -- acknowledging and releasing ----------------------------------------------------------------------------------

    def acknowledge(self, member: str, ranges: Sequence[AcknowledgedRange], *, is_renewal: bool) -> Promise:
        """Acknowledge records. Return a promise of the error for the partition, which has its result when the change is
        stored, or within this call if there is nothing to store. `ranges` may not change until then."""
        promise = Promise()
        if self.has_left:
            promise.set_result(self.error)
        elif self.state is LeaderState.LOADING:
            # As in Apache Kafka: nothing is acquired.
            promise.set_result(ErrorCode.INVALID_RECORD_STATE)
        else:
            self._changes.begin(
                lambda: self.machine.acknowledge(member, ranges, self.limits, self._now_ms(), is_renewal=is_renewal),
                partial(self._changed, promise),
            )
        return promise

    def release(self, member: str) -> Promise:
        """Release all locks of a member, because its session has ended, after the acknowledgements that have begun.
        Return a promise as `acknowledge` does."""
        promise = Promise()
        if self.state is LeaderState.ACTIVE:
            self._changes.begin(
                lambda: self.machine.release(member, self.limits, self._now_ms()),
                partial(self._changed, promise),
            )
        else:
            promise.set_result(self.error)
        return promise

    def _changed(self, promise: Promise, change: StateChange) -> None:
        """A change is whole: write it."""
        if self.has_left:
            promise.set_result(self.error)
            return
        self._after(change)
        if change.error is not None:
            promise.set_result(change.error)
        elif change.write is None:
            promise.set_result(ErrorCode.NONE)
        else:
            self._write(change.write).add_done_callback(partial(self._written, change.write, promise))

    def _written(self, write: DeliveryWrite, promise: Promise, outcome: Promise) -> None:
        error = error_for_clients(outcome.result().error)
        if self.has_left:
            # The write was sent before. Its outcome counts, although this state no longer does.
            promise.set_result(error)
            return
        if not write.is_awaited:
            # Its records have their states whatever its outcome is.
            self.letters.add(write.dead)
            self.letters.stored(write)
            promise.set_result(error)
            return
        change = self.machine.persisted(write, error is ErrorCode.NONE, self.limits, self._now_ms())
        self._changes.finish(change, partial(self._settled, write, promise, error))

    def _settled(self, write: DeliveryWrite, promise: Promise, error: ErrorCode, change: StateChange) -> None:
        # An error in the answer of one client takes neither locks' timers nor records from the others.
        if not self.has_left:
            self._after(change)
            self.letters.stored(write)
        promise.set_result(error)

    def _after(self, change: StateChange) -> None:
        self._timer.set(self.machine.next_expiry_ms())
        self.letters.add(change.dead)
        if change.frees:
            self._wakes.soon()

    def _archive(self, ranges: Sequence[tuple[int, int]]) -> Promise:
        """Archive records whose dead letters are written or given up. Return a promise as `acknowledge` does."""
        promise = Promise()
        self._changes.finish(self.machine.archive(ranges), partial(self._changed, promise))
        # There is room again for letters that wait.
        self._wakes.soon()
        return promise

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, write: DeliveryWrite) -> Promise:
        self.letters.expect(write)
        return self._writes.write(write)

    def _write_ended(self, answer: ShareStateAnswer) -> None:
        """Leave the table if the share coordinator has fenced this leader."""
        error = error_for_clients(answer.error)
        if error is not ErrorCode.NONE and not self.has_left:
            # The persister has a warning for a coordinator that cannot be reached, for all share partitions together.
            logger.info("%s: a change could not be stored: %s", self, answer.message or answer.error.message)
            if is_fencing(error):
                self._leave(LeaderState.FENCED, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        # Not rounded down: the timer of 16150 ms fires at 16.15 s, which are 16149.999 ms, and would set itself again.
        return round(self._services.clock.time() * 1000)

    def _expire(self) -> None:
        write = self.machine.expire(self.limits, self._now_ms())
        if write is not None:
            ended = sum(each.last - each.first + 1 for each in write.ranges)
            self._services.measures.partition(self.key).lock_timeouts += ended
            self._write(write).add_done_callback(partial(self._written, write, Promise()))
            self._wakes.now()
        self._timer.set(self.machine.next_expiry_ms())

    # -- the partition ------------------------------------------------------------------------------------------------

    @property
    def isolation(self) -> Isolation:
        """For the partition, at which this leader waits like a fetch, as long as it is in the table."""
        return Isolation.TXN_COMMITTED if self.read_committed else Isolation.HIGH_WATERMARK

    def poke(self, arrived_bytes: int) -> None:
        """Note that this many bytes became readable in the partition, or that something else has happened to it."""
        if self.partition.offline:
            self.end(ErrorCode.KAFKA_STORAGE_ERROR)
        elif arrived_bytes > 0 and self.state is LeaderState.ACTIVE:
            self._wakes.now()

    def _may_get_more(self) -> bool:
        """Return True if a fetch that is woken may get records, or an error."""
        if self.has_left:
            return True
        if not self.can_acquire():
            return False
        log = self.partition.log_if_open
        if log is None:
            return True
        end = log.last_stable_offset if self.read_committed else log.high_watermark
        return self.machine.next_fetch_offset < end
