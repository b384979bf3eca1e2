"""Decides when the next snapshot of the metadata is due: after a number of bytes of committed records, or after an
interval.

Responsible for requesting a snapshot. Not responsible for writing it (snapshot_writing.py). metadata_listeners.py
counts the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.quorum.metadata_listeners import MetadataListeners
from pykbroker.runtime import Runtime


class SnapshotsDue:
    """`ask` is called when a snapshot is due. The interval has no effect if nothing was committed since the last
    snapshot."""

    def __init__(
        self,
        runtime: Runtime,
        listeners: MetadataListeners,
        ask: Callable[[], None],
        *,
        snapshot_bytes: int,
        interval_ms: int,
    ) -> None:
        self._loop = runtime.loop
        self._listeners = listeners
        self._ask = ask
        self._bytes = snapshot_bytes
        self._interval_ms = interval_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._interval_ms > 0:
            self._timer = self._loop.call_later(self._interval_ms / 1000, self._interval_over)

    def look(self) -> None:
        """Check the byte count. Call it when listeners have got more records."""
        if self._listeners.bytes_since_snapshot >= self._bytes:
            self._ask()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _interval_over(self) -> None:
        self.start()
        if self._listeners.bytes_since_snapshot > 0:
            self._ask()
