"""The log directories that a broker reports in its heartbeats: failed ones (KIP-858), and cordoned ones (KIP-1066).

Pure. It knows which failures the controller has, because a heartbeat with them was answered. Not responsible for the
time that a report may take (lifecycle.py).
"""

from __future__ import annotations

from collections.abc import Iterable


class DirectoryReports:
    """Call `begin` for each heartbeat, and `answered` for its answer."""

    __slots__ = ("_failed", "_in_heartbeat", "cordoned")

    def __init__(self) -> None:
        #: failed directory -> True if the controller has the report
        self._failed: dict[bytes, bool] = {}
        #: the failed directories in the last heartbeat
        self._in_heartbeat: tuple[bytes, ...] = ()
        self.cordoned: tuple[bytes, ...] = ()

    def fail(self, directory_id: bytes) -> bool:
        """Note a failed directory. Return False if its failure is known already."""
        if directory_id in self._failed:
            return False
        self._failed[directory_id] = False
        return True

    def cordon(self, directory_ids: Iterable[bytes]) -> bool:
        """Set the directories that get no new replicas. Return False if they are the same as before."""
        before, self.cordoned = self.cordoned, tuple(sorted(directory_ids))
        return self.cordoned != before

    def is_reported(self, directory_id: bytes) -> bool:
        """Return True if the controller has the failure of this directory."""
        return self._failed[directory_id]

    @property
    def all_reported(self) -> bool:
        """True if the controller has every failure."""
        return all(self._failed.values())

    def begin(self) -> list[bytes]:
        """Return the failed directories for the next heartbeat."""
        self._in_heartbeat = tuple(self._failed)
        return list(self._failed)

    def answered(self) -> None:
        """Note that the controller has the failures in the last heartbeat."""
        for directory_id in self._in_heartbeat:
            self._failed[directory_id] = True
