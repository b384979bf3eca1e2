"""The properties file of a container: the keys that are kept or dropped, and a start with each image's environment."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.properties import parse
from pykbroker.config.protection import refuse
from pykbroker.config.typed_config import Config
from pykbroker.tools.container.mounts import Mount
from pykbroker.tools.container.server_properties import ServerProperties, server_properties
from pykbroker.tools.container.single_node import on_all_addresses, ports_of
from testkit.image_environments import DEFAULTS, ENVIRONMENTS


def compose(variables: Mapping[str, str], mounted: str | None = None, *volumes: str) -> ServerProperties:
    mounts = [Mount(point, "/volumes/data/_data", "ext4", False) for point in volumes]
    return server_properties(variables, mounted=mounted, defaults=DEFAULTS, hostname="4b1d0c", mounts=mounts)


def config_of(variables: Mapping[str, str]) -> Config:
    properties = compose(variables).properties
    refuse(properties)
    return load(properties)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_node_can_start_with_it(name: str) -> None:
    config = config_of(ENVIRONMENTS[name])
    assert config.listeners.controller_names == ("CONTROLLER",)
    assert all(f"{point.listener_name}" != "CONTROLLER" for point in config.listeners.advertised_broker)


@pytest.mark.parametrize(
    ("name", "listeners", "advertised"),
    [
        ("nothing", {"PLAINTEXT": ("", 9092)}, {"PLAINTEXT": ("localhost", 9092)}),
        (
            "testcontainers-python, ZooKeeper mode",
            {"PLAINTEXT": ("0.0.0.0", 9093), "BROKER": ("0.0.0.0", 9092)},
            {"PLAINTEXT": ("localhost", 32768), "BROKER": ("172.17.0.2", 9092)},
        ),
        (
            "testcontainers-dotnet, ZooKeeper mode",
            {"PLAINTEXT": ("", 9092), "BROKER": ("", 9093)},
            {"PLAINTEXT": ("localhost", 32768), "BROKER": ("172.17.0.2", 9093)},
        ),
        (
            "testcontainers-dotnet, KRaft",
            {"PLAINTEXT": ("", 9092), "BROKER": ("", 9093)},
            {"PLAINTEXT": ("localhost", 32768), "BROKER": ("172.17.0.2", 9093)},
        ),
        (
            "compose, a broker beside controllers",
            {"PLAINTEXT": ("0.0.0.0", 19092), "PLAINTEXT_HOST": ("0.0.0.0", 29092)},
            {"PLAINTEXT": ("kafka-1", 19092), "PLAINTEXT_HOST": ("localhost", 29092)},
        ),
        (
            "ZooKeeper-style compose",
            {"PLAINTEXT": ("0.0.0.0", 9092), "PLAINTEXT_HOST": ("0.0.0.0", 29092)},
            {"PLAINTEXT": ("kafka", 9092), "PLAINTEXT_HOST": ("localhost", 29092)},
        ),
        ("one key that somebody sets", {"PLAINTEXT": ("", 9092)}, {"PLAINTEXT": ("localhost", 9092)}),
    ],
)
def test_where_clients_are_served(
    name: str, listeners: dict[str, tuple[str, int]], advertised: dict[str, tuple[str, int]]
) -> None:
    found = config_of(ENVIRONMENTS[name]).listeners
    assert {point.listener_name: (point.host, point.port) for point in found.broker} == listeners
    assert {point.listener_name: (point.host, point.port) for point in found.advertised_broker} == advertised


def test_without_process_roles_a_node_has_a_controller_of_its_own() -> None:
    composed = compose(ENVIRONMENTS["testcontainers-python, ZooKeeper mode"])
    config = load(composed.properties)
    assert config.roles == {"broker", "controller"}
    assert config.node_id == 1
    # Clients use 9092 and 9093.
    assert [(point.host, point.port) for point in config.listeners.controller] == [("localhost", 9094)]
    assert config.list("controller.quorum.bootstrap.servers") == ("localhost:9094",)
    assert config.int("transaction.state.log.replication.factor") == 1
    (warning,) = composed.warnings
    assert "KAFKA_ZOOKEEPER_CONNECT has no effect" in warning
    assert load(compose(ENVIRONMENTS["ZooKeeper-style compose"]).properties).node_id == 7
    assert load(compose({"KAFKA_BROKER_ID": "-1"}).properties).node_id == 1


def test_packaged_defaults_are_kept_or_dropped() -> None:
    assert compose({}).properties["inter.broker.listener.name"] == "PLAINTEXT"
    assert compose({"KAFKA_PORT": "tcp://1:2"}).properties["inter.broker.listener.name"] == "PLAINTEXT"
    assert compose({"KAFKA_CREATE_TOPICS": "t"}).properties["inter.broker.listener.name"] == "PLAINTEXT"
    assert "inter.broker.listener.name" not in compose({"KAFKA_NUM_PARTITIONS": "2"}).properties
    assert "inter.broker.listener.name" not in compose({}, "process.roles=broker").properties


def test_variables_win_over_a_mounted_file() -> None:
    mounted = "process.roles=broker\nnode.id=4\nnum.partitions=2\nlog.dirs=/data"
    composed = compose({"KAFKA_NUM_PARTITIONS": "5"}, mounted)
    assert composed.properties == {
        "process.roles": "broker",
        "node.id": "4",
        "num.partitions": "5",
        "log.dirs": "/data",
    }
    assert composed.text.startswith(mounted)


def test_a_value_means_what_it_means_in_a_properties_file() -> None:
    assert compose({"KAFKA_BROKER_RACK": "a\\\n   b"}).properties["broker.rack"] == "ab"


@given(
    st.dictionaries(st.sampled_from(["KAFKA_NUM_PARTITIONS", "KAFKA_BROKER_RACK", "KAFKA_NODE_ID"]), st.just("7")),
    st.sampled_from(sorted(ENVIRONMENTS)),
)
def test_what_is_written_is_what_is_used(variables: dict[str, str], name: str) -> None:
    composed = compose({**ENVIRONMENTS[name], **variables})
    assert parse(composed.text) == composed.properties
    if "KAFKA_NUM_PARTITIONS" in variables:
        assert composed.properties["num.partitions"] == "7"


def test_data_go_where_somebody_mounted_a_volume() -> None:
    assert compose({}).properties["log.dirs"] == "/var/lib/kafka/data"
    assert compose({}, None, "/tmp/kafka-logs").properties["log.dirs"] == "/tmp/kafka-logs"
    assert compose({"KAFKA_LOG_DIRS": "/d"}, None, "/tmp/kafka-logs").properties["log.dirs"] == "/d"
    assert "log.dirs" not in compose({"KAFKA_LOG_DIR": "/d"}).properties


def test_a_controller_that_advertises_stops() -> None:
    with pytest.raises(ConfigError, match="KAFKA_ADVERTISED_LISTENERS is for brokers"):
        compose({"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:9092"})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:1"}, "PLAINTEXT://kafka:1,CONTROLLER://4b1d0c:9093"),
        ({}, "PLAINTEXT://4b1d0c:9092,CONTROLLER://4b1d0c:9093"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093"}, "PLAINTEXT://4b1d0c:9092"),
        ({"KAFKA_PROCESS_ROLES": "controller", "KAFKA_LISTENERS": "CONTROLLER://:9093"}, "CONTROLLER://4b1d0c:9093"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://kafka:9092,CONTROLLER://kafka:9093"}, None),
        (
            {"KAFKA_LISTENERS": "PLAINTEXT://[::]:9092,CONTROLLER://0.0.0.0:9093"},
            "PLAINTEXT://4b1d0c:9092,CONTROLLER://4b1d0c:9093",
        ),
        (
            {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_LISTENERS": "CONTROLLER://[::]:9093"},
            "CONTROLLER://4b1d0c:9093",
        ),
    ],
)
def test_a_listener_without_a_host_is_advertised_under_the_name_of_the_container(
    more: dict[str, str], expected: str | None
) -> None:
    variables = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        **more,
    }
    if "KAFKA_CONTROLLER_QUORUM_VOTERS" not in more:
        variables["KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS"] = "kafka:9093"
    composed = compose(variables)
    assert composed.properties.get("advertised.listeners") == expected
    load(composed.properties)


def test_protection_stops_with_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^KAFKA_TLS_TYPE: this image gets no protection in this way"):
        compose({"KAFKA_TLS_TYPE": "JKS"})
    # As in Apache Kafka, the map has no CONTROLLER by itself with such a listener.
    with pytest.raises(ConfigError, match="No security protocol defined for listener CONTROLLER"):
        config_of({**SECURED, "KAFKA_LISTENERS": "SASL_SSL://:9092,CONTROLLER://:29093",
                   "KAFKA_ADVERTISED_LISTENERS": "SASL_SSL://localhost:9092"})  # fmt: skip


@pytest.mark.parametrize(
    ("advertised", "listeners"),
    [
        ("PLAINTEXT://kafka:9092", "PLAINTEXT://0.0.0.0:9092"),
        ("A://x.y:1,B://[::1]:2", "A://0.0.0.0:1,B://0.0.0.0:2"),
        ("A://:1", "A://0.0.0.0:1"),
    ],
)
def test_listeners_from_what_is_advertised(advertised: str, listeners: str) -> None:
    assert on_all_addresses(advertised) == listeners
    assert ports_of(advertised) == ports_of(listeners)


SECURED = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:29093",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_LISTENERS": "SECURE://:9092,PLAINTEXT://:19092,CONTROLLER://:29093",
    "KAFKA_ADVERTISED_LISTENERS": "SECURE://localhost:9092,PLAINTEXT://broker:19092",
}


def test_passwords_come_from_files() -> None:
    secrets = {"/etc/kafka/secrets/keystore": " back\\slash =secret \n", "/etc/kafka/secrets/key": "key-secret\r\n"}
    more = {"KAFKA_SSL_KEYSTORE_FILENAME": "node.p12", "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore",
            "KAFKA_SSL_KEY_CREDENTIALS": "key", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":
            "SECURE:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}  # fmt: skip

    def composed() -> ServerProperties:
        return server_properties(
            {**SECURED, **more}, mounted=None, defaults=DEFAULTS, read_credentials=lambda path: secrets[path]
        )

    properties = composed().properties
    refuse(properties)
    config = load(properties)
    assert properties["ssl.keystore.location"] == "/etc/kafka/secrets/node.p12"
    assert properties["ssl.keystore.password"] == " back\\slash =secret "
    assert config["ssl.key.password"] == "key-secret"
    for wrong in ("", "two\nlines", "two\rssl.client.auth=none"):
        secrets["/etc/kafka/secrets/key"] = wrong
        with pytest.raises(ConfigError, match=r"^/etc/kafka/secrets/key with ssl.key.password must have one line$"):
            composed()


def test_a_password_that_cannot_be_read() -> None:
    def read(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(ConfigError, match=r"^/etc/kafka/secrets/key with ssl.key.password cannot be read: No such"):
        server_properties(
            {**SECURED, "KAFKA_SSL_KEY_CREDENTIALS": "key"}, mounted=None, defaults=DEFAULTS, read_credentials=read
        )


def test_scram_needs_no_jaas_line() -> None:
    given = {**SECURED, "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512,PLAIN", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":
             "SECURE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}  # fmt: skip
    key = "listener.name.secure.scram-sha-512.sasl.jaas.config"
    properties = compose(given).properties
    assert properties[key] == "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    # PLAIN has its users there.
    assert [name for name in properties if "jaas" in name] == [key]
    own = compose({**given, "KAFKA_LISTENER_NAME_SECURE_SCRAM___SHA___512_SASL_JAAS_CONFIG": "mine;"}).properties
    assert own[key] == "mine;"
    with_file = {**given, "KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/kafka/jaas.conf"}
    assert not [name for name in compose(with_file).properties if "jaas" in name]
