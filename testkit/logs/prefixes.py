"""Power fails at every moment of a recorded workload: the disks that the next start may find, and their checks.

A workload is recorded once. Then every prefix of its calls is repeated on an empty disk and the power is cut. A start
from that disk may itself be interrupted, and the one after it. `examine` passes each disk to a check that starts from
it. Everything is drawn from a seed; equal disks at equal moments are checked once.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pykbroker_log.memory_disk import DiskCall, MemoryDisk, Survive

MODES = ("nothing", "everything", "nothing torn", "everything torn", "chosen", "chosen")


class Crash(NamedTuple):
    #: the number of calls of the workload before the power failed
    calls: int
    disk: MemoryDisk
    what: str


class Examined(NamedTuple):
    prefixes: int
    disks: int
    #: the number of disks after a crash during the recovery from an earlier one
    during_recovery: int

    def __add__(self, other: tuple[int, ...]) -> Examined:  # type: ignore[override]
        return Examined(*map(sum, zip(self, other, strict=True)))

    def __str__(self) -> str:
        return f"{self.prefixes} prefixes, {self.disks} different disks, {self.during_recovery} of recoveries cut short"


def lose_power(disk: MemoryDisk, mode: str, rng: random.Random) -> MemoryDisk:
    return disk.power_loss(Survive(mode.split()[0]), torn=mode.endswith("torn"), choose=rng.randrange)


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """A copy of the disk with everything synced."""
    return disk.power_loss(Survive.EVERYTHING)


def crashes(
    calls: Sequence[DiskCall], rng: random.Random, *, every_mode: bool = False, base: MemoryDisk | None = None
) -> Iterator[Crash]:
    """Yield the disks that each prefix may leave, done on top of `base`; one way of losing power for each, or all."""
    disk = MemoryDisk() if base is None else copy_of(base)
    for count in range(len(calls) + 1):
        last = None
        if count:
            last = calls[count - 1]
            disk.repeat(last)
        for mode in MODES if every_mode else [rng.choice(MODES)]:
            where = f"{count} calls, the last one {last.operation} {last.path} {last.target}" if last else "no calls"
            yield Crash(count, lose_power(disk, mode, rng), f"{where}; {mode} survives")


def tears(calls: Sequence[DiskCall], *, path_ends: str = "", last_writes: int = 1) -> Iterator[Crash]:
    """The last writes of a workload cut off at every byte; what was written before is there, synced or not."""
    writes = [i for i, call in enumerate(calls) if call.operation == "pwritev" and call.path.endswith(path_ends)]
    for index in writes[-last_writes:]:
        call = calls[index]
        before = MemoryDisk.replay(calls[:index])
        for length in range(len(call.data)):
            disk = copy_of(before)
            disk.open(call.path).pwritev([call.data[:length]], call.offset)
            yield Crash(index, copy_of(disk), f"{index} calls and {length} bytes of a write to {call.path}")


def fingerprint(disk: MemoryDisk) -> int:
    """Return the same number for disks with the same names and contents."""
    mark = 0
    for path, data in disk.contents():
        mark = zlib.crc32(data, zlib.crc32(path.encode(), mark))
    return mark


def examine(
    calls: Sequence[DiskCall],
    start: Callable[[MemoryDisk, int], object],
    check: Callable[[Crash], None],
    rng: random.Random,
    *,
    moment: Callable[[int], object] = lambda count: count,
    every_mode: bool = False,
    again: float = 0.15,
) -> Examined:
    """Check every prefix; and a share of them (`again`) with one or two more crashes while `start(disk, calls)` was
    recovering.

    `moment(count)` returns what a check depends on in addition to the disk, so that the same disk is not checked twice.
    """
    seen: set[tuple[int, object]] = set()
    recoveries = 0

    def judge(crash: Crash) -> None:
        key = fingerprint(crash.disk), moment(crash.calls)
        if key not in seen:
            seen.add(key)
            check(crash)

    for crash in crashes(calls, rng, every_mode=every_mode):
        base = copy_of(crash.disk)
        judge(crash)
        what = crash.what
        for _ in range(2):
            if rng.random() >= again:
                break
            recovering = copy_of(base)
            start(recovering, crash.calls)
            cut = rng.randrange(len(recovering.calls) + 1)
            partly = copy_of(base)
            for call in recovering.calls[:cut]:
                partly.repeat(call)
            base = lose_power(partly, rng.choice(MODES), rng)
            what += f"; again {cut} of {len(recovering.calls)} calls into the start"
            recoveries += 1
            judge(Crash(crash.calls, copy_of(base), what))
    return Examined(len(calls) + 1, len(seen), recoveries)
