"""Room on the disk of the metadata log: the reserve for the case that the disk is full, and the wait for more.

Responsible for whether the reserve exists, and for when a step that found no room is tried again. Not responsible for
the step, nor for requests that a node refuses in the meantime (storage/space.py). The reserve itself is
`pykbroker_raft.reserve`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.quorum.blocking_calls import BlockingCalls
from pykbroker.runtime import Runtime
from pykbroker_raft.metadata_storage import MetadataStorage

_LOOK_FOR_ROOM_S = 1.0


class MetadataRoom:
    """The room of one replica of the quorum."""

    def __init__(self, runtime: Runtime, calls: BlockingCalls, storage: MetadataStorage) -> None:
        self._loop = runtime.loop
        self._calls = calls
        self._storage = storage
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_short(self) -> bool:
        reserve = self._storage.reserve
        return reserve.size_bytes > 0 and not reserve.is_there

    def restore_reserve(self, returned: Callable[[], None]) -> asyncio.Future[bool]:
        """Create the reserve again. The result is True if there was room for it. `returned` is called when that is
        known."""
        return self._calls.run(self._storage.make_reserve, lambda done: returned())

    def wait(self, again: Callable[[], None]) -> None:
        """Call `again` after a while, because there may be room then."""

        def over() -> None:
            self._timer = None
            again()

        self._timer = self._loop.call_later(_LOOK_FOR_ROOM_S, over)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
