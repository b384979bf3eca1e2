"""Queues of markers by broker: a value that takes decisions, answers and leaders as inputs, and gives the requests to
send.

Responsible for a queue per broker (markers of many transactions in one request) with one request at a time. It also
decides what answers mean, keeps the markers that wait for a leader or for their next attempt, and notices when a
transaction has all of its markers. Not responsible for sending, for time, nor for what follows a complete transaction
(sender.py).

The meaning of errors: most pass with time or with the metadata, and the marker is sent again, to the current leader. A
deleted partition needs no marker. INVALID_PRODUCER_EPOCH means that the log has this epoch's marker, or a later epoch,
already. Then only the answer was lost, not the marker (with transaction.version 2 a repeated marker always ends like
this). TRANSACTION_COORDINATOR_FENCED means that another coordinator sends the markers now.

An unexpected code may never go away. It is logged once per job, and the markers that it refused rest longer.

Invariant: every partition of a job is in exactly one of: queued, sent, leaderless, resting, refused, done; a job whose
partitions are all done is in `completed` once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.coordinator.transaction.shard import Decided
from pykbroker_wire.errors import ErrorCode

logger = logging.getLogger(__name__)

#: The broker that leads a partition: -1 while no broker does, None if there is no such partition.
LeaderOf = Callable[[TopicPartition], "int | None"]

_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_PASSES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class MarkerJob:
    """One decided transaction and the partitions that have no marker yet. Jobs are compared by identity."""

    __slots__ = ("coordinator_epoch", "decided", "index", "remaining", "told")

    def __init__(self, index: int, coordinator_epoch: int, decided: Decided) -> None:
        #: the partition of `__transaction_state`, and the leader epoch in which the transaction was decided or loaded
        self.index = index
        self.coordinator_epoch = coordinator_epoch
        self.decided = decided
        self.remaining = set(decided.partitions)
        #: unexpected codes that are logged already
        self.told: set[ErrorCode] = set()

    def __repr__(self) -> str:
        return f"markers of {self.decided.producer} for {len(self.remaining)} partitions"


class DueMarkers(NamedTuple):
    job: MarkerJob
    partitions: list[TopicPartition]


class MarkerQueue:
    """The queue of markers of this node (see the module's docstring)."""

    def __init__(self, leader_of: LeaderOf, here: int) -> None:
        self._leader_of = leader_of
        self._here = here
        #: the newest decision, by transactional id
        self.jobs: dict[str, MarkerJob] = {}
        self._queued: dict[int, dict[MarkerJob, list[TopicPartition]]] = {}
        self._busy: set[int] = set()
        self._leaderless: dict[MarkerJob, list[TopicPartition]] = {}
        self._resting: dict[MarkerJob, list[TopicPartition]] = {}
        self._refused: dict[MarkerJob, list[TopicPartition]] = {}
        self._completed: list[MarkerJob] = []

    @property
    def waits_for_leaders(self) -> bool:
        return bool(self._leaderless)

    @property
    def rests(self) -> bool:
        return bool(self._resting)

    @property
    def rests_long(self) -> bool:
        return bool(self._refused)

    # -- inputs -------------------------------------------------------------------------------------------------------

    def add(self, job: MarkerJob) -> list[TopicPartition]:
        """Add a decision, or the same decision again by a coordinator of a later epoch. Partitions that this node leads
        are returned and not queued. The caller writes their markers now and calls `settle` with the outcome."""
        self.jobs[job.decided.producer.transactional_id] = job
        # Sorted, so that the same run sends the same requests.
        partitions = sorted(job.remaining)
        leader_of = self._leader_of
        led_here: list[TopicPartition] = []
        elsewhere: list[TopicPartition] = []
        for partition in partitions:
            (led_here if leader_of(partition) == self._here else elsewhere).append(partition)
        self._route(job, elsewhere)
        if not job.remaining:
            self._complete(job)
        return led_here

    def answered(
        self, broker: int, sent: list[DueMarkers], codes: Mapping[tuple[MarkerJob, TopicPartition], ErrorCode]
    ) -> None:
        """Take a broker's answers for the markers that `take` returned."""
        self._busy.discard(broker)
        for job, partitions in sent:
            for partition in partitions:
                self.settle(job, partition, codes.get((job, partition), ErrorCode.NETWORK_EXCEPTION))

    def failed(self, broker: int, sent: list[DueMarkers]) -> None:
        """Send these markers again, because no answer came. They may have been written."""
        self.answered(broker, sent, {})

    def settle(self, job: MarkerJob, partition: TopicPartition, code: ErrorCode) -> None:
        """Take the error code of one marker."""
        if not self._is_current(job):
            return
        if code in _DONE:
            self._done(job, partition)
        elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            logger.info("Another coordinator has taken over, so this node no longer sends %r", job)
            self.discard(job)
        elif code in _PASSES:
            self._resting.setdefault(job, []).append(partition)
        else:
            if code not in job.told:
                job.told.add(code)
                logger.error(
                    "%r: the marker for partition %s-%d was refused and is sent again: %s", job, *partition, code.name
                )
            self._refused.setdefault(job, []).append(partition)

    def leaders_changed(self) -> None:
        """Look again at markers that have no leader, and at markers that rest, because the old leader may have been the
        reason."""
        waiting, self._leaderless = self._leaderless, {}
        for job, partitions in waiting.items():
            self._route(job, partitions)
        self.rouse()
        self.rouse_refused()

    def rouse(self) -> None:
        """Queue again all markers that got a temporary error or no answer. Call it when they have rested long
        enough."""
        resting, self._resting = self._resting, {}
        for job, partitions in resting.items():
            self._route(job, partitions)

    def rouse_refused(self) -> None:
        """Queue again all markers that got an unexpected code. Call it when they have rested long enough."""
        refused, self._refused = self._refused, {}
        for job, partitions in refused.items():
            self._route(job, partitions)

    def discard(self, job: MarkerJob) -> None:
        """Drop a job whose coordinator is no longer on this node."""
        if self._is_current(job):
            del self.jobs[job.decided.producer.transactional_id]

    # -- outputs ------------------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        """Return the brokers to which something may be sent now."""
        return [broker for broker, queued in self._queued.items() if queued and broker not in self._busy]

    def take(self, broker: int) -> list[DueMarkers]:
        """Return all queued markers of one broker. Send it nothing more before `answered` or `failed`."""
        queued = self._queued.pop(broker, {})
        self._busy.add(broker)
        return [DueMarkers(job, partitions) for job, partitions in queued.items() if self._is_current(job)]

    def completed(self) -> list[MarkerJob]:
        """Return the jobs that have become complete since the last call."""
        done, self._completed = self._completed, []
        return done

    # -- within -------------------------------------------------------------------------------------------------------

    def _is_current(self, job: MarkerJob) -> bool:
        return self.jobs.get(job.decided.producer.transactional_id) is job

    def _route(self, job: MarkerJob, partitions: list[TopicPartition]) -> None:
        if not self._is_current(job):
            return
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                # The partition is deleted, so no consumer reads its transaction.
                self._done(job, partition)
            elif leader < 0:
                self._leaderless.setdefault(job, []).append(partition)
            else:
                self._queued.setdefault(leader, {}).setdefault(job, []).append(partition)

    def _done(self, job: MarkerJob, partition: TopicPartition) -> None:
        if partition in job.remaining:
            job.remaining.discard(partition)
            if not job.remaining:
                self._complete(job)

    def _complete(self, job: MarkerJob) -> None:
        if self._is_current(job):
            del self.jobs[job.decided.producer.transactional_id]
            self._completed.append(job)
