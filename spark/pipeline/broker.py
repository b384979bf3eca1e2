"""What the driver itself asks the brokers: do topics exist, which are they, where do partitions begin and end.

The client is kafka-python. `[kafka]` is written for the Java client; `client_options` says the same to this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pipeline.errors import PipelineError

TIMEOUT_MS = 15_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Range(NamedTuple):
    """The offsets that a partition has: [earliest, latest)."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Topic:
    """`id` is None where the brokers do not say it (before Apache Kafka 2.8)."""

    id: str | None
    partitions: tuple[int, ...]


def client_options(kafka: Mapping[str, str]) -> dict[str, object]:
    """`[kafka]` for kafka-python.

    Raises:
        PipelineError: a setting that decides about security cannot be said to it.
    """
    found: dict[str, object] = {"bootstrap_servers": [each.strip() for each in kafka["bootstrap.servers"].split(",")]}
    plain = ("security.protocol", "sasl.mechanism", "client.id")
    found |= {key.replace(".", "_"): kafka[key] for key in plain if key in kafka}
    known = {*plain, "sasl.jaas.config", "ssl.endpoint.identification.algorithm"}
    for match in JAAS.finditer(kafka.get("sasl.jaas.config", "")):
        found[f"sasl_plain_{match[1]}"] = next(value for value in match.groups()[1:] if value is not None)
    if kafka.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl_check_hostname"] = False
    for store, options in (("truststore", ["ssl_cafile"]), ("keystore", ["ssl_certfile", "ssl_keyfile"])):
        if kafka.get(f"ssl.{store}.type") == "PEM" and f"ssl.{store}.location" in kafka:
            known |= {f"ssl.{store}.type", f"ssl.{store}.location"}
            found |= dict.fromkeys(options, kafka[f"ssl.{store}.location"])
    if found.get("sasl_mechanism", "PLAIN") not in MECHANISMS:
        raise PipelineError(f"[kafka] sasl.mechanism: the driver's own client has {', '.join(MECHANISMS)}")
    for key in kafka:
        if key.startswith(("ssl.", "sasl.")) and key not in known:
            raise PipelineError(
                f"[kafka] {key}: the driver's own client has no such setting",
                "stores as PEM files and sasl.jaas.config with username and password work",
            )
    return found


class Broker:
    """Connects when it is first asked. Every method raises PipelineError if there is no answer within 15 s."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._servers = kafka["bootstrap.servers"]
        self._options = client_options(kafka)
        self._admin: Any = None

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist."""
        described = self._ask(lambda admin: admin.describe_topics(sorted(set(names))))
        found = {}
        for each in described:
            if each["error_code"] == 0:
                numbers = tuple(sorted(part["partition_index"] for part in each["partitions"]))
                found[each["name"]] = Topic(each["topic_id"] and str(each["topic_id"]), numbers)
            elif each["error_code"] != 3:  # UNKNOWN_TOPIC_OR_PARTITION
                from kafka.errors import for_code

                raise PipelineError(f"topic {each['name']}: {for_code(each['error_code']).__name__}")
        return found

    def ranges(self, partitions: Iterable[Partition]) -> dict[Partition, Range]:
        """Where partitions begin and end; they have to exist."""
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
                "Is the broker running, and are bootstrap.servers and security in [kafka] right?",
            ) from error


def _list_offsets(wanted: Mapping[Any, Any], admin: Any) -> Any:
    return admin.list_partition_offsets(wanted)
