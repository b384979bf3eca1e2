"""Tells the controller in which log directory each replica of this broker lies (KIP-858).

The controller chooses for a broker with one directory; with several the broker does, when it opens the log. Only what
the controller knows can it take away from this broker when the directory fails.

Responsible for what is told of each replica: its newest directory, one that has failed meanwhile included. Not
responsible for choosing the directory (storage/logs.py), for telling of the failure (lifecycle.py), nor for telling
until it is acknowledged (keyed_queue.py, controller_sender.py).
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.metadata.snapshot import DIRECTORIES_FROM
from pykbroker.metadata.view import MetadataView
from pykbroker.node_to_controller.controller_channel import Channel
from pykbroker.node_to_controller.controller_sender import ControllerSender
from pykbroker.node_to_controller.keyed_queue import KeyedQueue, Second, Superseded
from pykbroker.runtime import Runtime
from pykbroker.storage.log_handle import LogHandle
from pykbroker_log.log_dirs import LogDir
from pykbroker_wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

#: As Apache Kafka: partitions in one request, and the longest pause between two tries that failed.
REQUEST_PARTITIONS = 2_250
LAST_PAUSE_MS = 10_000

#: Topic id and partition.
_Replica = tuple[bytes, int]


class AssignmentReports:
    """`broker_epoch` tells this broker's epoch when asked."""

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: Channel,
        metadata: MetadataView,
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        #: The newest directory of each replica counts. The result is the controller's error code.
        self._untold: KeyedQueue[_Replica, bytes, int] = KeyedQueue(Second.REPLACE)
        self._sender = ControllerSender(
            runtime,
            channel,
            metadata,
            "Directories of replicas:",
            self._next_request,
            self._answered,
            last_pause_ms=LAST_PAUSE_MS,
        )

    def opened(self, handle: LogHandle, log_dir: LogDir) -> None:
        """A log was opened there."""
        self._tell(handle, log_dir, lambda: None)

    def assign(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> None:
        """It will be there: `told` is called when the controller knows, unless it is told of another one meanwhile."""
        if not self._tell(handle, log_dir, told):
            self._runtime.loop.call_soon(told)

    def _tell(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> bool:
        """Whether there is something to tell."""
        image = self._metadata.image
        key = handle.topic_id, handle.index
        known = image.topics.partition(handle.topic, handle.index)
        if image.features.metadata_version < DIRECTORIES_FROM or known is None:
            return False
        if known.directory(self._broker_id) == log_dir.directory_id and key not in self._untold:
            return False

        def done(result: int | Superseded) -> None:
            # Also when it was refused: such a partition is gone, or is no longer this broker's.
            if not isinstance(result, Superseded):
                told()

        self._untold.offer(key, log_dir.directory_id, done)
        # Whatever is opened in this turn of the loop goes into the same request.
        self._sender.wake()
        return True

    def close(self) -> None:
        self._sender.close()

    def _next_request(self) -> AssignReplicasToDirsRequest | None:
        telling = self._untold.take(REQUEST_PARTITIONS)
        if not telling:
            return None
        directories: dict[bytes, dict[bytes, list[RequestPartitionData]]] = {}
        for (topic_id, index), directory_id in telling.items():
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(RequestPartitionData(partition_index=index))
        return AssignReplicasToDirsRequest(
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

    def _answered(self, response: AssignReplicasToDirsResponse) -> None:
        self._untold.answered(
            {
                (topic.topic_id, partition.partition_index): partition.error_code
                for directory in response.directories
                for topic in directory.topics
                for partition in topic.partitions
            }
        )
        if self._untold:
            self._sender.wake()
