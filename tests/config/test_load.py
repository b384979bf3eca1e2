from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.checks import parse_ip_overrides
from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import ConfigError
from pykbroker.config.listeners import EndPoint, is_wildcard
from pykbroker.config.load import development_profile, load, with_overrides
from pykbroker.config.typed_config import Config, find_key, without_listener

DEVELOPMENT = development_profile("/data")
BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "controller.quorum.voters": "1@controller.example.org:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092",
}


def test_the_development_profile() -> None:
    config = load(DEVELOPMENT)
    assert config.roles == {"broker", "controller"}
    assert config.is_broker
    assert config.is_controller
    assert config.node_id == 1
    assert config.int("broker.id") == 1
    assert config.log_dirs == ("/data",)
    assert config.metadata_log_dir == "/data"
    assert config.warnings == ()
    assert config.listeners.broker == (EndPoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.listeners.controller == (EndPoint("CONTROLLER", "localhost", 9093, "PLAINTEXT"),)
    assert config.listeners.advertised_controller == config.listeners.controller
    assert config.listeners.inter_broker_name == "PLAINTEXT"
    for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert config.int(f"{name}.replication.factor") == 1
    assert config.int("transaction.state.log.min.isr") == 1
    assert config.int("share.coordinator.state.topic.min.isr") == 1
    assert config.int("group.initial.rebalance.delay.ms") == 0


@pytest.mark.parametrize(("port", "controller_port"), [(0, 0), (5000, 5001), (65535, 65534)])
def test_the_development_profile_on_another_port(port: int, controller_port: int) -> None:
    listeners = load(development_profile("/data", port)).listeners
    assert [point.port for point in listeners.all] == [port, controller_port]


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("listener.name.clients.ssl.keystore.password", "ssl.keystore.password"),
        ("listener.name.out.side.ssl.keystore.password", "ssl.keystore.password"),
        ("listener.name.out.ssl.side.max.connections", "max.connections"),
        ("listener.name.out.side.ssl.unheard.of", "side.ssl.unheard.of"),
        ("listener.name.ssl", None),
        ("listener.name.out.", None),
        ("listener.names", None),
        ("listener.name.out\n.ssl.keystore.password", None),
        ("ssl.keystore.password", None),
    ],
)
def test_the_prefix_of_a_listener(name: str, rest: str | None) -> None:
    assert without_listener(name) == rest
    key = find_key(name)
    assert (None if key is None else key.name) == (rest if rest in STATIC_KEYS else find_plain(name))


def find_plain(name: str) -> str | None:
    return name if name in STATIC_KEYS else None


def test_names_that_a_client_makes_up_are_judged_in_linear_time() -> None:
    """A megabyte of dots would otherwise take minutes."""
    assert find_key("listener.name" + "." * (1 << 20)) is None
    assert without_listener("listener.name.x" + ".a" * (1 << 20) + ".ssl.key.password") == "ssl.key.password"


def test_typed_access() -> None:
    config = load(DEVELOPMENT | {"log.cleanup.policy": "compact,delete", "broker.rack": "a"})
    assert config["log.retention.ms"] is None
    assert config.optional_long("log.retention.ms") is None
    assert config.long("message.max.bytes") == 1048588
    assert config.bool("auto.create.topics.enable") is True
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.list("log.cleanup.policy") == ("compact", "delete")
    assert config.str("compression.type") == "producer"
    assert config.optional_str("broker.rack") == "a"
    assert config.optional_list("early.start.listeners") is None
    with pytest.raises(AssertionError):
        config.int("compression.type")
    with pytest.raises(AssertionError):
        config.int("auto.create.topics.enable")
    with pytest.raises(KeyError):
        config["no.such.key"]


def test_what_was_written_is_remembered() -> None:
    config = load(DEVELOPMENT | {"num.partitions": " 3 "})
    assert not config.is_default("num.partitions")
    assert config.raw("num.partitions") == " 3 "
    assert config.int("num.partitions") == 3
    assert config.is_default("num.io.threads")
    assert config.raw("num.io.threads") is None
    assert set(config) == set(STATIC_KEYS)


