"""Opens logs, some in each turn of the loop, so that they are open before a request needs them at once.

Responsible for the order: first the logs of a request that names many partitions, then those of new partitions, and all
others once clients are served. It also limits how many are opened in a turn, and lets a thread read what opening needs.
Not responsible for opening itself (log_handle.py, logs.py), nor for logs that are recovered first (recovery.py).

Invariants:
* For all requests together, OPENED_PER_TURN logs are opened in a turn.
* A log that is not open and may be opened is in one of the queues, unless opening it has failed. Then the next request
  for it tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pykbroker.storage.log_handle import LogHandle
from pykbroker_log.warming import is_cold, warm
from pykbroker_wire.errors import KafkaError

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: Logs that are opened in one turn of the loop for requests that name many logs, which takes a few milliseconds. A
#: request that names no more than this opens them itself.
OPENED_PER_TURN = 4
#: The pause between two logs that are opened although no client has asked for them, because clients wait for other
#: work.
PAUSE_SECONDS = 0.001
#: Logs of waiting requests that are looked at in a turn. Most may be open by now.
_LOOKS_PER_TURN = 256


class Opener:
    """The queues of one node."""

    def __init__(self, runtime: Runtime, folder_of: Callable[[LogHandle], str | None]) -> None:
        """`folder_of` returns the folder of a log, if it has one."""
        self._runtime = runtime
        self._folder_of = folder_of
        # A future is done when all logs before it in the queue have been opened.
        self._wanted: deque[LogHandle | asyncio.Future[None]] = deque()
        self._new: deque[LogHandle] = deque()
        self._rest: deque[LogHandle] = deque()
        # True when clients are served and the rest may be opened.
        self._serves = False
        # True while a turn is scheduled.
        self._is_busy = False
        self._stopped = False

    def add_new(self, handle: LogHandle) -> None:
        """Open a new log that will be used soon."""
        self._new.append(handle)
        self._go_on()

    def add(self, handle: LogHandle) -> None:
        """Add a log that no request waits for."""
        self._rest.append(handle)
        if self._serves:
            self._go_on()

    def serve(self) -> None:
        """Open, one by one, the logs that no client has asked for. Call it when clients are served. Retention, cleaning
        and the counts of bytes need all logs."""
        self._serves = True
        self._go_on()

    def when_open(self, wanted: Iterable[LogHandle]) -> asyncio.Future[None] | None:
        """Open the logs of a request that names many partitions, so that no other request waits for all of them.
        Returns None if there is nothing to wait for. It costs nothing once all logs are open."""
        if not (self._rest or self._new or self._wanted):
            return None
        unopened = [handle for handle in wanted if handle.can_be_opened]
        if len(unopened) <= OPENED_PER_TURN:
            return None
        future: asyncio.Future[None] = self._runtime.loop.create_future()
        self._wanted += unopened
        self._wanted.append(future)
        self._go_on()
        return future

    def stop(self) -> None:
        """Stop when the node stops. From now on a log is only opened if a request needs it at once."""
        self._stopped = True
        for entry in self._wanted:
            if isinstance(entry, asyncio.Future):
                entry.cancel()
        for queue in (self._wanted, self._new, self._rest):
            queue.clear()

    # -- one turn after the other -------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._runtime.loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        batch = self._take()
        folders = [folder for handle in batch if (folder := self._folder_of(handle)) is not None]
        # Only one folder is checked, because either all of them were read lately, or none.
        if folders and is_cold(self._runtime.disk, folders[0]):
            warmed = self._runtime.run_blocking(warm, self._runtime.disk, folders)
            warmed.add_done_callback(lambda done: self._end_turn(batch))
        else:
            self._end_turn(batch)

    def _take(self) -> list[LogHandle]:
        """Return the logs to open next: several that requests wait for, or else one other log."""
        if not self._wanted:
            return _next_of(self._new) or (_next_of(self._rest) if self._serves else [])
        batch: list[LogHandle] = []
        for _ in range(min(len(self._wanted), _LOOKS_PER_TURN)):
            entry = self._wanted[0]
            if len(batch) == OPENED_PER_TURN or isinstance(entry, asyncio.Future):
                break
            self._wanted.popleft()
            if entry.can_be_opened:
                batch.append(entry)
        return batch

    def _end_turn(self, batch: list[LogHandle]) -> None:
        if self._stopped:
            return
        for handle in batch:
            if handle.can_be_opened:
                _open(handle)
        while self._wanted and isinstance(entry := self._wanted[0], asyncio.Future):
            self._wanted.popleft()
            if not entry.done():
                entry.set_result(None)
        loop = self._runtime.loop
        if self._wanted or self._new:
            loop.call_soon(self._begin_turn)
        elif self._rest and self._serves:
            loop.call_later(PAUSE_SECONDS, self._begin_turn)
        else:
            self._is_busy = False


def _next_of(queue: deque[LogHandle]) -> list[LogHandle]:
    """Return the first log of the queue that is not open, if there is one."""
    while queue:
        handle = queue.popleft()
        if handle.can_be_opened:
            return [handle]
    return []


def _open(handle: LogHandle) -> None:
    try:
        handle.open()
    except KafkaError as error:
        logger.error("Partition %s: its log cannot be opened: %s", handle, error.message)
