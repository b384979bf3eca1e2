"""The role of a partition that another broker leads: its log stands still, but for what a fetcher does to it.

Responsible for appends and truncations in that role, and for refusing them once the role is over. Not responsible for
fetching: there is no fetcher yet. A truncation is run by storage/truncations.py; while it is, the log takes no append,
and the partition takes no other role.

Invariant: a fetcher that was started for an older leader epoch changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykbroker_log.disk import parent_of
from pykbroker_log.log_config import StorageError
from pykbroker_log.partition_log import AppendInfo
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.storage.log_handle import LogHandle
    from pykbroker.storage.space import DiskSpace
    from pykbroker.storage.truncations import Truncated


class PartitionFollower:
    """The role of one leader epoch."""

    __slots__ = ("_failed", "_handle", "_is_over", "_space", "_truncate")

    def __init__(
        self,
        handle: LogHandle,
        truncate: Callable[[LogHandle, int, Truncated], None],
        failed: Callable[[StorageError], None],
        space: DiskSpace,
    ) -> None:
        """`failed` is told of each disk that fails."""
        self._handle = handle
        self._truncate = truncate
        self._failed = failed
        self._space = space
        self._is_over = False

    def end(self) -> None:
        """The partition has another role, or follows in another leader epoch."""
        self._is_over = True

    def append(self, records: bytes | bytearray | memoryview, *, now_ms: int) -> AppendInfo:
        """Append what the leader sent, as it is. Raises KafkaError; nothing was appended then."""
        self._require_role()
        log = self._handle.open()
        if self._space.short:
            self._space.require_room(parent_of(log.path), self._handle)
        try:
            return log.append_as_follower(records, now_ms=now_ms)
        except StorageError as error:
            self._failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._handle}: {error}") from error

    def truncate_to(self, offset: int, then: Truncated) -> None:
        """Cut off everything from `offset` on. `then` is called when that is durable, or with why it is not. Raises
        KafkaError."""
        self._require_role()
        self._truncate(self._handle, offset, then)

    def _require_role(self) -> None:
        if self._is_over:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self._handle}: the leader epoch is over")
