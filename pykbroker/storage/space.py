"""Full disks: the lines about them, and when writes are accepted again.

Responsible for one line when a directory's disk is full, at most one a minute while writes are refused, and one when
there is room again. It also keeps `short`: the directories whose appends are refused at once, because the room that is
left belongs to the metadata log (its reserve was given up). Not responsible for the answer to a request whose write
found no room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pykbroker.runtime import Runtime
from pykbroker.runtime.line_limit import LineLimit
from pykbroker_wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
#: There is room again when this many more bytes are free than when a write found no room.
_GROWTH_BYTES = 128 * 1024
#: Bytes that must be left for appends in addition to the reserve.
_FOR_APPENDS_BYTES = 1024 * 1024


class ReserveOwner(Protocol):
    """The quorum's replica, reduced to its reserve."""

    @property
    def is_short_of_room(self) -> bool: ...

    def restore_reserve(self) -> asyncio.Future[bool]: ...


@dataclass(slots=True)
class _Full:
    """A directory whose disk is full. `usable_bytes` is the room that was left when the full disk was noticed."""

    usable_bytes: int
    refused: int = 0
    was_told: bool = False


class DiskSpace:
    """The disks of this node's log directories. `close` ends its timer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._full: dict[str, _Full] = {}
        self._lines = LineLimit(runtime.loop.time)
        self._timer: asyncio.TimerHandle | None = None
        self._owner: ReserveOwner | None = None
        self._directories: Sequence[str] = ()
        self._reserve_bytes = 0
        self._restoring = False
        #: paths of directories in which no append is tried
        self.short: frozenset[str] = frozenset()

    def keep_reserve(self, owner: ReserveOwner, directories: Sequence[str], reserve_bytes: int) -> None:
        """Watch the reserve of `owner`: while it is gone, the `directories` on its disk take no appends. Call it
        once."""
        assert self._owner is None, "one reserve is kept"
        self._owner = owner
        self._directories = directories
        self._reserve_bytes = reserve_bytes

    def ran_out(self, log_dir: str) -> None:
        """Note that a write under this directory found no room."""
        full = self._full.get(log_dir)
        if full is None:
            full = self._full[log_dir] = _Full(self._usable(log_dir))
            self._tell(
                log_dir,
                full,
                f"the disk is full, {full.usable_bytes} bytes are left. Writes are refused until there is room, and "
                "reads are served",
            )
        full.refused += 1
        self._arm()

    def require_room(self, log_dir: str, log: object) -> None:
        """Raise KAFKA_STORAGE_ERROR if the room left under this directory belongs to the metadata log. Call it while
        `short` is not empty; the error names `log`."""
        if log_dir in self.short:
            self.ran_out(log_dir)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log}: the disk is full")

    def reserve_given_up(self) -> None:
        """Note that metadata writes into the reserve now, so that appends do not take that room."""
        self._look_for_short()
        for log_dir in self.short:
            self.ran_out(log_dir)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._owner = None
        self._full.clear()

    def _usable(self, log_dir: str) -> int:
        try:
            return self._runtime.disk.usage(log_dir)[1]
        except OSError:
            return 0  # a directory that cannot be asked fails by itself, with its own line

    def _look_for_short(self) -> None:
        """Find the directories on the disk of the reserve whose free room is only the room that the reserve had."""
        needed = self._reserve_bytes + _FOR_APPENDS_BYTES
        self.short = frozenset(path for path in self._directories if self._usable(path) < needed)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._runtime.loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self._timer = None
        owner = self._owner
        if owner is not None and owner.is_short_of_room:
            self._look_for_short()
            if not self.short and not self._restoring:
                self._restoring = True
                owner.restore_reserve().add_done_callback(self._restored)
        for log_dir, full in list(self._full.items()):
            usable = self._usable(log_dir)
            if log_dir not in self.short and usable >= full.usable_bytes + _GROWTH_BYTES:
                del self._full[log_dir]
                if full.was_told:
                    logger.warning(
                        "Log directory %s: there is room again, %d bytes, so writes are accepted", log_dir, usable
                    )
            elif full.refused and self._lines.is_due(log_dir):
                refused, full.refused = full.refused, 0
                self._tell(
                    log_dir, full, f"the disk is still full, {usable} bytes are left, and {refused} writes were refused"
                )
        if self._full or (owner is not None and owner.is_short_of_room):
            self._arm()

    def _restored(self, done: asyncio.Future[bool]) -> None:
        self._restoring = False
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("The reserve of the metadata log could not be written again: %s", error)

    def _tell(self, log_dir: str, full: _Full, what: str) -> None:
        # The line has the number of refused writes already.
        if self._lines.take(log_dir) is not None:
            full.was_told = True
            logger.error("Log directory %s: %s", log_dir, what)
