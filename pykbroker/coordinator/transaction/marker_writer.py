"""Writes markers on the leader of their partition. Each marker is one control batch in the log. Its sender gets the
answer when the batch is committed.

This is the receiving end of WriteTxnMarkers, for requests of other brokers (api/write_txn_markers.py) and for the
coordinator on this node, which calls it without a request. Not responsible for choosing partitions (markers.py).

A marker for `__consumer_offsets` goes through the group coordinator's runtime, because the call that writes the marker
must also pass the decision to the group's shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from pykbroker.runtime.later import Later, OnOutcome
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime

#: Errors of a group coordinator that is not ready. The sender of the marker gets the error code of a partition leader
#: that is not ready.
_NOT_READY: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter:
    """`offsets` runs the shards of `__consumer_offsets`."""

    def __init__(
        self, runtime: Runtime, replicas: ReplicaTable, offsets: CoordinatorRuntime[Any], timeout_ms: int
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._offsets = offsets
        self._timeout = timeout_ms / 1000

    def write(self, partition: TopicPartition, marker: Marker) -> Later[ErrorCode]:
        """Write the marker. The error code of a refusal is the answer and is not raised."""
        topic, index = partition
        replica = self._replicas.find(topic, index)
        if replica is None or replica.offline:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic == GROUP_METADATA_TOPIC:
            return self._offsets.end_transaction(
                index,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
                refusal=_of_group_coordinator,
            )
        try:
            info = replica.append_marker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
                now_ms=self._runtime.now_ms(),
            )
        except KafkaError as error:
            return error.code
        if replica.high_watermark > info.last_offset:
            return ErrorCode.NONE
        return self._when_committed(replica.when_committed, info.last_offset + 1)

    def _when_committed(
        self, when_committed: Callable[[int, OnOutcome], object], offset: int
    ) -> asyncio.Future[ErrorCode]:
        future: asyncio.Future[ErrorCode] = self._runtime.loop.create_future()

        def finish(code: ErrorCode) -> None:
            if not future.done():
                future.set_result(code)

        timer = self._runtime.loop.call_later(self._timeout, finish, ErrorCode.REQUEST_TIMED_OUT)
        future.add_done_callback(lambda _: timer.cancel())
        when_committed(offset, finish)
        return future


def _of_group_coordinator(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
