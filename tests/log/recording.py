"""A log on a disk that records every call, and what it was meant to be at each moment: what workloads have in common.

prefixes.py cuts the power after each of those calls; the moments say what the next start must find then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from tests.log.helpers import NOW

#: what a workload knows of a record
R = TypeVar("R")


@dataclass
class Moment(Generic[R]):
    """The log as it was meant to be when an operation had been done."""

    begun: int  # calls recorded before the operation
    done: int  # calls recorded after it
    records: dict[int, R]
    start: int
    end: int
    promised: int  # everything in [start, promised) survives from `done` on
    forget: bool = False  # the operation is durable: older states cannot come back


@dataclass
class RecordedLog(Generic[R]):
    """Each operation of a workload ends with `moment(calls before it)`."""

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
        """After a truncation the producers go on where the log ends now."""
        entries = self.log.producers.entries
        self.sequences = {pid: entries[pid].last_sequence + 1 for pid in self.sequences if pid in entries}

    # -- what is known of it after so many calls

    def over(self, calls: int) -> list[Moment[R]]:
        return [moment for moment in self.moments if moment.done <= calls]

    def under_way(self, calls: int) -> list[Moment[R]]:
        return [moment for moment in self.moments if moment.begun <= calls < moment.done]

    def promised_at(self, calls: int) -> int:
        """By the last moment that is over, less what an operation under way may take."""
        return min([moment.promised for moment in self.over(calls)[-1:] + self.under_way(calls)], default=0)

    def possible(self, calls: int) -> list[Moment[R]]:
        """Those that a loss of power may leave."""
        over = self.over(calls)
        since = max([index for index, moment in enumerate(over) if moment.forget], default=0)
        return over[since:] + self.under_way(calls)

    def mark(self, calls: int) -> tuple[int, int]:
        """Another one for calls between which the judgement differs."""
        return sum(one.done <= calls for one in self.moments), sum(one.begun <= calls for one in self.moments)
