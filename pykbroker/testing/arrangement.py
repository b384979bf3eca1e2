"""Topics and records that a test needs before it begins: `create_topic`, `produce`, `delete_topic`.

No client is needed. Requests go the way of inspection.py: to leaders, or to the controller, in memory where the nodes
are in this process. So no fault rule applies to them, and they are not in the recorded traffic.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from pykbroker.net.client import Unanswered
from pykbroker.testing.asynchronous import on_thread
from pykbroker.testing.inspection import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    Inspected,
    InspectedRecord,
)
from pykbroker.testing.key_partition import partition_of
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch

#: The time for one attempt; if it has passed, the next attempt may find another controller.
CONTROLLER_SECONDS = 10.0
_TIMEOUT_MS = int(PATIENCE_SECONDS * 1000)

#: A header of a record: its name and its value.
Header = tuple[str, bytes | str | None]


def as_text(value: object) -> str:
    """Return a value of a configuration as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Arranged(Inspected):
    """A broker, a cluster of this process, or a cluster that runs already."""

    @abstractmethod
    def _ask_controller(self, request: Any) -> Any:
        """Return the active controller's answer to a request."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> str:
        """Create a topic, and return its name when every broker knows it and each partition has a leader.

        `config`: Kafka's keys of topics, for example `{"retention.ms": 1000}`. `replication_factor`: None takes the
        broker's `default.replication.factor`. Raises KafkaError, whose `code` is TOPIC_ALREADY_EXISTS,
        INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR; then nothing was
        created. Raises TimeoutError if a partition has no leader within a minute.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            configs=[CreatableTopicConfig(name=key, value=as_text(value)) for key, value in (config or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        self._change(request, lambda answer: answer.topics[0], ErrorCode.TOPIC_ALREADY_EXISTS)
        self._wait_for_topic(name, is_there=True)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when no active broker has it. Raises KafkaError with UNKNOWN_TOPIC_OR_PARTITION if
        there is no such topic."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        self._change(request, lambda answer: answer.responses[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._wait_for_topic(name, is_there=False)

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> InspectedRecord:
        """Append one record with acks=all, and return it with its offset when consumers can read it.

        Text is sent in UTF-8. A `value` of None is a tombstone. `partition`: None takes the partition of the key as
        Apache Kafka's producer does, or partition 0 if there is no key. `timestamp_ms`: milliseconds since 1970; None
        takes the present time. Raises LookupError if there is no such topic or partition (`create_topic` makes one),
        and KafkaError if the leader refuses the record, for example with MESSAGE_TOO_LARGE or NOT_ENOUGH_REPLICAS. A
        record whose leader is lost is sent again, so it may be appended twice.
        """
        sent_key, sent_value = _as_bytes(key), _as_bytes(value)
        sent_headers = tuple((name, _as_bytes(content)) for name, content in headers)
        known = self._topic(topic)
        if partition is None:
            partition = 0 if sent_key is None else partition_of(sent_key, len(known.leaders))
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        data = TopicProduceData(
            name=topic,
            topic_id=known.id,
            partition_data=[
                PartitionProduceData(
                    index=partition, records=build_batch([(sent_key, sent_value, sent_headers, timestamp_ms)])
                )
            ],
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
        found = self._of_leader(topic, partition, request, lambda answer: answer.responses[0].partition_responses[0])
        if found.log_append_time_ms >= 0:
            timestamp_ms = found.log_append_time_ms
        return InspectedRecord(topic, partition, found.base_offset, timestamp_ms, sent_key, sent_value, sent_headers)

    create_topic_async = on_thread(create_topic)
    delete_topic_async = on_thread(delete_topic)
    produce_async = on_thread(produce)

    def _change(self, request: Any, part: Callable[[Any], Any], when_repeated: ErrorCode | None = None) -> Any:
        """Return the part of the active controller's answer that has the error, and wait for a new controller if there
        is none. `when_repeated`: the error of a request that was carried out before, but whose answer was lost. Raises
        KafkaError for any other error."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        is_lost = False
        while True:
            try:
                found = part(self._ask_controller(request))
            except (ConnectionError, TimeoutError) as error:
                is_lost = is_lost or isinstance(error, Unanswered | TimeoutError)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no controller has answered: {error}") from error
            else:
                code = ErrorCode.received(found.error_code)
                if code is ErrorCode.NONE or (is_lost and code is when_repeated):
                    return found
                if code is not ErrorCode.NOT_CONTROLLER or time.monotonic() > deadline:
                    raise KafkaError(code, getattr(found, "error_message", None) or None)
            time.sleep(POLL_SECONDS)

    def _wait_for_topic(self, name: str, *, is_there: bool) -> None:
        """Wait until every active broker has the topic with the leaders of its partitions, or until no active broker
        has it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        while True:
            nodes = self._asked_nodes()
            answers = {}
            for node in nodes:
                # A node that restarts is asked again.
                with suppress(ConnectionError):
                    answers[node] = self._ask(node, request)
            done = {node for node, answer in answers.items() if _knows(answer.topics[0]) is is_there}
            # A broker that is cut off from the controller is fenced. The other brokers then no longer name it, so the
            # wait ignores it.
            active = {broker.node_id for node in done for broker in answers[node].brokers}
            if done and done >= active & set(nodes):
                return
            if time.monotonic() > deadline:
                state = "is not known to" if is_there else "is still known to"
                raise TimeoutError(f"topic {name} {state} nodes {sorted(set(nodes) - done)}")
            time.sleep(POLL_SECONDS)


def _knows(topic: Any) -> bool:
    return not topic.error_code and all(not one.error_code and one.leader_id >= 0 for one in topic.partitions)


def _as_bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
