"""Writes snapshots of the committed metadata to files near the log, off the loop, one at a time.

Responsible for the content: the state at a committed offset whose epoch is in the log, with the voters and the
kraft.version at that offset. Not responsible for when a snapshot is due, nor for deleting the log before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from pykbroker.quorum.blocking_calls import BlockingCalls
from pykbroker.runtime import Runtime
from pykbroker_log.log_config import StorageError
from pykbroker_raft import batches
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.metadata_storage import MetadataStorage
from pykbroker_raft.raft_node import RaftNode

logger = logging.getLogger(__name__)


class SnapshotJob:
    """Writes one snapshot at a time. `written` gets the snapshot and its size, `failed` the error of a disk that fails.
    A full disk is not a failure."""

    def __init__(
        self,
        runtime: Runtime,
        calls: BlockingCalls,
        node: RaftNode,
        storage: MetadataStorage,
        written: Callable[[OffsetAndEpoch, int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._calls = calls
        self._node = node
        self._storage = storage
        self._written = written
        self._failed = failed
        self.is_under_way = False
        self._closed = False

    def close(self) -> None:
        """Report nothing about a snapshot under way."""
        self._closed = True

    def write(self, offset: int, epoch: int, values: Iterable[bytes]) -> asyncio.Future[None]:
        """Write a snapshot of all records up to and including `offset`. `values` is read on a thread, so it must not
        change. Raises StorageError if the log cannot be read."""
        done: asyncio.Future[None] = self._runtime.loop.create_future()
        node, storage = self._node, self._storage
        snapshot = OffsetAndEpoch(offset + 1, epoch)
        if snapshot in storage.snapshots or self.is_under_way:
            done.set_result(None)
            return done
        if node.high_watermark is None or snapshot.offset > node.high_watermark:
            raise ValueError(f"offset {offset} is not committed, the high watermark is {node.high_watermark}")
        if snapshot.offset < node.log.start_offset or node.log.epoch_at(offset) != epoch:
            raise ValueError(f"epoch {epoch} is not that of offset {offset} in the log")
        voters = node.history.sets.at(offset)
        kraft_version = node.history.versions.at(offset) or 0
        now_ms = self._runtime.now_ms()
        timestamp_ms = self._timestamp_at(offset)
        self.is_under_way = True

        def write() -> int:
            return storage.write_snapshot(
                snapshot,
                values,
                now_ms=now_ms,
                last_timestamp_ms=timestamp_ms,
                kraft_version=kraft_version,
                voters=voters,
            )

        def ended(future: asyncio.Future[int]) -> None:
            self.is_under_way = False
            error = None if future.cancelled() else future.exception()
            if error is not None or self._closed:
                if isinstance(error, StorageError) and error.is_full:
                    logger.warning("The snapshot %s could not be written: %s", snapshot, error)
                elif isinstance(error, StorageError):
                    self._failed(error)
                elif error is not None:
                    logger.error("The snapshot %s could not be written", snapshot, exc_info=error)
                if done.done():
                    return
                if error is None:
                    done.cancel()
                else:
                    done.set_exception(error)
                    # The caller need not read the exception, because the failure was reported above.
                    done.exception()
                return
            self._written(snapshot, future.result())
            if not done.done():
                done.set_result(None)

        self._calls.run(write, ended)
        return done

    def _timestamp_at(self, offset: int) -> int:
        data = self._storage.read(offset, 1, self._node.log.end_offset)
        return next((batch.timestamp_ms for batch in batches.intact(data)), 0)