def test_a_config_does_not_change() -> None:
    config = load(DEVELOPMENT)
    with pytest.raises(AttributeError):
        config.roles = frozenset()
    config.overrides()["num.partitions"] = "9"  # type: ignore[index]  # it is a copy
    assert config.int("num.partitions") == 1


def test_overrides_give_another_config() -> None:
    config = load(DEVELOPMENT)
    other = with_overrides(config, {"num.partitions": "7", "node.id": "5", "group.initial.rebalance.delay.ms": None})
    assert (config.int("num.partitions"), other.int("num.partitions")) == (1, 7)
    assert other.node_id == other.int("broker.id") == 5
    assert other.int("group.initial.rebalance.delay.ms") == 3000
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        with_overrides(config, {"num.partitions": "0"})


def test_unknown_keys_are_warnings() -> None:
    config = load(DEVELOPMENT | {"num.partitoins": "3", "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"})
    assert config.warnings == (
        "Configuration num.partitoins is not known and has no effect: did you mean num.partitions?",
    )
    assert config["listener.name.plaintext.sasl.enabled.mechanisms"] == ("PLAIN",)


@pytest.mark.parametrize(
    ("written", "millis"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finer_unit_counts(written: Mapping[str, str], millis: int) -> None:
    assert load({**DEVELOPMENT, **written}).millis("log.retention.ms") == millis


def test_a_flush_interval_falls_back_to_the_scheduler() -> None:
    assert load(DEVELOPMENT).millis("log.flush.interval.ms") == 2**63 - 1
    assert load(DEVELOPMENT | {"log.flush.scheduler.interval.ms": "5"}).millis("log.flush.interval.ms") == 5


def test_a_broker_of_its_own() -> None:
    config = load(BROKER)
    assert config.voters == {1: ("controller.example.org", 9093)}
    assert not config.is_controller
    assert config.listeners.controller == ()
    assert config.listeners.controller_names == ("CONTROLLER",)
    assert config.listeners.protocols["CONTROLLER"] == "PLAINTEXT"
    assert config.listeners.advertised_broker == (EndPoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)


def test_a_controller_without_a_host_is_advertised_as_the_voters_say() -> None:
    config = load(
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": "1@controller.example.org:19093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://:9093",
        }
    )
    assert config.listeners.advertised_controller == (
        EndPoint("CONTROLLER", "controller.example.org", 19093, "PLAINTEXT"),
    )


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"])
def test_a_controller_on_every_address_is_advertised_under_the_name_of_the_machine(host: str) -> None:
    dynamic = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "controller.example.org:9093",
        "controller.listener.names": "CONTROLLER,OTHER",
        "listeners": f"CONTROLLER://{host}:9093,OTHER://{host}:9094",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT",
    }
    unnamed = EndPoint("CONTROLLER", "", 9093, "PLAINTEXT"), EndPoint("OTHER", "", 9094, "PLAINTEXT")
    assert load(dynamic).listeners.advertised_controller == unnamed
    written = load(dynamic | {"advertised.listeners": "OTHER://here:1"}).listeners
    assert written.advertised_controller == (unnamed[0], EndPoint("OTHER", "here", 1, "PLAINTEXT"))
    # The voters' address counts for the first listener, if none is set for it.
    static = dynamic | {"controller.quorum.voters": "1@voter:2"}
    said = EndPoint("CONTROLLER", "voter", 2, "PLAINTEXT")
    assert load(static).listeners.advertised_controller == (said, unnamed[1])
    explicit = static | {"advertised.listeners": "CONTROLLER://:9093"}
    assert load(explicit).listeners.advertised_controller == unnamed


@pytest.mark.parametrize("key", ["listeners", "advertised.listeners"])
def test_a_broker_on_every_ipv6_address_is_advertised_under_the_name_of_the_machine(key: str) -> None:
    config = load(BROKER | {"listeners": "PLAINTEXT://h:9092", key: "PLAINTEXT://[::]:9092"})
    assert config.listeners.advertised_broker == (EndPoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)


@pytest.mark.parametrize(
    ("host", "wildcard"),
    [("", True), ("0.0.0.0", True), ("::", True), ("0::0", True), ("::1", False), ("10.0.0.0", False), ("h", False)],
)
def test_hosts_that_stand_for_every_address(host: str, wildcard: bool) -> None:
    assert is_wildcard(host) is wildcard


