"""Sends markers: the queue of markers.py with a clock, a network and this node's own partitions.

Responsible for sending what the queue gives, for trying again after a rest, and for reporting that a transaction has
all of its markers. A marker for a partition that is led here is written directly, without a request. So on one node a
transaction is complete before its EndTxn is answered. Not responsible for what completion means (service.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pykbroker.coordinator.transaction.marker_writer import Marker
from pykbroker.coordinator.transaction.markers import DueMarkers, LeaderOf, MarkerJob, MarkerQueue
from pykbroker.coordinator.transaction.records import TopicPartition
from pykbroker.runtime.later import Later
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: Markers that could not be written rest this long. A change of leaders ends the rest early.
REST_SECONDS: Final = 0.05
#: Markers rest this long if the reason is unexpected.
REFUSED_REST_SECONDS: Final = 1.0

WriteMarker = Callable[[TopicPartition, Marker], Later[ErrorCode]]
#: Sends to a broker: takes its id, the request and the timeout in ms.
SendToBroker = Callable[[int, Any, int], "asyncio.Future[Any]"]


class MarkerSender:
    """`is_current` takes a partition and a coordinator epoch, and returns True if this node has led it since that
    epoch. `completed` is called with each job that has all of its markers."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        leader_of: LeaderOf,
        write: WriteMarker,
        send: SendToBroker,
        *,
        is_current: Callable[[int, int], bool],
        completed: Callable[[MarkerJob], None],
        request_timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._write = write
        self._send = send
        self._is_current = is_current
        self._completed = completed
        self._request_timeout_ms = request_timeout_ms
        self._timer: asyncio.TimerHandle | None = None
        self._refused_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.queue = MarkerQueue(leader_of, node_id)

    def add(self, job: MarkerJob) -> None:
        self._write_here(job, self.queue.add(job))
        self._pump()

    def leaders_changed(self) -> None:
        if self.queue.waits_for_leaders or self.queue.rests or self.queue.rests_long:
            self._drop_stale()
            self.queue.leaders_changed()
            self._pump()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._refused_timer is not None:
            self._refused_timer.cancel()

    def _pump(self) -> None:
        """Send everything that can be sent, report complete jobs, and start the timers of markers that rest."""
        queue = self.queue
        while not self._closed:
            done = queue.completed()
            brokers = queue.brokers()
            if not done and not brokers:
                break
            for job in done:
                self._completed(job)
            for broker in brokers:
                if broker == self._node_id:
                    sent = queue.take(broker)
                    queue.answered(broker, [], {})  # this node is never busy, because no request is sent to it
                    for job, partitions in sent:
                        self._write_here(job, partitions)
                else:
                    self._request(broker, queue.take(broker))
        if queue.rests and self._timer is None and not self._closed:
            self._timer = self._runtime.loop.call_later(REST_SECONDS, self._rested)
        if queue.rests_long and self._refused_timer is None and not self._closed:
            self._refused_timer = self._runtime.loop.call_later(REFUSED_REST_SECONDS, self._rested_long)

    def _rested(self) -> None:
        self._timer = None
        self._drop_stale()
        self.queue.rouse()
        self._pump()

    def _rested_long(self) -> None:
        self._refused_timer = None
        self._drop_stale()
        self.queue.rouse_refused()
        self._pump()

    def _drop_stale(self) -> None:
        for job in list(self.queue.jobs.values()):
            if not self._is_current(job.index, job.coordinator_epoch):
                self.queue.discard(job)

    # -- this node ----------------------------------------------------------------------------------------------------

    def _write_here(self, job: MarkerJob, partitions: list[TopicPartition]) -> None:
        marker = _marker(job)
        for partition in partitions:
            verdict = self._write(partition, marker)
            if isinstance(verdict, asyncio.Future):
                verdict.add_done_callback(partial(self._written_here, job, partition))
            else:
                self.queue.settle(job, partition, verdict)

    def _written_here(self, job: MarkerJob, partition: TopicPartition, verdict: asyncio.Future[ErrorCode]) -> None:
        self.queue.settle(job, partition, ErrorCode.REQUEST_TIMED_OUT if verdict.cancelled() else verdict.result())
        self._pump()

    # -- other brokers ------------------------------------------------------------------------------------------------

    def _request(self, broker: int, sent: list[DueMarkers]) -> None:
        if not sent:
            self.queue.answered(broker, [], {})
            return
        request = WriteTxnMarkersRequest(markers=[_message(job, partitions) for job, partitions in sent])
        future = self._send(broker, request, self._request_timeout_ms)
        future.add_done_callback(partial(self._answered, broker, sent))

    def _answered(self, broker: int, sent: list[DueMarkers], future: asyncio.Future[WriteTxnMarkersResponse]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self.queue.answered(broker, sent, _verdicts(sent, future.result()))
        else:
            if not isinstance(error, ConnectionError | TimeoutError | asyncio.CancelledError):
                logger.error("Markers could not be sent to broker %d", broker, exc_info=error)
            self.queue.failed(broker, sent)
        self._pump()


def _marker(job: MarkerJob) -> Marker:
    decided = job.decided
    return Marker(
        decided.producer.producer_id,
        decided.producer.epoch,
        decided.commit,
        job.coordinator_epoch,
        decided.transaction_version,
    )


def _message(job: MarkerJob, partitions: list[TopicPartition]) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    marker = _marker(job)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _verdicts(
    sent: list[DueMarkers], response: WriteTxnMarkersResponse
) -> dict[tuple[MarkerJob, TopicPartition], ErrorCode]:
    """Return error codes by job. A producer id belongs to one transactional id, so it names one job of a request."""
    jobs = {job.decided.producer.producer_id: job for job, _ in sent}
    verdicts: dict[tuple[MarkerJob, TopicPartition], ErrorCode] = {}
    for result in response.markers:
        job = jobs.get(result.producer_id)
        if job is None:
            continue
        for topic in result.topics:
            for answer in topic.partitions:
                verdicts[job, (topic.name, answer.partition_index)] = ErrorCode.received(answer.error_code)
    return verdicts
