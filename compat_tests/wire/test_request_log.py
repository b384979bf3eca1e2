"""The request log of Apache Kafka and of pykbroker for the same requests. Both have the same keys in the same order,
the same requests and headers, and values of the same types. Hidden values differ where Apache Kafka shows secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.node import Pykbroker
from compat_tests.tool_server import run_shared
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from testkit.clients import wait_until
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import ApacheKafka, kafka_libs

TOPIC, BROKER, LOGGERS = 2, 4, 8
LOGGER = "kafka.request.logger"
SECRET = b"a secret of 20 bytes"
Line = dict[str, Any]


def lines_of(log: Path) -> list[Line]:
    """Return the lines of our client, ordered by the number of the request, the controller's line after the
    broker's."""
    texts = [text.partition("Completed request:")[2] for text in log.read_text(errors="replace").split("\n")]
    lines = [json.loads(text.rpartition("}")[0] + "}") for text in texts if text]
    mine = [line for line in lines if line["requestHeader"]["clientId"] == "test"]
    return sorted(mine, key=lambda line: (line["requestHeader"]["correlationId"], line["isForwarded"]))


def use(wire: Wire) -> None:
    """Send one request of each kind, on one connection, so that both kinds of nodes get the same frames."""
    wire.call(ApiVersionsRequest(client_software_name="request-log", client_software_version="1"), 4)
    wire.call(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]), 7)
    wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    configs = [
        ("retention.ms", "7777"),
        ("own.password", SECRET.decode()),
        ("cleanup.policy", None),
    ]
    for kind, name in ((TOPIC, "t"), (BROKER, "1")):
        changed = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in configs]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changed)
        wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
    wire.call(DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="t")]))
    user = ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096, salt=SECRET, salted_password=SECRET)
    wire.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]))
    wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    wire.call(produce_of(wire, "t"), 12)
    wire.call(wire.fetch_request("t", max_wait_ms=10), 12)
    wire.call(wire.fetch_request("t", 1, max_wait_ms=10), 12)


def produce_of(wire: Wire, topic: str) -> Any:
    from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    part = PartitionProduceData(index=0, records=batch(b"x" * 50))
    data = TopicProduceData(name=topic, partition_data=[part])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[data])


@pytest.fixture(scope="module")
def theirs() -> Iterator[list[Line]]:
    kafka_libs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.slf4j.simpleLogger.log.{LOGGER}=debug")
        kafka = ApacheKafka().start()
    try:
        with Wire(kafka.bootstrap, timeout=60) as wire:
            use(wire)
        # A line is written after the answer was sent.
        wait_until(lambda: lines_of(kafka.log_file)[-1]["requestHeader"]["correlationId"] == 11, "all lines are there")
        yield lines_of(kafka.log_file)
    finally:
        kafka.close()


@pytest.fixture(scope="module")
def ours() -> Iterator[list[Line]]:
    node = Pykbroker()
    try:
        node.start()
        of_loggers = ["--bootstrap-server", node.bootstrap, "--entity-type", "broker-loggers", "--entity-name", "1"]
        run_shared("kafka.admin.ConfigCommand", [*of_loggers, "--alter", "--add-config", f"{LOGGER}=DEBUG"])
        shown = run_shared("kafka.admin.ConfigCommand", [*of_loggers, "--describe"])
        assert f"{LOGGER}=DEBUG" in shown.out
        with Wire(node.bootstrap, timeout=60) as wire:
            use(wire)
        # The tools that change the level are clients too.
        run_shared("kafka.admin.ConfigCommand", [*of_loggers, "--alter", "--delete-config", LOGGER])
        with Wire(node.bootstrap, timeout=60) as wire:
            wire.metadata()
        yield lines_of(node.log_file)
    finally:
        node.close()


def shape(value: Any) -> Any:
    match value:
        case dict():
            return {key: shape(one) for key, one in value.items()}
        case list():
            return [shape(one) for one in value[:1]]
        case bool() | None:
            return value if value is None else "bool"
        case int() | float() | str():
            return type(value).__name__
    raise AssertionError(value)


def differ(one: Any, other: Any, at: str = "") -> list[str]:
    """Return the places where the shapes differ. Null fits everything, and an empty list fits every list."""
    if one is None or other is None:
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return [f"{at}: {list(one)} and {list(other)}"]
        return [found for key in one for found in differ(one[key], other[key], f"{at}.{key}")]
    if isinstance(one, list) and isinstance(other, list):
        return differ(one[0], other[0], f"{at}[]") if one and other else []
    return [] if one == other else [f"{at}: {one} and {other}"]


def test_the_same_lines_with_the_same_keys(theirs: list[Line], ours: list[Line]) -> None:
    names = [(line["requestHeader"]["requestApiKeyName"], line["isForwarded"]) for line in theirs]
    assert names == [(line["requestHeader"]["requestApiKeyName"], line["isForwarded"]) for line in ours]
    assert ("CREATE_TOPICS", True) in names
    assert len(names) > 12
    for their, our in zip(theirs, ours, strict=True):
        assert differ(shape(their), shape(our)) == [], (their, our)
        assert list(their["requestHeader"].items()) == list(our["requestHeader"].items())
        for key in ("securityProtocol", "principal", "listener"):
            assert their[key] == our[key]


def test_the_same_requests_but_for_secrets(theirs: list[Line], ours: list[Line]) -> None:
    shown = set()
    for their, our in zip(theirs, ours, strict=True):
        if their["request"] != our["request"]:
            shown.add(their["requestHeader"]["requestApiKeyName"])
            (user,) = our["request"]["upsertions"]
            assert (user["salt"], user["saltedPassword"]) == ("[hidden]", "[hidden]")
            assert user["name"] == "u"
    assert shown == {"ALTER_USER_SCRAM_CREDENTIALS"}
    assert SECRET.decode() not in json.dumps(ours)
    hidden = [line for line in ours if line["requestHeader"]["requestApiKeyName"] == "INCREMENTAL_ALTER_CONFIGS"]
    assert "[hidden]" in json.dumps(hidden)