def test_the_development_profile_names_its_hosts() -> None:
    listeners = load(development_profile("/data")).listeners
    assert {point.host for point in (*listeners.advertised_broker, *listeners.advertised_controller)} == {"localhost"}


def test_end_points_print_as_they_are_written() -> None:
    assert str(EndPoint("PLAINTEXT", "::1", 9092, "PLAINTEXT")) == "PLAINTEXT://[::1]:9092"
    assert str(EndPoint("PLAINTEXT", "", 9092, "PLAINTEXT")) == "PLAINTEXT://:9092"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num.partitions": "0"}, ["num.partitions", "0", "at least 1"]),
        ({"num.partitions": "many"}, ["num.partitions", "many", "INT"]),
        ({"compression.type": "rar"}, ["compression.type", "rar", "gzip", "zstd"]),
        ({"log.cleanup.policy": "shrink"}, ["log.cleanup.policy", "shrink", "compact, delete"]),
        ({"node.id": ""}, ["node.id", "INT"]),
        ({"broker.id": "2"}, ["node.id", "broker.id", "1", "2"]),
        ({"listeners": "PLAINTEXT://a:1,CONTROLLER://b:1x"}, ["listeners", "CONTROLLER://b:1x", "<host>:<port>"]),
        ({"listeners": "EXTERNAL://a:1,CONTROLLER://b:2"}, ["EXTERNAL", "listener.security.protocol.map"]),
        ({"listeners": "PLAINTEXT://a:70000,CONTROLLER://b:2"}, ["70000", "65535"]),
        ({"inter.broker.listener.name": "INSIDE"}, ["inter.broker.listener.name", "INSIDE", "PLAINTEXT"]),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, ["advertised.listeners", "0.0.0.0"]),
        (
            {"advertised.listeners": "PLAINTEXT://h:1,CONTROLLER://0.0.0.0:2"},
            ["advertised.listeners", "CONTROLLER", "0.0.0.0"],
        ),
        ({"controller.quorum.voters": "9@localhost:1"}, ["controller.quorum.voters", "9@localhost:1", "node id 1"]),
        ({"queued.max.request.bytes": "5"}, ["queued.max.request.bytes", "5", "socket.request.max.bytes"]),
        ({"group.consumer.assignors": "mine"}, ["group.consumer.assignors", "mine", "uniform", "range"]),
        ({"offsets.topic.compression.codec": "9"}, ["offsets.topic.compression.codec", "9", "4 (zstd)"]),
        ({"max.connections.per.ip.overrides": "a"}, ["max.connections.per.ip.overrides", "<address>:<connections>"]),
        ({"log.retention.minutes": "0"}, ["log.retention.minutes", "0", "-1"]),
    ],
)
def test_a_refusal_names_key_value_and_what_is_allowed(change: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(DEVELOPMENT | change)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["process.roles", "node.id", "controller.listener.names"])
def test_a_required_key_is_missed(name: str) -> None:
    properties = {key: value for key, value in DEVELOPMENT.items() if key != name}
    with pytest.raises(ConfigError, match="Missing required configuration"):
        load(properties)


def test_limits_for_single_addresses() -> None:
    config = load(DEVELOPMENT | {"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:6,localhost:7"})
    assert parse_ip_overrides(config.str("max.connections.per.ip.overrides")) == {
        "127.0.0.1": 5,
        "::1": 6,
        "localhost": 7,
    }


def test_a_slow_heartbeat_is_warned_about() -> None:
    config = load(DEVELOPMENT | {"broker.heartbeat.interval.ms": "5000"})
    assert any("broker.session.timeout.ms" in warning for warning in config.warnings)


@given(st.dictionaries(st.sampled_from(sorted(STATIC_KEYS)), st.text(max_size=12), max_size=4))
def test_any_file_is_a_config_or_a_config_error(change: dict[str, str]) -> None:
    try:
        config = load(DEVELOPMENT | change)
    except ConfigError:
        return
    assert isinstance(config, Config)
    for name in STATIC_KEYS:
        config[name]
