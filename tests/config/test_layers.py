"""Topic, group and dynamic layers, and their form in DescribeConfigs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykbroker.config import describe, properties
from pykbroker.config.dynamic import (
    DynamicConfigs,
    apply_valid,
    loggable,
    validate_broker_overrides,
)
from pykbroker.config.group import resolve_group, validate_group_overrides
from pykbroker.config.key_table import TOPIC_KEYS
from pykbroker.config.kinds import ConfigError, Type
from pykbroker.config.load import development_profile, load, with_overrides
from pykbroker.config.topic import resolve_topic, topic_defaults, validate_topic_overrides

CONFIG = load(development_profile("/data"))
GOLDEN = json.loads((Path(__file__).parent / "golden" / "describe_configs_4.4.0.json").read_text())

# The changes that DescribeAll.java makes. Kafka 4.3 itself adds min.insync.replicas for the whole cluster if eligible
# leader replicas are on, as a record in the metadata log.
CLUSTER_OF_KAFKA = {"min.insync.replicas": "1"}
CLUSTER = CLUSTER_OF_KAFKA | {
    "log.retention.ms": "123456789",
    "message.max.bytes": "2000000",
    "log.cleaner.threads": "2",
    "leader.replication.throttled.rate": "1000",
    "foo.dynamic": "secret",
}
BROKER = {
    "message.max.bytes": "3000000",
    "max.connections": "500",
    "listener.name.plaintext.max.connections": "400",
    "log.cleaner.min.cleanable.ratio": "0.125",
}
TOPIC = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.00001"}
GROUP = {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "earliest"}
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


def described(entries: list[describe.Entry]) -> dict[str, list[Any]]:
    """Return our entries as DescribeAll.java writes them, without the keys that are only ours."""
    return {
        entry.name: [
            entry.value,
            SOURCES[entry.config_source],
            Type(entry.config_type).name if entry.config_type else "UNKNOWN",
            entry.read_only,
            entry.is_sensitive,
            [[one.name, one.value, SOURCES[one.source]] for one in entry.synonyms],
        ]
        for entry in entries
        if not entry.name.startswith("pykbroker.")
    }


@pytest.mark.parametrize(
    ("stage", "dynamic"),
    [("static", DynamicConfigs({}, CLUSTER_OF_KAFKA)), ("dynamic", DynamicConfigs(BROKER, CLUSTER))],
)
def test_describe_is_what_kafka_says(stage: str, dynamic: DynamicConfigs) -> None:
    config = load(properties.parse("\n".join(GOLDEN["properties"])))
    ours = {
        "broker": describe.describe_broker(config, dynamic),
        "cluster": describe.describe_cluster_default(dynamic),
        "topic": describe.topics_of(config, dynamic).of({}),
        "topic with overrides": describe.topics_of(config, dynamic).of(TOPIC),
        "group": describe.groups_of(config, dynamic).of({}),
        "group with overrides": describe.groups_of(config, dynamic).of(GROUP),
    }
    for resource, entries in ours.items():
        golden = GOLDEN["static"][resource]
        if stage == "dynamic":
            golden = golden | GOLDEN["dynamic"][resource]
        assert described(entries) == golden, resource


def test_describe_only_what_is_asked_for() -> None:
    nothing = DynamicConfigs()
    of_broker = describe.describe_broker(CONFIG, nothing)
    assert [entry.name for entry in describe.named(of_broker, ["node.id", "no.such"])] == ["node.id"]
    assert [entry.name for entry in describe.named(describe.topics_of(CONFIG, nothing).of({}), [])] == []
    (entry,) = describe.named(describe.groups_of(CONFIG, nothing).of({}), ["share.isolation.level"])
    assert entry.is_default
    assert entry.documentation


def test_secrets_are_not_told() -> None:
    config = load(development_profile("/data") | {"ssl.key.password": "sesame", "my.own.key": "sesame"})
    dynamic = DynamicConfigs({"listener.name.plaintext.ssl.key.password": "sesame"}, {"other.key": "sesame"})
    entries = [*describe.describe_broker(config, dynamic), *describe.describe_cluster_default(dynamic)]
    assert "sesame" not in repr(entries)
    assert {entry.name for entry in entries if entry.is_sensitive} >= {"ssl.key.password", "my.own.key", "other.key"}
    assert loggable("ssl.key.password", "sesame") == "[hidden]"
    assert loggable("my.own.key", "sesame") == "[hidden]"
    assert loggable("num.partitions", "3") == "3"


def test_broker_loggers() -> None:
    (entry,) = describe.named(describe.describe_broker_loggers({"root": "INFO", "pykbroker": "DEBUG"}), ["root"])
    assert (entry.name, entry.value, entry.config_source, entry.documentation) == ("root", "INFO", 6, None)


def test_a_topic_follows_the_strongest_layer() -> None:
    config = with_overrides(CONFIG, {"log.retention.hours": "1", "message.max.bytes": "1000"})
    assert topic_defaults(config)["retention.ms"] == 3_600_000
    dynamic = DynamicConfigs(cluster={"log.retention.ms": "5", "message.max.bytes": "2000"})
    assert resolve_topic(config, dynamic)["retention.ms"] == 5
    dynamic = DynamicConfigs({"message.max.bytes": "3000"}, dynamic.cluster)
    assert resolve_topic(config, dynamic)["max.message.bytes"] == 3000
    assert resolve_topic(config, dynamic, {"max.message.bytes": "4000"})["max.message.bytes"] == 4000
    assert resolve_topic(config, dynamic, {"no.such.key": "1"}).keys() == TOPIC_KEYS.keys()


def test_defaults_of_topics_are_those_of_the_broker() -> None:
    values = resolve_topic(CONFIG)
    for name, key in TOPIC_KEYS.items():
        assert values[name] == key.default, name


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"retention.ms": None}, ["Null value", "retention.ms"]),
        ({"no.such.key": "1"}, ["Unknown topic config name: no.such.key"]),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, ["min.compaction.lag.ms (2)", "(1)"]),
        ({"cleanup.policy": "shrink"}, ["cleanup.policy", "shrink", "compact, delete"]),
        ({"remote.storage.enable": "true"}, ["remote.log.storage.system.enable"]),
    ],
)
def test_topic_overrides_that_are_refused(overrides: dict[str, str | None], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_overrides(overrides, CONFIG)
    for word in words:
        assert word in str(caught.value)


def test_a_broker_value_counts_when_overrides_are_checked() -> None:
    config = with_overrides(CONFIG, {"log.cleaner.min.compaction.lag.ms": "10"})
    validate_topic_overrides({"max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="conflict"):
        validate_topic_overrides({"max.compaction.lag.ms": "5"}, config)


def test_groups_are_kept_within_the_bounds_of_the_broker() -> None:
    assert resolve_group(CONFIG)["consumer.session.timeout.ms"] == 45000
    assert resolve_group(CONFIG, {"consumer.session.timeout.ms": "50000"})["consumer.session.timeout.ms"] == 50000
    tight = with_overrides(CONFIG, {"group.consumer.max.session.timeout.ms": "47000"})
    assert resolve_group(tight, {"consumer.session.timeout.ms": "50000"})["consumer.session.timeout.ms"] == 47000
    with pytest.raises(ConfigError, match=r"group\.consumer\.max\.session\.timeout\.ms \(47000\)"):
        validate_group_overrides(tight, {"consumer.session.timeout.ms": "50000"})
    with pytest.raises(ConfigError, match="Unknown group config name"):
        validate_group_overrides(CONFIG, {"retention.ms": "1"})
    with pytest.raises(ConfigError, match="Null value"):
        validate_group_overrides(CONFIG, {"share.isolation.level": None})


def test_dynamic_layers() -> None:
    dynamic = DynamicConfigs({"max.connections": "5"}, {"max.connections": "9", "num.io.threads": "4"})
    config = dynamic.apply(CONFIG)
    assert (config.int("max.connections"), config.int("num.io.threads")) == (5, 4)
    assert DynamicConfigs().apply(CONFIG) is CONFIG


def test_a_configuration_with_the_same_layers_is_made_once() -> None:
    layers = DynamicConfigs(broker={"log.retention.ms": "1000"}, cluster={"log.retention.bytes": "2"})
    first = apply_valid(CONFIG, layers).config
    assert apply_valid(CONFIG, DynamicConfigs(dict(layers.broker), dict(layers.cluster))).config is first
    swapped = apply_valid(
        CONFIG, DynamicConfigs(broker={"log.retention.bytes": "2"}, cluster={"log.retention.ms": "1000"})
    )
    assert swapped.config is not first
    other = apply_valid(load(development_profile("/other")), layers).config
    assert other.log_dirs == ("/other",)
    assert other.int("log.retention.ms") == 1000 == first.int("log.retention.ms")


def test_a_dynamic_time_beats_a_static_one_in_a_finer_unit() -> None:
    static = with_overrides(CONFIG, {"log.retention.minutes": "1"})
    assert DynamicConfigs(cluster={"log.retention.ms": "7"}).apply(static).millis("log.retention.ms") == 7


@pytest.mark.parametrize(
    ("overrides", "per_broker", "words"),
    [
        ({"num.partitions": "3"}, True, ["Cannot update these configs dynamically", "num.partitions"]),
        ({"pykbroker.max.parked.requests": "3"}, True, ["Cannot update these configs dynamically"]),
        ({"ssl.keystore.location": "a"}, True, ["only per-listener", "ssl.keystore.location"]),
        ({"sasl.jaas.config": "a"}, False, ["broker id must be specified", "sasl.jaas.config"]),
        ({"max.connections": "-1"}, True, ["max.connections", "at least 0"]),
        ({"num.io.threads": "17"}, True, ["num.io.threads=17", "double the current value 8"]),
        ({"log.cleaner.threads": "3"}, False, ["log.cleaner.threads=3", "double the current value 1"]),
        ({"log.cleaner.threads": "0"}, False, ["log.cleaner.threads=0", "at least 1"]),
        (
            {"remote.log.manager.copier.thread.pool.size": "4"},
            False,
            ["remote.log.manager.copier.thread.pool.size=4", "at least half the current value 10"],
        ),
        ({"num.io.threads": "3"}, True, ["num.io.threads=3", "half the current value 8"]),
        ({"log.cleaner.max.compaction.lag.ms": "1", "log.cleaner.min.compaction.lag.ms": "2"}, True, ["(2)"]),
    ],
)
def test_dynamic_changes_that_are_refused(overrides: dict[str, str], per_broker: bool, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_broker_overrides(CONFIG, DynamicConfigs(), overrides, per_broker=per_broker)
    for word in words:
        assert word in str(caught.value)


def test_dynamic_changes_that_are_taken() -> None:
    change = {"num.io.threads": "16", "a.plugin.key": "1", "listener.name.plaintext.max.connections": "1"}
    validate_broker_overrides(CONFIG, DynamicConfigs(), change, per_broker=False)


def test_stored_values_that_no_longer_hold_are_dropped_one_by_one() -> None:
    dynamic = DynamicConfigs(
        {"max.connections": "many", "num.io.threads": "64"}, {"num.partitions": "3", "log.cleaner.threads": "2"}
    )
    kept, config, messages = apply_valid(CONFIG, dynamic)
    assert kept == DynamicConfigs({"num.io.threads": "64"}, {"log.cleaner.threads": "2"})
    assert len(messages) == 2
    assert config.int("num.io.threads") == 64


def test_stored_values_that_hold_together_are_all_kept() -> None:
    """A key may need another one beside it."""
    together = {"log.cleaner.max.compaction.lag.ms": "10", "log.cleaner.min.compaction.lag.ms": "5"}
    kept, config, messages = apply_valid(CONFIG, DynamicConfigs({}, together))
    assert (kept.cluster, messages) == (together, ())
    assert config["log.cleaner.min.compaction.lag.ms"] == 5
    refused = DynamicConfigs({}, together | {"log.cleaner.min.compaction.lag.ms": "11"})
    _, config, messages = apply_valid(CONFIG, refused)
    assert len(messages) == 1
    assert config is CONFIG
