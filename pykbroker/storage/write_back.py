"""Sends to the device what logs have just written, a little at a time.

Responsible for when it looks at a log: at one that much is written to, every 20 ms from then on. Not responsible
for which stretches of it are due (pykbroker_log/unwritten.py), nor for the look at all logs that finds it (upkeep.py).

The device gets small portions because an append to a file waits while the kernel hands over what it has of that
file, and that waits while the device's queue is full: with a portion every 200 ms an append took up to 100 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.unwritten import Stretch, unwritten, write_back

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

_PORTION_S = 0.02
#: A log that nothing was due of for so long is left to the look at all logs again.
_QUIET_S = 0.5


class WriteBack:
    def __init__(self, runtime: Runtime, least_bytes: int, check: Callable[[asyncio.Future[None]], None]) -> None:
        """`least_bytes` (pykbroker.write.back.bytes): less of a log is left to the kernel. `check` is told how each
        call to the device went."""
        self._runtime = runtime
        self._least_bytes = least_bytes
        self._check = check
        #: logs that are written to, and when something of them was due
        self._busy: dict[PartitionLog, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due: list[Stretch] = []
        self._under_way = False
        self._stopped = False
        #: what had come in when all logs were last looked at
        self._looked_at_bytes = 0

    def stop(self) -> None:
        self._stopped = True
        self._busy.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

    def is_worth_a_look(self, bytes_in: int) -> bool:
        """Whether so much has come in that there may be a log with enough. Most of the time there is not."""
        if bytes_in - self._looked_at_bytes < self._least_bytes:
            return False
        self._looked_at_bytes = bytes_in
        return True

    def look(self, log: PartitionLog) -> None:
        """Sends what is due of it, and looks again soon if something was."""
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
        # One thread at a time: a device that is busy is not to keep all of them from a flush.
        if self._due and not self._under_way and not self._stopped:
            self._under_way = True
            stretches, self._due = self._due, []
            self._runtime.run_blocking(write_back, stretches).add_done_callback(self._ended)

    def _ended(self, done: asyncio.Future[None]) -> None:
        self._under_way = False
        self._check(done)
        self._begin()
