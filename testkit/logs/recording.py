"""A log on a disk that records every call, with its expected state at each moment: the common part of the workloads.

prefixes.py cuts the power after each of those calls; the moments contain what the next start must find then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import NOW

#: the data that a workload keeps for a record
R = TypeVar("R")


@dataclass
class Moment(Generic[R]):
    """The expected log after an operation."""

    begun: int  # calls recorded before the operation
    done: int  # calls recorded after it
    records: dict[int, R]
    start: int
    end: int
    promised: int  # everything in [start, promised) survives from `done` on
    forget: bool = False  # the operation is durable: older states cannot come back


@dataclass
class RecordedLog(Generic[R]):
    """Records a workload; each operation ends with `moment(calls before it)`."""

    seed: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    moments: list[Moment[R]] = field(default_factory=list)
    records: dict[int, R] = field(default_factory=dict)
    #: producer -> its next sequence
    sequences: dict[int, int] = field(default_factory=dict)
    promised: int = 0
    now: int = NOW

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.log: PartitionLog
        self.disk.make_dirs("data")
        self.disk.fsync_dir(".")

    def moment(self, begun: int, forget: bool = False) -> None:
        log = self.log
        end = log.log_end_offset
        self.promised = min(self.promised, end)
        done = len(self.disk.calls)
        start = log.log_start_offset
        self.moments.append(Moment(begun, done, dict(self.records), start, end, self.promised, forget))

    def roll(self) -> None:
        begun = len(self.disk.calls)
        self.log.roll(self.now)
        self.moment(begun)

    def flush(self) -> None:
        begun = len(self.disk.calls)
        self.log.flush()
        self.promised = self.log.log_end_offset
        self.moment(begun)

    def forget_sequences(self) -> None:
        """Let the producers continue at the log's new end after a truncation."""
        entries = self.log.producers.entries
        self.sequences = {pid: entries[pid].last_sequence + 1 for pid in self.sequences if pid in entries}

    # -- moments after a number of calls

    def over(self, calls: int) -> list[Moment[R]]:
        return [moment for moment in self.moments if moment.done <= calls]

    def under_way(self, calls: int) -> list[Moment[R]]:
        return [moment for moment in self.moments if moment.begun <= calls < moment.done]

    def promised_at(self, calls: int) -> int:
        """The promise of the last completed moment, minus what an operation under way may remove."""
        return min([moment.promised for moment in self.over(calls)[-1:] + self.under_way(calls)], default=0)

    def possible(self, calls: int) -> list[Moment[R]]:
        """The moments whose state a power loss may leave."""
        over = self.over(calls)
        since = max([index for index, moment in enumerate(over) if moment.forget], default=0)
        return over[since:] + self.under_way(calls)

    def mark(self, calls: int) -> tuple[int, int]:
        """Return equal marks for calls after which the checks are the same."""
        return sum(one.done <= calls for one in self.moments), sum(one.begun <= calls for one in self.moments)
