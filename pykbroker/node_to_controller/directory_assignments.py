"""Reports to the controller in which log directory each replica of this broker is (KIP-858).

For a broker with one directory the controller assigns it. A broker with several directories chooses one when it opens
the log. When a directory fails, the controller can move only the leaderships of replicas that were reported to be in
it.

Responsible for the content of a report: the newest directory of each replica, even if it has failed in the meantime.
Not responsible for choosing the directory (storage/logs.py), for reporting the failure (lifecycle.py), nor for
repeating a report until it is acknowledged (keyed_queue.py, controller_sender.py).
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

#: As in Apache Kafka: the most partitions in one request, and the longest pause after a failed try.
REQUEST_PARTITIONS = 2_250
LAST_PAUSE_MS = 10_000

#: Topic id and partition.
_Replica = tuple[bytes, int]


class AssignmentReports:
    """The reports of one broker. `broker_epoch` returns its present epoch."""

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
        #: the directory of each replica that the controller has not confirmed; a newer one replaces it, and the result
        #: is the controller's error code
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
        """Report that a log was opened in this directory."""
        self._tell(handle, log_dir, lambda: None)

    def assign(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> None:
        """Report that the replica will be in this directory. `told` is called when the controller has confirmed it,
        unless another directory replaces it before."""
        if not self._tell(handle, log_dir, told):
            self._runtime.loop.call_soon(told)

    def _tell(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> bool:
        """Queue a report. Return False if there is nothing to report."""
        image = self._metadata.image
        key = handle.topic_id, handle.index
        known = image.topics.partition(handle.topic, handle.index)
        if image.features.metadata_version < DIRECTORIES_FROM or known is None:
            return False
        if known.directory(self._broker_id) == log_dir.directory_id and key not in self._untold:
            return False

        def done(result: int | Superseded) -> None:
            # Call it also if the report was refused. The partition is then gone, or no longer on this broker.
            if not isinstance(result, Superseded):
                told()

        self._untold.offer(key, log_dir.directory_id, done)
        # All logs that are opened in this turn of the loop go into the same request.
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
