"""We accept what Apache Kafka's jars accept, and refuse what they refuse: files, topics, groups, dynamic layers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from compat_tests.differential import config_oracle
from pykbroker.config.dynamic import DynamicConfigs, apply_whole
from pykbroker.config.group import validate_group_overrides
from pykbroker.config.key_table import BROKER_KEYS, TOPIC_KEYS
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.properties import parse
from pykbroker.config.topic import validate_topic_overrides

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/a,/data/b",
}
BROKER = COMBINED | {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
CONTROLLER = COMBINED | {"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}

# Changes to one of the three; an empty string as a value removes the key.
CHANGES: list[tuple[dict[str, str], dict[str, str]]] = [
    (COMBINED, {}),
    (BROKER, {}),
    (CONTROLLER, {}),
    *[(COMBINED, {name: ""}) for name in COMBINED],
    (COMBINED, {"node.id": "", "broker.id": "1"}),
    (COMBINED, {"broker.id": "2"}),
    (COMBINED, {"node.id": "-1"}),
    (COMBINED, {"node.id": "x"}),
    (COMBINED, {"node.id": " 7 "}),
    (COMBINED, {"process.roles": "broker,broker"}),
    (COMBINED, {"process.roles": "zookeeper"}),
    (COMBINED, {"controller.quorum.bootstrap.servers": "localhost"}),
    (COMBINED, {"controller.quorum.bootstrap.servers": "[::1]:9093"}),
    (COMBINED, {"controller.quorum.bootstrap.servers": "", "controller.quorum.voters": "1@localhost:9093"}),
    (COMBINED, {"controller.quorum.voters": "2@localhost:9093"}),
    (COMBINED, {"controller.quorum.voters": "localhost:9093"}),
    (BROKER, {"controller.quorum.voters": "1@localhost:9093"}),
    (BROKER, {"controller.quorum.voters": "2@localhost:9093"}),
    (BROKER, {"controller.quorum.auto.join.enable": "true"}),
    (BROKER, {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"}),
    (BROKER, {"controller.listener.names": "CONTROLLER,OTHER"}),
    (BROKER, {"controller.listener.names": "OTHER", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}),
    (CONTROLLER, {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"}),
    (CONTROLLER, {"advertised.listeners": "CONTROLLER://example.org:9093"}),
    (CONTROLLER, {"inter.broker.listener.name": "CONTROLLER"}),
    (COMBINED, {"controller.listener.names": "controller"}),
    (COMBINED, {"controller.listener.names": "CONTROLLER,MISSING"}),
    (COMBINED, {"controller.listener.names": "PLAINTEXT,CONTROLLER"}),
    (COMBINED, {"listeners": "PLAINTEXT://localhost:9092"}),
    (COMBINED, {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9092"}),
    (COMBINED, {"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"}),
    (COMBINED, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
    (COMBINED, {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}),
    (COMBINED, {"listeners": "plaintext://localhost:9092,CONTROLLER://localhost:9093"}),
    (COMBINED, {"listeners": "PLAINTEXT://localhost,CONTROLLER://localhost:9093"}),
    (COMBINED, {"listeners": "nonsense"}),
    (COMBINED, {"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2,CONTROLLER://localhost:9093"}),
    (COMBINED, {"listeners": "EXTERNAL://a:1,CONTROLLER://localhost:9093"}),
    (
        COMBINED,
        {
            "listeners": "EXTERNAL://a:1,CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "EXTERNAL",
        },
    ),
    (
        COMBINED,
        {
            "listeners": "EXTERNAL://127.0.0.1:1,SIX://[::1]:1,CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SIX:PLAINTEXT",
            "inter.broker.listener.name": "SIX",
        },
    ),
    (
        COMBINED,
        {
            "listeners": "EXTERNAL://127.0.0.1:1,SIX://127.0.0.2:1,CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SIX:PLAINTEXT",
            "inter.broker.listener.name": "SIX",
        },
    ),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:NONSENSE,CONTROLLER:PLAINTEXT"}),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT"}),
    (COMBINED, {"listeners": "SSL://localhost:9092,CONTROLLER://localhost:9093"}),
    (COMBINED, {"inter.broker.listener.name": "MISSING"}),
    (COMBINED, {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}),
    (COMBINED, {"inter.broker.listener.name": "plaintext"}),
    (COMBINED, {"security.inter.broker.protocol": "SSL"}),
    (COMBINED, {"security.inter.broker.protocol": "TLS"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://here:9092,CONTROLLER://0.0.0.0:9093"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://[::]:9092,CONTROLLER://[::]:9093"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://example.org:19092"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://example.org:1,CONTROLLER://example.org:1"}),
    (COMBINED, {"advertised.listeners": "CONTROLLER://example.org:1"}),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://a:1,SSL://a:2"}),
    (COMBINED, {"early.start.listeners": "CONTROLLER"}),
    (COMBINED, {"early.start.listeners": "MISSING"}),
    (COMBINED, {"cordoned.log.dirs": "/data/b"}),
    (COMBINED, {"cordoned.log.dirs": "/data/c"}),
    (COMBINED, {"cordoned.log.dirs": "*"}),
    (COMBINED, {"cordoned.log.dirs": "*,/data/a"}),
    (COMBINED, {"log.dirs": "/data/a,,/data/b"}),
    (COMBINED, {"log.dirs": "/data/a,/data/a"}),
    (COMBINED, {"log.roll.ms": "0"}),
    (COMBINED, {"log.roll.jitter.ms": "-1"}),
    (COMBINED, {"log.retention.ms": "0"}),
    (COMBINED, {"log.retention.ms": "-1"}),
    (COMBINED, {"log.retention.ms": "-7"}),
    (COMBINED, {"log.retention.minutes": "0"}),
    (COMBINED, {"log.retention.hours": "0"}),
    (COMBINED, {"log.retention.hours": "1.5"}),
    (COMBINED, {"log.cleaner.dedupe.buffer.size": "1048576"}),
    (COMBINED, {"log.cleaner.dedupe.buffer.size": "1048577"}),
    (COMBINED, {"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"}),
    (COMBINED, {"log.cleaner.dedupe.buffer.size": "2097154", "log.cleaner.threads": "2"}),
    (COMBINED, {"replica.fetch.wait.max.ms": "30001"}),
    (COMBINED, {"replica.fetch.wait.max.ms": "600", "replica.lag.time.max.ms": "500"}),
    (COMBINED, {"queued.max.request.bytes": "1000"}),
    (COMBINED, {"queued.max.request.bytes": "104857600"}),
    (COMBINED, {"queued.max.request.bytes": "0"}),
    (COMBINED, {"max.connections.per.ip": "0"}),
    (COMBINED, {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}),
    (COMBINED, {"max.connections.per.ip.overrides": "127.0.0.1"}),
    (COMBINED, {"max.connections.per.ip.overrides": "127.0.0.1:x"}),
    (COMBINED, {"max.connections.per.ip.overrides": "::1:5,localhost:3"}),
    (COMBINED, {"connections.max.idle.ms": "100"}),
    (COMBINED, {"connections.max.idle.ms": "101"}),
    (COMBINED, {"connections.max.idle.ms": "-1"}),
    (COMBINED, {"broker.heartbeat.interval.ms": "5000"}),
    (COMBINED, {"group.consumer.heartbeat.interval.ms": "4999"}),
    (COMBINED, {"group.consumer.heartbeat.interval.ms": "15001"}),
    (COMBINED, {"group.consumer.session.timeout.ms": "60001"}),
    (COMBINED, {"group.consumer.max.session.timeout.ms": "44999"}),
    (
        COMBINED,
        {
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.session.timeout.ms": "5000",
        },
    ),
    (COMBINED, {"group.share.assignors": "simple,other"}),
    (COMBINED, {"group.consumer.assignors": "range"}),
    (COMBINED, {"group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor"}),
    (COMBINED, {"group.share.max.share.sessions": "199"}),
    (COMBINED, {"group.share.delivery.count.limit": "1"}),
    (COMBINED, {"group.share.max.delivery.count.limit": "5", "group.share.delivery.count.limit": "6"}),
    (COMBINED, {"group.streams.num.standby.replicas": "3"}),
    (COMBINED, {"group.consumer.assignment.interval.ms": "15001"}),
    (COMBINED, {"group.coordinator.rebalance.protocols": "classic,consumer,classic"}),
    (COMBINED, {"group.coordinator.rebalance.protocols": "modern"}),
    (COMBINED, {"group.consumer.migration.policy": "Upgrade"}),
    (COMBINED, {"security.inter.broker.protocol": "SASL_PLAINTEXT"}),
    (
        COMBINED,
        {
            "listeners": "SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        },
    ),
    (
        COMBINED,
        {
            "listeners": "SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "GSSAPI,PLAIN",
        },
    ),
    (COMBINED, {"unknown.key": "1"}),
    (COMBINED, {"compression.gzip.level": "0"}),
    (COMBINED, {"compression.type": "GZIP"}),
    (COMBINED, {"auto.create.topics.enable": "TRUE"}),
    (COMBINED, {"auto.create.topics.enable": "yes"}),
    (COMBINED, {"log.cleaner.min.cleanable.ratio": "1e-1"}),
    (COMBINED, {"log.cleaner.min.cleanable.ratio": "1.1"}),
    (COMBINED, {"log.cleaner.min.cleanable.ratio": ".5d"}),
    (COMBINED, {"num.partitions": "+3"}),
    (COMBINED, {"num.partitions": "1_000"}),
    (COMBINED, {"num.partitions": "2147483648"}),
    (COMBINED, {"offsets.topic.replication.factor": "32768"}),
    (COMBINED, {"remote.log.storage.manager.class.name": " "}),
]

TOPICS: list[dict[str, str]] = [
    {},
    {"retention.ms": "-1"},
    {"retention.ms": "-2"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": ""},
    {"cleanup.policy": "shrink"},
    {"cleanup.policy": "delete,delete"},
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
    {"min.compaction.lag.ms": "4", "max.compaction.lag.ms": "4"},
    {"segment.bytes": "1048575"},
    {"internal.segment.bytes": "10"},
    {"compression.type": "none"},
    {"leader.replication.throttled.replicas": "*"},
    {"leader.replication.throttled.replicas": "0:1,1:2"},
    {"leader.replication.throttled.replicas": "0:x"},
    {"leader.replication.throttled.replicas": "0:1,*"},
    {"min.cleanable.dirty.ratio": "2"},
    {"remote.storage.enable": "true"},
    {"unknown": "1"},
    {"local.retention.ms": "-3"},
    {"preallocate": "1"},
]
REMOTE: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {"remote.storage.enable": "true"}),
    ({}, {"remote.storage.enable": "true", "cleanup.policy": "compact"}),
    ({}, {"remote.storage.enable": "true", "cleanup.policy": ""}),
    ({}, {"remote.storage.enable": "true", "local.retention.ms": "604800001"}),
    ({}, {"remote.storage.enable": "true", "local.retention.ms": "-1"}),
    ({}, {"remote.storage.enable": "true", "local.retention.ms": "-1", "retention.ms": "-1"}),
    ({}, {"remote.storage.enable": "true", "local.retention.bytes": "10", "retention.bytes": "9"}),
    ({}, {"remote.storage.enable": "true", "remote.log.copy.disable": "true"}),
    ({}, {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5"}),
    ({"remote.storage.enable": "true"}, {}),
    ({"remote.storage.enable": "true"}, {"remote.log.delete.on.disable": "true"}),
]
GROUPS: list[dict[str, str]] = [
    {},
    {"consumer.session.timeout.ms": "45000"},
    {"consumer.session.timeout.ms": "44999"},
    {"consumer.session.timeout.ms": "60001"},
    {"consumer.heartbeat.interval.ms": "15001"},
    {"consumer.assignment.interval.ms": "15001"},
    {"share.auto.offset.reset": "earliest"},
    {"share.auto.offset.reset": "EARLIEST"},
    {"share.auto.offset.reset": "none"},
    {"share.auto.offset.reset": "by_duration:pt1h"},
    {"share.auto.offset.reset": "BY_DURATION:PT1H"},
    {"share.auto.offset.reset": "by_duration:P1D"},
    {"share.auto.offset.reset": "by_duration:P1DT"},
    {"share.auto.offset.reset": "by_duration:PT1S1H"},
    {"share.auto.offset.reset": "by_duration:PT.5S"},
    {"share.auto.offset.reset": "by_duration:PT0S"},
    {"share.auto.offset.reset": "by_duration:-PT-1S"},
    {"share.auto.offset.reset": "by_duration:PT1H"},
    {"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
    {"share.auto.offset.reset": "by_duration:-PT1H"},
    {"share.auto.offset.reset": "by_duration:1h"},
    {"share.auto.offset.reset": "by_duration:PT"},
    {"share.isolation.level": "read_committed"},
    {"share.isolation.level": "serializable"},
    {"share.record.lock.duration.ms": "14999"},
    {"share.delivery.count.limit": "11"},
    {"share.renew.acknowledge.enable": "maybe"},
    {"streams.num.standby.replicas": "3"},
    {"unknown": "1"},
]
DYNAMIC: list[tuple[bool, dict[str, str]]] = [
    (per_broker, change)
    for per_broker in (True, False)
    for change in (
        {"log.retention.ms": "1000"},
        {"log.retention.ms": "x"},
        {"log.retention.hours": "1"},
        {"ssl.keystore.location": "a"},
        {"listener.name.external.ssl.keystore.location": "a"},
        {"listener.name.external.max.connections": "10"},
        {"listener.name.external.max.connections": "-1"},
        {"max.connections": "10"},
        {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"},
        {"unknown": "1"},
        {"leader.replication.throttled.rate": "10"},
        {"leader.replication.throttled.rate": "-1"},
        {"node.id": "1"},
        {"principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"},
        {"cordoned.log.dirs": "*"},
        {"sasl.enabled.mechanisms": "PLAIN"},
    )
]


def refusal(check: Any, *arguments: Any, **named: Any) -> str | None:
    try:
        check(*arguments, **named)
    except ConfigError as error:
        return str(error)
    return None


def merged(base: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in {**base, **change}.items() if text != ""}


def compare(questions: list[dict[str, Any]], ours: list[str | None]) -> None:
    theirs = config_oracle.run("CheckConfigs", questions)
    wrong = [
        (question, f"Kafka: {their}", f"ours: {our}")
        for question, their, our in zip(questions, theirs, ours, strict=True)
        if (their is None) != (our is None)
    ]
    assert wrong == []


def test_files() -> None:
    files = [merged(base, change) for base, change in CHANGES]
    compare([{"kind": "broker", "properties": one} for one in files], [refusal(load, one) for one in files])


def test_a_message_names_what_is_wrong() -> None:
    """Each refusal names the changed key, unless the key is missing or another one is the cause."""
    for base, change in CHANGES:
        message = refusal(load, merged(base, change))
        if message is not None and len(change) == 1:
            (name,) = change
            words = name.removeprefix("group.").split(".")
            assert name in message or any(word in message for word in words), message


def test_single_values() -> None:
    """Compare a few values on and around the bounds of each key."""
    values = ["", "0", "1", "-1", "-2", "-3", "2147483647", "2147483648", "x", "1.5", "true", "a,b", "a,,b", "none"]
    skip = {"node.id", "broker.id", "process.roles", "listeners", "controller.listener.names"}
    files = [
        COMBINED | {name: value}
        for name, key in BROKER_KEYS.items()
        if name not in skip and key.type.name != "CLASS"
        for value in values
    ]
    # Integer division by log.cleaner.threads=0 is an ArithmeticException in Kafka, not a refusal.
    files = [one for one in files if one.get("log.cleaner.threads") != "0"]
    compare([{"kind": "broker", "properties": one} for one in files], [refusal(load, one) for one in files])


def test_topics() -> None:
    config = load(COMBINED)
    plain = [{"kind": "topic", "broker": COMBINED, "existing": {}, "properties": one} for one in TOPICS]
    compare(plain, [refusal(validate_topic_overrides, one, config) for one in TOPICS])
    tiered = COMBINED | {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "java.lang.Object",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    }
    config = load(tiered)
    compare(
        [{"kind": "topic", "broker": tiered, "existing": old, "properties": new} for old, new in REMOTE],
        [refusal(validate_topic_overrides, new, config, old) for old, new in REMOTE],
    )


def test_single_topic_values() -> None:
    values = ["", "0", "1", "-1", "-2", "-3", "2147483647", "9223372036854775808", "x", "0.5", "true", "a,b"]
    config = load(COMBINED)
    topics = [{name: value} for name in TOPIC_KEYS for value in values]
    questions = [{"kind": "topic", "broker": COMBINED, "existing": {}, "properties": one} for one in topics]
    compare(questions, [refusal(validate_topic_overrides, one, config) for one in topics])


def test_groups() -> None:
    config = load(COMBINED)
    questions = [{"kind": "group", "broker": COMBINED, "properties": one} for one in GROUPS]
    compare(questions, [refusal(validate_group_overrides, config, one) for one in GROUPS])


def test_dynamic() -> None:
    config = load(COMBINED)
    questions = [{"kind": "dynamic", "perBroker": per_broker, "properties": one} for per_broker, one in DYNAMIC]
    ours = [
        refusal(apply_whole, config, DynamicConfigs(broker=one) if per_broker else DynamicConfigs(cluster=one))
        for per_broker, one in DYNAMIC
    ]
    compare(questions, ours)


@pytest.mark.parametrize("seed", [20260101])
def test_properties_files(seed: int) -> None:
    """Random texts of special characters are read the same by java.util.Properties."""
    random_ = random.Random(seed)
    pieces = [
        "a",
        "b",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\\",
        "\\\\",
        "\n",
        "\r",
        "\r\n",
        "#",
        "!",
        "\\u0041",
        "\\n",
        "é",
        "0",
    ]
    texts = ["".join(random_.choices(pieces, k=random_.randint(0, 14))) for _ in range(3000)]
    theirs = config_oracle.run("CheckConfigs", [{"kind": "properties", "text": text} for text in texts])
    for text, their in zip(texts, theirs, strict=True):
        ours = parse(text)
        if text.rstrip("\r\n").endswith("\\"):  # a single backslash at the end: see properties.py
            ours.pop("", None)
            their.pop("", None)
        assert ours == their, (text, seed)
