"""The share partitions of one partition of `__share_group_state` (KIP-932): decides, and replays what was decided.

Responsible for the rules of Kafka's share coordinator about epochs, snapshots and unknown share partitions. Also for
the offset up to which the log is redundant. Not responsible for finding the partition of a key, for joining answers
(service.py), nor for the meaning of what a share partition's leader writes.

The rules:

* A request whose leader epoch or state epoch is lower than that of any record is fenced. A higher one passes. A
  negative one is an invalid request, as in Apache Kafka 4.4.
* Only a read raises the leader epoch, by a record of its own, so that an older leader is fenced from then on.
* A write never lowers the start offset. One with a lower start leaves the count of delivered records, and one with the
  same start never lowers the count. So a write that comes late, or twice, takes nothing back.
* A write is an update, or a snapshot of everything once `updates_per_snapshot` updates have been written. Only such a
  snapshot begins the count anew; those of an initialisation and of a cold share partition do not.
* Initialising replaces the state. A share partition that was never initialised can be neither read nor written.
* A deletion of unknown state succeeds, and a summary of it has no start offset.

Invariants: only `replay` changes state. No record at or after `redundant_before` may be deleted: it is the least offset
of the last snapshots of all share partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from pykbroker.coordinator.measures import CountedEvent
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey
from pykbroker.coordinator.share.records import (
    key_of,
    snapshot_record,
    state_of,
    tombstone,
    update_of,
    update_record,
)
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.coordinator.share.share_state import (
    KeptState,
    ShareState,
    StateUpdate,
    after_update,
    cold_snapshot,
    initial_state,
    next_snapshot,
)
from pykbroker.coordinator.share.state_batches import PersistedBatch, merged
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.stored.share.share_snapshot import ShareSnapshotValue
from pykbroker_wire.stored.share.share_update import ShareUpdateKey, ShareUpdateValue

_NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
_NEGATIVE_LEADER_EPOCH: Final = "The leader epoch cannot be a negative number."
_NEGATIVE_STATE_EPOCH: Final = "The state epoch cannot be a negative number."
_WRITTEN_BEFORE_INITIALISED: Final = "Write operation on uninitialized share partition not allowed."
_READ_BEFORE_INITIALISED: Final = "Read operation on uninitialized share partition not allowed."


class StateOutcome(NamedTuple):
    """The answer for one share partition. `message` is None without an error. `state` is for reads and summaries; None
    is unknown state."""

    code: ErrorCode
    message: str | None = None
    state: ShareState | None = None


class StateWrite(NamedTuple):
    """A write of a share partition's leader. The batches may overlap and be in any order."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: list[PersistedBatch]


_DONE: Final = StateOutcome(ErrorCode.NONE)


