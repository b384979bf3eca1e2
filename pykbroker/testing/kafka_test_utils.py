"""Helpers under the names that Spark's own Kafka tests use, over a broker of this process.

`KafkaUtils` has the names of PySpark's tests since 4.1. `KafkaTestUtils` has the names of Spark's Scala tests and of
PySpark's earlier tests. A test that was written for Spark's helpers needs no change, and no container or JVM for its
broker. The client is kafka-python, as in PySpark's tests: versions 2.0.2, 2.2 and 3 work, and it is imported at its
first use. Offsets and sizes are read from the broker itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pykbroker.testing.cluster import Cluster
from pykbroker.testing.embedded import Broker

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.02


class KafkaUtils:
    """Call `setup` first and `teardown` last, or use a `with` block.

    `on`: a broker or a cluster that runs already and that `teardown` does not stop; without it `setup` starts a broker
    and `teardown` stops it. `broker` is the address of this broker or cluster.
    """

    def __init__(self, on: Broker | Cluster | None = None) -> None:
        self._given = on
        self._own: Broker | None = None
        self._admin: Any = None
        self._producer: Any = None
        self.initialized = False
        self.broker: str | None = None

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.teardown()

    def setup(self) -> None:
        """Start; a second call changes nothing."""
        if self.initialized:
            return
        if self._given is None:
            self._own = Broker().start()
        self.broker = self._running.bootstrap_servers
        self.initialized = True

    def teardown(self) -> None:
        """Stop the broker that `setup` has started, and close the clients. A second call changes nothing."""
        if self._admin is not None:
            self._admin.close()
        if self._producer is not None:
            self._producer.close()
        self._admin = self._producer = self.broker = None
        self.initialized = False
        if self._own is not None:
            self._own.stop()
            self._own = None

    @property
    def _running(self) -> Broker | Cluster:
        running = self._given or self._own
        if running is None:
            raise RuntimeError("setup() has not been called")
        return running

    @property
    def admin_client(self) -> Any:
        """kafka-python's `KafkaAdminClient`."""
        from kafka.admin import KafkaAdminClient

        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self._running.bootstrap_servers)
        return self._admin

    @property
    def producer(self) -> Any:
        """kafka-python's `KafkaProducer`. A key or value that is neither None nor bytes is sent as the bytes of its
        `str`."""
        from kafka import KafkaProducer

        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self._running.bootstrap_servers, key_serializer=_encoded, value_serializer=_encoded
            )
        return self._producer

    def create_topics(self, topic_names: Iterable[str], num_partitions: int = 1, replication_factor: int = 1) -> None:
        """Create topics; existing ones stay as they are."""
        from kafka.admin import NewTopic
        from kafka.errors import TopicAlreadyExistsError

        for name in topic_names:
            try:
                self.admin_client.create_topics([NewTopic(name, num_partitions, replication_factor)])
            except TopicAlreadyExistsError:
                continue
            self._running._wait_for_topic(name, is_there=True)

    def delete_topics(self, topic_names: Iterable[str]) -> None:
        """Delete topics; unknown ones are ignored."""
        from kafka.errors import UnknownTopicOrPartitionError

        for name in topic_names:
            try:
                self.admin_client.delete_topics([name])
            except UnknownTopicOrPartitionError:
                continue
            self._running._wait_for_topic(name, is_there=False)

    def send_messages(self, topic: str, messages: Iterable[tuple[Any, Any]]) -> None:
        """Send pairs of key and value, and wait until the broker has acknowledged them."""
        sent = [self.producer.send(topic, key=key, value=value) for key, value in messages]
        for one in sent:
            one.get(timeout=_PATIENCE_SECONDS)

    def get_all_records(
        self, spark: Any, topic: str, key_deserializer: str = "STRING", value_deserializer: str = "STRING"
    ) -> list[tuple[Any, Any]]:
        """Return keys and values of a topic as Spark reads them, sorted."""
        options = {
            "kafka.bootstrap.servers": self.broker,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "endingOffsets": "latest",
        }
        rows = spark.read.format("kafka").options(**options).load()
        rows = rows.selectExpr(f"CAST(key AS {key_deserializer})", f"CAST(value AS {value_deserializer})").collect()
        return sorted(tuple(row) for row in rows)

    def assert_eventually(
        self, result_func: Callable[[], Any], expected: Any, timeout: float = 60, interval: float = 1.0
    ) -> None:
        """Call `result_func` until the result is the expected one. Raises AssertionError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (result := result_func()) != expected:
            assert time.monotonic() < deadline, f"after {timeout} s the result is {result!r}, not {expected!r}"
            time.sleep(interval)

    def wait_for_query_alive(self, query: Any, timeout: float = 60, interval: float = 1.0) -> None:
        """Wait until a streaming query has begun its work; raises its exception if it failed."""
        deadline = time.monotonic() + timeout
        while not (query.status["isDataAvailable"] or query.status["isTriggerActive"]):
            if (failure := query.exception()) is not None:
                raise failure
            assert time.monotonic() < deadline, f"the query has not begun after {timeout} s"
            time.sleep(interval)


class KafkaTestUtils(KafkaUtils):
    """The names of Spark's Scala class, in its spelling."""

    @property
    def brokerAddress(self) -> str:
        """`host:port`."""
        return self._running.bootstrap_servers

    def createTopic(self, topic: str, partitions: int = 1, overwrite: bool = False) -> None:
        """Create a topic; with `overwrite` it replaces an existing one, otherwise TopicAlreadyExistsError is raised."""
        from kafka.errors import TopicAlreadyExistsError

        if topic in self._running.topics():
            if not overwrite:
                raise TopicAlreadyExistsError(topic)
            self.deleteTopic(topic)
        self.create_topics([topic], partitions)

    def deleteTopic(self, topic: str) -> None:
        """Delete a topic, and wait until it is deleted."""
        self.delete_topics([topic])

    def addPartitions(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to this total."""
        from kafka.admin import NewPartitions

        self.admin_client.create_partitions({topic: NewPartitions(partitions)})
        _until(
            lambda: self._running.topics(internal=True).get(topic) == partitions,
            f"topic {topic} has not {partitions} partitions",
        )

    def getAllTopicsAndPartitionSize(self) -> list[tuple[str, int]]:
        """Return every topic with the number of its partitions, with Kafka's own topics."""
        return list(self._running.topics(internal=True).items())

    def sendMessages(
        self, topic: str, messages: Sequence[Any] | Mapping[Any, int], partition: int | None = None
    ) -> list[tuple[Any, Any]]:
        """Send messages; each key of a mapping is sent as often as its value says. Return each message with the
        client's RecordMetadata."""
        if isinstance(messages, Mapping):
            messages = [message for message, count in messages.items() for _ in range(count)]
        sent = [(message, self.producer.send(topic, message, partition=partition)) for message in messages]
        return [(message, one.get(timeout=_PATIENCE_SECONDS)) for message, one in sent]

    def getEarliestOffsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the first offsets of partitions, by topic and index."""
        return {
            (topic, index): offset
            for topic in topics
            for index, offset in self._running.beginning_offsets(topic).items()
        }

    def getLatestOffsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the offsets after the last records of partitions, by topic and index."""
        return {
            (topic, index): offset for topic in topics for index, offset in self._running.end_offsets(topic).items()
        }

    def waitUntilOffsetAppears(self, topic: str, partition: int, offset: int) -> None:
        """Wait until consumers can read up to an offset."""
        _until(
            lambda: self._running.end_offsets(topic)[partition] >= offset, f"{topic}-{partition} ends before {offset}"
        )


def _encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {_PATIENCE_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
