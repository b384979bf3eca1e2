"""The driver's own requests to the brokers: which topics exist, with which ids, and where do partitions begin and end.

The client is kafka-python. `[kafka]` is written for the Java client; `secured.kafka_python` translates it for this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pipeline import secured
from pipeline.errors import PipelineError

TIMEOUT_MS = 15_000
#: Kafka's error codes.
_UNKNOWN_TOPIC, _TOPIC_AUTHORIZATION_FAILED = 3, 29


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Range(NamedTuple):
    """The offsets of a partition: [earliest, latest)."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Topic:
    """`id` is None if the brokers do not return it: before Apache Kafka 2.8, and for a topic that they do not describe.

    `operations`: the operations that ACLs allow this client on it, or None if the brokers do not return them.
    """

    id: str | None
    partitions: tuple[int, ...]
    operations: frozenset[str] | None = None


class Broker:
    """Connects at the first request. Every method raises PipelineError if there is no answer within 15 s."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._servers = kafka["bootstrap.servers"]
        self._options = secured.kafka_python(kafka)
        self._admin: Any = None

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return the topics that exist, and those that the brokers refuse to describe."""
        described = self._ask(lambda admin: admin.describe_topics(sorted(set(names))))
        found = {}
        for each in described:
            if each["error_code"] == 0:
                numbers = tuple(sorted(part["partition_index"] for part in each["partitions"]))
                operations = each.get("authorized_operations")
                found[each["name"]] = Topic(
                    each["topic_id"] and str(each["topic_id"]),
                    numbers,
                    None if operations is None else frozenset(operations),
                )
            elif each["error_code"] == _TOPIC_AUTHORIZATION_FAILED:
                found[each["name"]] = Topic(None, (), frozenset())
            elif each["error_code"] != _UNKNOWN_TOPIC:
                from kafka.errors import for_code

                raise PipelineError(f"topic {each['name']}: {for_code(each['error_code']).__name__}")
        return found

    def topic_settings(self, names: Iterable[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the values of `keys` for each topic that exists, without topics that this client may not read."""
        there = self.topics(names)
        # After the first call, because two threads that import parts of kafka-python for the first time block each
        # other.
        from kafka.admin import ConfigResource, ConfigResourceType

        asked = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(keys)) for name in there]
        found = self._ask(partial(_describe_configs, asked))
        return {each.name: _values(found.get(each.name, {})) for each in asked}

    def ranges(self, partitions: Iterable[Partition]) -> dict[Partition, Range]:
        """Return where partitions begin and end; they must exist."""
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec

        asked = {TopicPartition(*partition): partition for partition in partitions}
        if not asked:
            return {}
        ends = []
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            ends.append(self._ask(partial(_list_offsets, dict.fromkeys(asked, spec))))
        return {mine: Range(*(end[theirs].offset for end in ends)) for theirs, mine in asked.items()}

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(
                    **self._options, bootstrap_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS
                )
            return question(self._admin)
        except (KafkaError, OSError) as error:
            raise PipelineError(
                f"{self._servers}: {error}",
                "Is the broker running, and are bootstrap.servers in [kafka] and [security] right?",
            ) from error


def _describe_configs(asked: Sequence[Any], admin: Any) -> Any:
    return admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}


def _values(described: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {key: str(each["value"]) for key, each in described.items() if each["value"] is not None}


def _list_offsets(wanted: Mapping[Any, Any], admin: Any) -> Any:
    return admin.list_partition_offsets(wanted)