class ShareStateShard:
    """The state of one partition. Each operation appends its record, if it has one, to the `records` of a Result."""

    __slots__ = ("_partition_count", "_tombstone_at", "_updates_per_snapshot", "states", "unwritten")

    def __init__(self, updates_per_snapshot: int, partition_count: Callable[[bytes], int]) -> None:
        """`partition_count` returns how many partitions a topic id has now, 0 if the topic does not exist."""
        self._updates_per_snapshot = updates_per_snapshot
        self._partition_count = partition_count
        self.states: dict[SharePartitionKey, KeptState] = {}
        #: keys whose record may be collected and not replayed yet. After a refused append a key stays, until it is
        #: written again.
        self.unwritten: set[SharePartitionKey] = set()
        #: the offset of the last tombstone, -1 if there is none
        self._tombstone_at = -1

    def must_see(self, keys: Collection[SharePartitionKey]) -> bool:
        """Return True if an operation on these keys needs the collected records to be written first."""
        return not self.unwritten.isdisjoint(keys)

    # -- operations ---------------------------------------------------------------------------------------------------

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int, result: Result
    ) -> StateOutcome:
        """Replace the state, or begin one."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if state_epoch < 0:
            return _invalid(_NEGATIVE_STATE_EPOCH)
        kept = self.states.get(key)
        if kept is not None and kept.state_epoch > state_epoch:
            return _refused(ErrorCode.FENCED_STATE_EPOCH)
        if not self._exists(key):
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        snapshot_epoch = 0 if kept is None else kept.state.snapshot_epoch + 1
        self._add(key, snapshot_record(key, initial_state(state_epoch, start_offset, snapshot_epoch, now_ms)), result)
        return _DONE

    def write(self, key: SharePartitionKey, wanted: StateWrite, now_ms: int, result: Result) -> StateOutcome:
        """Add the batches of a leader, and move the start offset."""
        result.count(CountedEvent.SHARE_STATE_WRITE)
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if wanted.leader_epoch < 0:
            return _invalid(_NEGATIVE_LEADER_EPOCH)
        if wanted.state_epoch < 0:
            return _invalid(_NEGATIVE_STATE_EPOCH)
        kept = self.states.get(key)
        if kept is None:
            return _invalid(_WRITTEN_BEFORE_INITIALISED)
        if kept.leader_epoch > wanted.leader_epoch:
            return _refused(ErrorCode.FENCED_LEADER_EPOCH)
        if kept.state_epoch > wanted.state_epoch:
            return _refused(ErrorCode.FENCED_STATE_EPOCH)
        if not self._exists(key):
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._write(key, kept, kept.state.leader_epoch, wanted, now_ms, result)
        return _DONE

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int, result: Result) -> StateOutcome:
        """Answer with the state, and fence all leaders before this one."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if leader_epoch < 0:
            return _invalid(_NEGATIVE_LEADER_EPOCH)
        kept = self.states.get(key)
        if kept is None:
            return _invalid(_READ_BEFORE_INITIALISED)
        if kept.leader_epoch > leader_epoch:
            return _refused(ErrorCode.FENCED_LEADER_EPOCH)
        if not self._exists(key):
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = kept.state
        if leader_epoch != kept.leader_epoch:
            result.count(CountedEvent.SHARE_STATE_WRITE)
            same = StateWrite(state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, [])
            self._write(key, kept, leader_epoch, same, now_ms, result)
        return StateOutcome(ErrorCode.NONE, None, state)

    def summary(self, key: SharePartitionKey) -> StateOutcome:
        """Answer with the state, or without one if there is none."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if not self._exists(key):
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        kept = self.states.get(key)
        return StateOutcome(ErrorCode.NONE, None, None if kept is None else kept.state)

    def delete(self, key: SharePartitionKey, result: Result) -> StateOutcome:
        """Remove the state."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if not self._exists(key):
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if key in self.states:
            self._add(key, tombstone(key), result)
        return _DONE

    def _exists(self, key: SharePartitionKey) -> bool:
        return key.partition < self._partition_count(key.topic_id)

    def _write(
        self,
        key: SharePartitionKey,
        kept: KeptState,
        leader_epoch: int,
        wanted: StateWrite,
        now_ms: int,
        result: Result,
    ) -> None:
        state = kept.state
        start, count = max(wanted.start_offset, state.start_offset), wanted.delivery_complete_count
        if wanted.start_offset < state.start_offset:
            count = state.delivery_complete_count
        elif wanted.start_offset == state.start_offset:
            count = max(count, state.delivery_complete_count)
        update = StateUpdate(state.snapshot_epoch, leader_epoch, start, count, merged((), wanted.batches, start))
        if kept.updates >= self._updates_per_snapshot:
            self._add(key, snapshot_record(key, next_snapshot(state, update, now_ms)), result)
        else:
            self._add(key, update_record(key, update), result)

    def _add(self, key: SharePartitionKey, record: CoordinatorRecord, result: Result) -> None:
        result.records.append(record)
        self.unwritten.add(key)

    # -- what the coordinator does by itself --------------------------------------------------------------------------

    def snapshot_cold(self, interval_ms: int, now_ms: int) -> Result:
        """Write a snapshot for each share partition whose last one is `interval_ms` old, so that one without traffic
        does not keep the records of the others. If none had a write since its last such snapshot, nothing is
        written."""
        result = Result()
        result.atomic = False
        if any(kept.state.create_ms == kept.state.write_ms for kept in self.states.values()):
            result.records += [
                snapshot_record(key, cold_snapshot(kept.state, now_ms))
                for key, kept in self.states.items()
                if now_ms - kept.state.write_ms >= interval_ms
            ]
        return result

    def topics_deleted(self, topic_ids: Collection[bytes]) -> Result:
        """Remove the state of deleted topics."""
        result = Result()
        result.atomic = False
        result.records += [tombstone(key) for key in self.states if key.topic_id in topic_ids]
        return result

    def redundant_before(self) -> int | None:
        """Return the offset below which no record is needed, or None if all are. It is computed when it is asked for,
        over all share partitions, which happens every few minutes."""
        least = min((kept.snapshot_at for kept in self.states.values() if kept.snapshot_at is not None), default=None)
        if least is None:
            # Nothing after a tombstone needs what was before it.
            least = self._tombstone_at
        return least if least > 0 else None

    # -- the shard of the machine -------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None:
        """Take a record of the log, at its offset."""
        key = key_of(record)
        self.unwritten.discard(key)
        if isinstance(record.key, ShareUpdateKey):
            assert isinstance(record.value, ShareUpdateValue)
            self._replay_update(key, update_of(record.value))
        elif record.value is None:
            self.states.pop(key, None)
            self._tombstone_at = at
        else:
            assert isinstance(record.value, ShareSnapshotValue)
            self._replay_snapshot(key, state_of(record.value), at)

    def _replay_snapshot(self, key: SharePartitionKey, state: ShareState, at: int) -> None:
        kept = self.states.get(key)
        if kept is None:
            kept = self.states[key] = KeptState(state)
        else:
            kept.state = state
            kept.leader_epoch = max(kept.leader_epoch, state.leader_epoch)
            kept.state_epoch = max(kept.state_epoch, state.state_epoch)
        if kept.updates >= self._updates_per_snapshot:
            kept.updates = 0
        kept.snapshot_at = at

    def _replay_update(self, key: SharePartitionKey, update: StateUpdate) -> None:
        kept = self.states.get(key)
        if kept is None:
            kept = self.states[key] = KeptState(after_update(None, update))
        else:
            kept.state = after_update(kept.state, update)
            kept.leader_epoch = max(kept.leader_epoch, update.leader_epoch)
        kept.updates += 1

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Do nothing, because no client writes to this topic in a transaction."""

    def loaded(self, now_ms: int) -> Iterator[Result]:
        """Begin nothing: the coordinator's own work comes by time."""
        return iter(())

    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result:
        """No timer is ever set."""
        raise AssertionError(f"the share coordinator has no timers, but {key} fired")


def _invalid(message: str) -> StateOutcome:
    return StateOutcome(ErrorCode.INVALID_REQUEST, message)


def _refused(code: ErrorCode) -> StateOutcome:
    return StateOutcome(code, code.message)
