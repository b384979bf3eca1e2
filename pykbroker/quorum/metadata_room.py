"""Room on the disk of the metadata log: the reserve that stands in when the disk is full, and the wait for more.

Responsible for telling once that the reserve was given up, until it is taken again, and for when a step that found no
room is tried again. Not responsible for the step, nor for what a node refuses meanwhile (storage/space.py); the
reserve itself is `pykbroker_raft.reserve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.quorum.blocking_calls import BlockingCalls
from pykbroker.runtime import Runtime
from pykbroker_raft.metadata_storage import MetadataStorage

_LOOK_FOR_ROOM_S = 1.0


class MetadataRoom:
    """`on_short` is called when the disk is full and the reserve was given up."""

    def __init__(
        self, runtime: Runtime, calls: BlockingCalls, storage: MetadataStorage, on_short: Callable[[], None]
    ) -> None:
        self._loop = runtime.loop
        self._calls = calls
        self._storage = storage
        self._on_short = on_short
        self._told = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_short(self) -> bool:
        reserve = self._storage.reserve
        return reserve.size_bytes > 0 and not reserve.is_there

    def look(self) -> None:
        """Something was written: tell if the reserve went for it."""
        if not self._told and self.is_short:
            self._told = True
            self._on_short()

    def restore_reserve(self) -> asyncio.Future[bool]:
        """Take the reserve again; whether there was room for it."""

        def restored(done: asyncio.Future[bool]) -> None:
            if not done.cancelled() and done.exception() is None and done.result():
                self._told = False

        return self._calls.run(self._storage.make_reserve, restored)

    def wait(self, again: Callable[[], None]) -> None:
        """Call `again` in a while: there may be room then."""

        def over() -> None:
            self._timer = None
            again()

        self._timer = self._loop.call_later(_LOOK_FOR_ROOM_S, over)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
