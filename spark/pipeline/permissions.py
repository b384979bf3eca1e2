"""The permissions of the pipeline's principal: Read on the topics that jobs read, Write on those that they write.

It needs no other: Spark's source assigns partitions and commits no offsets, so it needs no group. The sinks' producers
are idempotent, for which Write on a topic is enough since Apache Kafka 2.8 (KIP-679). Both imply Describe.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping

from pipeline import secured
from pipeline.config import Config
from pipeline.errors import PipelineError

READ, WRITE = "READ", "WRITE"
#: The topics that raw events come from, by the names of the configuration.
_RAW = ("clicks", "orders")


def needed(config: Config) -> dict[str, str]:
    """Return the operation on each topic, for all jobs together."""
    fields = [each.name for each in dataclasses.fields(config.topics)]
    return {getattr(config.topics, name): READ if name in _RAW else WRITE for name in fields}


def refusal(config: Config, told: str, topics: Iterable[str], wanted: Mapping[str, str] | None = None) -> PipelineError:
    """Return the error for topics that the brokers refuse. `told`: the text before the names of the missing
    rules. `wanted`: the operation on each topic; by default that of the jobs of the pipeline."""
    wanted = needed(config) if wanted is None else wanted
    rules = [(wanted.get(topic, "READ or WRITE"), topic) for topic in topics]
    user = secured.user(config.kafka)
    principal = "the principal of this client" if user is None else f"User:{user}"
    lacks = ", ".join(f"{operation} on topic {topic}" for operation, topic in rules)
    start = ["kafka-acls", "--bootstrap-server", config.kafka["bootstrap.servers"], "--command-config"]
    start += ["admin.properties", "--add", "--allow-principal", f"User:{user or 'NAME'}"]
    commands = [
        shlex.join([*start, "--operation", operation.capitalize(), "--topic", topic])
        for operation, topic in rules
        if topic in wanted
    ]
    return PipelineError(f"{told}: {principal} lacks {lacks}", "\n".join(["An administrator allows it:", *commands]))
