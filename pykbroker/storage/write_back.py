"""Writes new data of logs to the device before the kernel has too much of it, a little at a time.

A kernel lets dirty pages pile up for half a minute or a tenth of the memory, and makes the next writer wait while it
catches up. Responsible for when it looks at a log (every 20 ms while much is written to it), and for which stretches of
the log are due then. Not responsible for the check of all logs that finds the logs to which much is written
(upkeep.py), nor for durability (pykbroker_log/flush_state.py), because a stretch that was sent is not durable yet.

The device gets small portions for this reason: an append to a file waits while the kernel hands over that file's data,
and the kernel waits while the device's queue is full. With a portion every 200 ms an append took up to 100 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykbroker_log.disk import File, FileClosed
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.segments import Segments

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

_PORTION_S = 0.02
#: A log that has had no due data for this time is looked at only in the check of all logs.
_QUIET_S = 0.5


class Stretch(NamedTuple):
    file: File
    position: int
    size: int


def unwritten(segments: Segments, least_bytes: int) -> list[Stretch]:
    """Return the stretches that were appended since the last call, newest segment first. The active segment's is left
    out if it has fewer than `least_bytes`."""
    found: list[Stretch] = []
    for segment in reversed(segments):
        taken = segment.take_unwritten(least_bytes)
        if taken is not None:
            found.append(Stretch(segment.file, *taken))
        elif segment is not segments[-1]:
            # Earlier segments were taken when they were the newest.
            break
        least_bytes = 1
    return found


def write_back(stretches: Sequence[Stretch]) -> None:
    """Start the writes to the device, which may block."""
    for file, position, size in stretches:
        try:
            file.write_back(position, size)
        except (FileClosed, FileNotFoundError):
            # The segment was retired, replaced or moved in the meantime.
            continue


class WriteBack:
    def __init__(self, runtime: Runtime, least_bytes: int, check: Callable[[asyncio.Future[None]], None]) -> None:
        """Smaller stretches than `least_bytes` (pykbroker.write.back.bytes) are left to the kernel. `check` is called
        with the outcome of each call to the device."""
        self._runtime = runtime
        self._least_bytes = least_bytes
        self._check = check
        #: logs with much new data, and the last time at which some was due
        self._busy: dict[PartitionLog, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due: list[Stretch] = []
        self._under_way = False
        self._stopped = False
        #: the bytes that had come in when all logs were last looked at
        self._looked_at_bytes = 0

    def stop(self) -> None:
        self._stopped = True
        self._busy.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

    def is_worth_a_look(self, bytes_in: int) -> bool:
        """Return True if a log may have enough bytes for a write, because `bytes_in` has grown enough. It is mostly
        False."""
        if bytes_in - self._looked_at_bytes < self._least_bytes:
            return False
        self._looked_at_bytes = bytes_in
        return True

    def look(self, log: PartitionLog) -> None:
        """Write the due data of a log. If the log had due data, look at it again soon."""
        now = self._runtime.loop.time()
        found = unwritten(log.files.segments, self._least_bytes) if log.files.is_open else []
        if found:
            self._busy[log] = now
            self._due += found
            self._begin()
            self._arm()
        elif now - self._busy.get(log, now) > _QUIET_S:
            del self._busy[log]

    def _look_again(self) -> None:
        self._timer = None
        for log in list(self._busy):
            self.look(log)
        self._arm()

    def _arm(self) -> None:
        if self._busy and self._timer is None and not self._stopped:
            self._timer = self._runtime.loop.call_later(_PORTION_S, self._look_again)

    def _begin(self) -> None:
        # One thread at a time, so that a busy device does not keep all threads from a flush.
        if self._due and not self._under_way and not self._stopped:
            self._under_way = True
            stretches, self._due = self._due, []
            self._runtime.run_blocking(write_back, stretches).add_done_callback(self._ended)

    def _ended(self, done: asyncio.Future[None]) -> None:
        self._under_way = False
        self._check(done)
        self._begin()
