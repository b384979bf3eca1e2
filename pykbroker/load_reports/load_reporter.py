"""Writes the load of this broker's replicas to the topic `__pykbroker_metrics`, once in an interval.

Responsible for the timer, for the topic, and for dropping reports that cannot be written. The content of a record is in
load_records.py. Loaded only where `pykbroker.load.reporter.enable` is on.

Each broker writes to one partition, which its id chooses. If another broker leads it, the records go to that broker in
a Produce over the listener between brokers, with this broker's principal. If this broker leads it, they are appended to
the log here.

Invariants:
* Nothing waits for a report, and at most one report is kept. A report that is not written when the next is due is
  dropped.
* Reports are not sent twice, because a record may have arrived although its answer did not.
* While the topic does not exist, or its partition has no leader, the counts are kept for the next report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pykbroker.load_reports.interval_clock import IntervalClock
from pykbroker.load_reports.load_records import METRICS_TOPIC, Interval, records, taken
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykbroker_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import Codec

if TYPE_CHECKING:
    from pykbroker.dispatch.services import BrokerServices
    from pykbroker.metadata.image import PartitionImage, TopicImage

logger = logging.getLogger(__name__)

_PARTITIONS: Final = 8
_MOST_REPLICAS: Final = 3
_TOPIC_CONFIG: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "min.insync.replicas": "1",
    "retention.ms": str(24 * 3600 * 1000),
    "segment.ms": str(3600 * 1000),
}
_METRIC: Final = "pykbroker:type=LoadReporter,name="
#: Only the leader acknowledges, because a report is not worth a wait for other replicas.
_ACKS: Final = 1


class LoadReporter:
    """Call `start` once and `close` once. `send` sends a request to another broker, by its id."""

    def __init__(self, services: BrokerServices, send: Callable[[int, Any, int], asyncio.Future[Any]]) -> None:
        config, runtime = services.config, services.runtime
        self._services = services
        self._send = send
        self._interval_ms = config.int("pykbroker.load.reporter.interval.ms")
        #: at most the interval, so that a request ends before the next report is due
        self._timeout_ms = min(config.int("request.timeout.ms"), self._interval_ms)
        self._loop = runtime.loop
        self._due = self._loop.time()
        self._clock = IntervalClock(self._loop.time, runtime.cpu_ms)
        #: records of the report that is being written
        self._unsent: Iterator[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._is_creating = False
        self._closed = False
        self._problem = ""
        self._written = services.metrics.counter(_METRIC + "WrittenCount")
        self._dropped = services.metrics.counter(_METRIC + "DroppedCount")

    def start(self) -> None:
        """Start the timer. The counts from before are dropped, because they belong to no interval."""
        taken(self._services.replicas)
        self._due = self._loop.time()
        self._clock.begin()
        self._wait()

    def close(self) -> None:
        self._closed = True
        self._unsent = None
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()

    def _wait(self) -> None:
        """Set the time of the next report. Reports that were due while the process stood still are left out."""
        interval = self._interval_ms / 1000
        self._due = max(self._due + interval, self._loop.time() + interval / 2)
        self._timer = self._loop.call_at(self._due, self._report)

    # -- a report -----------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        self._wait()
        if self._unsent is not None:
            self._drop("the report before it is not written yet")
        topic = self._services.metadata.image.topics.by_name.get(METRICS_TOPIC)
        if topic is None:
            self._create()
            return
        _, image = self._place(topic)
        if image is None or image.leader < 0:
            self._drop("its partition has no leader")
            return
        self._unsent = records(*self._taken())
        self._next()

    def _place(self, topic: TopicImage) -> tuple[int, PartitionImage | None]:
        """Return the index of this broker's partition, and the partition if the metadata has it."""
        index = self._services.node_id % len(topic.partitions)
        return index, topic.partitions.get(index)

    def _taken(self) -> tuple[Interval, Any]:
        services = self._services
        measured = self._clock.end()
        broker = services.metadata.image.brokers.get(services.node_id)
        interval = Interval(
            cluster_id=services.cluster_id,
            broker=services.node_id,
            broker_epoch=services.lease.broker_epoch,
            rack=None if broker is None else broker.rack,
            sequence=measured.sequence,
            end_ms=services.runtime.now_ms(),
            duration_ms=measured.duration_ms,
            interval_ms=self._interval_ms,
            cpu_ms=measured.cpu_ms,
            dropped=self._dropped.value,
        )
        return interval, taken(services.replicas)

    def _next(self) -> None:
        """Write the next record of the report. One is written in a turn of the loop, and the next when it is
        acknowledged."""
        self._turn = None
        unsent = self._unsent
        if unsent is None:
            return
        value = next(unsent, None)
        if value is None:
            self._unsent = None
            self._written.value += 1
            self._problem = ""
            return
        services = self._services
        key = str(services.node_id).encode()
        batch = build_batch([(key, value, (), services.runtime.now_ms())], codec=Codec.GZIP)
        topic = services.metadata.image.topics.by_name.get(METRICS_TOPIC)
        index, image = (0, None) if topic is None else self._place(topic)
        if topic is None or image is None:
            self._drop("its topic was deleted")
        elif image.leader == services.node_id:
            self._append(index, batch)
        else:
            self._produce(topic, index, image.leader, batch, unsent)

    def _append(self, index: int, batch: bytes) -> None:
        services = self._services
        try:
            partition = services.replicas.get(METRICS_TOPIC, index)
            partition.append(bytearray(batch), required_acks=_ACKS, now_ms=services.runtime.now_ms())
        except KafkaError as error:
            self._drop(str(error))
        else:
            self._turn = self._loop.call_soon(self._next)

    def _produce(self, topic: TopicImage, index: int, leader: int, batch: bytes, of: Iterator[bytes]) -> None:
        data = [PartitionProduceData(index=index, records=batch)]
        request = ProduceRequest(
            acks=_ACKS,
            timeout_ms=self._timeout_ms,
            topic_data=[TopicProduceData(name=METRICS_TOPIC, topic_id=topic.id, partition_data=data)],
        )

        def answered(sent: asyncio.Future[ProduceResponse]) -> None:
            problem = _failure(sent) or _refusal(sent.result(), leader)
            if self._closed or self._unsent is not of:
                return  # the report was dropped before the answer came
            if problem:
                self._drop(problem)
            else:
                self._next()

        self._send(leader, request, self._timeout_ms).add_done_callback(answered)

    def _drop(self, why: str) -> None:
        """Drop the report that is under way or due. Several drops in a row with one reason are one line."""
        self._unsent = None
        if self._turn is not None:
            self._turn.cancel()
        self._dropped.value += 1
        if why != self._problem:
            self._problem = why
            logger.warning("A load report of this broker was dropped: %s", why)

    # -- the topic ----------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Create the topic. Every broker sends this request, and the first one creates the topic. A broker sends it
        only after one interval. So brokers that start together have all registered, and the topic gets its replicas."""
        if self._is_creating:
            return
        self._is_creating = True
        topic = CreatableTopic(
            name=METRICS_TOPIC,
            num_partitions=_PARTITIONS,
            replication_factor=min(_MOST_REPLICAS, len(self._services.metadata.image.brokers)),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in _TOPIC_CONFIG.items()],
        )
        timeout_ms = self._services.config.int("request.timeout.ms")
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
        self._services.controller_channel.send(request, timeout_ms).add_done_callback(self._created)

    def _created(self, sent: asyncio.Future[CreateTopicsResponse]) -> None:
        self._is_creating = False
        problem = _failure(sent)
        if self._closed:
            return
        if not problem:
            result = sent.result().topics[0]
            code = ErrorCode.received(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                problem = result.error_message or code.name
        if problem:
            self._drop(f"topic {METRICS_TOPIC} is not created: {problem}")


def _failure(sent: asyncio.Future[Any]) -> str:
    """Return the reason why there is no answer, empty if there is one."""
    if sent.cancelled():
        return "the request was cancelled"
    error = sent.exception()
    return "" if error is None else str(error) or repr(error)


def _refusal(response: ProduceResponse, leader: int) -> str:
    """Return the reason why the leader refused the record, empty if it did not."""
    answer = response.responses[0].partition_responses[0]
    code = ErrorCode.received(answer.error_code)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return (
            f"broker {leader} refuses it, because this broker's principal has no permission to WRITE to {METRICS_TOPIC}"
        )
    return "" if code == ErrorCode.NONE else f"broker {leader} answers {code.name}"
