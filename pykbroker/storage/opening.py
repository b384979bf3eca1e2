"""Logs that are opened before a request needs each at once: some a turn of the loop.

Responsible for the order (those that a request waits for which names many, those of partitions that were just made, and
once clients are served all others), for how many in a turn, and that a thread has read what opening needs. Not
responsible for opening itself (log_handle.py, logs.py), nor for logs that are to be recovered first (recovery.py).

Invariants:
* All requests together have OPENED_PER_TURN logs opened in a turn.
* A log that is not open and may be opened is in one of the queues, unless opening it has failed: then the next request
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

#: Logs that are opened in one turn of the loop for requests that ask for many: a few milliseconds. A request that asks
#: for no more than so many opens them itself.
OPENED_PER_TURN = 4
#: Between two logs that are opened though no client has asked for them: clients have asked for something else.
PAUSE_SECONDS = 0.001
#: Of those that requests wait for: most may be open by now.
_LOOKS_PER_TURN = 256


class Opener:
    """The queues of one node."""

    def __init__(self, runtime: Runtime, folder_of: Callable[[LogHandle], str | None]) -> None:
        """`folder_of` returns where a log lies, if it has a folder."""
        self._runtime = runtime
        self._folder_of = folder_of
        # A future is done when all that stood before it has been opened.
        self._wanted: deque[LogHandle | asyncio.Future[None]] = deque()
        self._new: deque[LogHandle] = deque()
        self._rest: deque[LogHandle] = deque()
        # Clients are served: the rest may be opened.
        self._serves = False
        # A turn is on its way.
        self._is_busy = False
        self._stopped = False

    def add_new(self, handle: LogHandle) -> None:
        """It was just made, and will be used soon."""
        self._new.append(handle)
        self._go_on()

    def add(self, handle: LogHandle) -> None:
        """No request waits for this log: it is one of the rest."""
        self._rest.append(handle)
        if self._serves:
            self._go_on()

    def serve(self) -> None:
        """Clients are served: open, one by one, the logs that none of them has asked for. Retention, cleaning and
        the counts of bytes need them all."""
        self._serves = True
        self._go_on()

    def when_open(self, wanted: Iterable[LogHandle]) -> asyncio.Future[None] | None:
        """For a request that asks many partitions: their logs are opened, so that no other one waits for all of them.
        None: there is nothing to wait for. Costs nothing once all logs are open."""
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
        """The node stops: open no log any more unless a request needs it at once."""
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
        # One of them tells for all: they were all read lately, or none of them.
        if folders and is_cold(self._runtime.disk, folders[0]):
            warmed = self._runtime.run_blocking(warm, self._runtime.disk, folders)
            warmed.add_done_callback(lambda done: self._end_turn(batch))
        else:
            self._end_turn(batch)

    def _take(self) -> list[LogHandle]:
        """What is opened next: of those that requests wait for several at a time."""
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
    """The first that is not open, if there is one."""
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
