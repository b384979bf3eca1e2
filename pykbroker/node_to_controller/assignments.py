"""Tells the controller in which log directory each replica of this broker lies (KIP-858).

The controller chooses for a broker with one directory; with several the broker does, when it opens the log. Only what
the controller knows can it take away from this broker when the directory fails.

Responsible for telling until it is acknowledged, a directory that has failed meanwhile included. Not responsible for
choosing the directory (storage/logs.py), nor for telling of the failure (lifecycle.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Any

from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.runtime import Runtime
from pykbroker.storage.log_handle import LogHandle
from pykbroker_log.log_dirs import LogDir
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

logger = logging.getLogger(__name__)

#: As Apache Kafka: partitions in one request, and the time between two tries that failed.
REQUEST_PARTITIONS = 2_250
REQUEST_TIMEOUT_MS = 30_000
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 10.0


class Assignments:
    """`send` asks the controller; `broker_epoch` tells this broker's epoch when asked."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send: Callable[..., asyncio.Future[Any]],
        metadata: MetadataLoader,
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._metadata = metadata
        #: what the controller has not acknowledged: topic id and partition, and where it lies
        self._untold: dict[tuple[bytes, int], bytes] = {}
        #: who waits for the acknowledgement
        self._waiting: dict[tuple[bytes, int], Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight = False
        self._failures = 0
        self._closed = False

    def opened(self, handle: LogHandle, log_dir: LogDir) -> None:
        """A log was opened there."""
        self._assign(handle, log_dir)

    def assign(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> None:
        """It will be there: `told` is called when the controller knows, unless it is told of another one meanwhile."""
        if self._assign(handle, log_dir):
            self._waiting[handle.topic_id, handle.index] = told
        else:
            self._runtime.loop.call_soon(told)

    def _assign(self, handle: LogHandle, log_dir: LogDir) -> bool:
        """Whether there is something to tell."""
        image = self._metadata.image
        key = handle.topic_id, handle.index
        self._waiting.pop(key, None)
        known = image.topics.partition(handle.topic, handle.index)
        if image.features.metadata_version < DIRECTORIES_FROM or known is None:
            return False
        if known.directory(self._broker_id) == log_dir.directory_id and key not in self._untold:
            return False
        self._untold[key] = log_dir.directory_id
        self._schedule(0)
        return True

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, seconds: float) -> None:
        """Whatever is opened until then goes into the same request."""
        if self._timer is None and not self._in_flight and not self._closed:
            self._timer = self._runtime.loop.call_later(seconds, self._tell)

    def _tell(self) -> None:
        self._timer = None
        telling = dict(islice(self._untold.items(), REQUEST_PARTITIONS))
        directories: dict[bytes, dict[bytes, list[RequestPartitionData]]] = {}
        for (topic_id, index), directory_id in telling.items():
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(RequestPartitionData(partition_index=index))
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                RequestDirectoryData(
                    id=directory_id,
                    topics=[
                        RequestTopicData(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
        self._in_flight = True
        self._send(request, REQUEST_TIMEOUT_MS).add_done_callback(lambda future: self._answered(telling, future))

    def _answered(self, told: dict[tuple[bytes, int], bytes], future: asyncio.Future[Any]) -> None:
        self._in_flight = False
        if self._closed:
            if not future.cancelled():
                future.exception()
            return
        error = None if future.cancelled() else future.exception()
        response: AssignReplicasToDirsResponse | None = (
            None if future.cancelled() or error is not None else future.result()
        )
        if response is None or response.error_code:
            reason = error if response is None else ErrorCode(response.error_code).name
            delay = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(self._failures, 10))
            self._failures += 1
            logger.info("Directories of %d replicas: not told: %s; again in %.1f s", len(told), reason, delay)
            self._schedule(delay)
            return
        self._failures = 0
        # Also what was refused, one by one: such a partition is gone, or is no longer this broker's.
        for key, directory_id in told.items():
            if self._untold.get(key) == directory_id:
                del self._untold[key]
                told_of = self._waiting.pop(key, None)
                if told_of is not None:
                    told_of()
        if self._untold:
            self._schedule(0)
