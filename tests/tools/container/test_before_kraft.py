"""Environments from before KRaft: one address in parts, authorizers of ZooKeeper, and a map that is not set."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pykbroker.config.authorization import authorizer_settings
from pykbroker.config.kinds import ConfigError
from pykbroker.config.start_up import start_config
from pykbroker.config.typed_config import Config
from pykbroker.tools.container.server_properties import ServerProperties, server_properties
from testkit.image_environments import DEFAULTS, ENVIRONMENTS

OLD = {"KAFKA_BROKER_ID": "1", "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"}
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def compose(variables: Mapping[str, str]) -> ServerProperties:
    return server_properties(variables, mounted=None, defaults=DEFAULTS, hostname="4b1d0c")


def config_of(variables: Mapping[str, str]) -> Config:
    return start_config(compose(variables).properties)


@pytest.mark.parametrize(
    ("more", "listeners", "advertised"),
    [
        ({"ADVERTISED_HOST_NAME": "kafka"}, "PLAINTEXT://:9092", "PLAINTEXT://kafka:9092"),
        ({"ADVERTISED_HOST_NAME": "kafka", "PORT": "9094"}, "PLAINTEXT://:9094", "PLAINTEXT://kafka:9094"),
        (
            {"ADVERTISED_HOST_NAME": "kafka", "ADVERTISED_PORT": "29092", "PORT": "9094"},
            "PLAINTEXT://:9094",
            "PLAINTEXT://kafka:29092",
        ),
        ({"ADVERTISED_PORT": "29092"}, "PLAINTEXT://:9092", "PLAINTEXT://localhost:29092"),
        ({"HOST_NAME": "10.0.0.1"}, "PLAINTEXT://10.0.0.1:9092", "PLAINTEXT://10.0.0.1:9092"),
        ({"ADVERTISED_HOST_NAME": "fd00::1"}, "PLAINTEXT://:9092", "PLAINTEXT://[fd00::1]:9092"),
        (
            {"LISTENERS": "INSIDE://:9095", "LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT",
             "INTER_BROKER_LISTENER_NAME": "INSIDE", "ADVERTISED_HOST_NAME": "kafka"},
            "INSIDE://:9095",
            "INSIDE://kafka:9095",
        ),
        # Advertised listeners override it, as in Apache Kafka.
        (
            {"ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092", "ADVERTISED_HOST_NAME": "kafka"},
            "PLAINTEXT://0.0.0.0:9092",
            "PLAINTEXT://broker:9092",
        ),
    ],
)  # fmt: skip
def test_one_address_in_parts_is_advertised(more: dict[str, str], listeners: str, advertised: str) -> None:
    config = config_of({**OLD, **{f"KAFKA_{name}": text for name, text in more.items()}})
    assert [str(point) for point in config.listeners.broker] == [listeners]
    assert [str(point) for point in config.listeners.advertised_broker] == [advertised]


def test_the_shortest_environment_of_its_time_advertises_its_host() -> None:
    config = config_of(ENVIRONMENTS["wurstmeister, one address in parts"])
    assert [str(point) for point in config.listeners.advertised_broker] == ["PLAINTEXT://192.168.99.100:9092"]


def test_one_address_for_several_listeners_stops_the_start() -> None:
    several = {"KAFKA_LISTENERS": "PLAINTEXT://:9092,SSL://:9093", "KAFKA_ADVERTISED_HOST_NAME": "kafka"}
    with pytest.raises(ConfigError, match="are the address of one listener, and there are 2: set KAFKA_ADVERTISED_LI"):
        compose({**OLD, **several})


def test_parts_of_an_address_without_effect_are_named() -> None:
    with_roles = {**ENVIRONMENTS["testcontainers-java"], "KAFKA_ADVERTISED_HOST_NAME": "kafka", "KAFKA_PORT": "9092"}
    (warning,) = compose(with_roles).warnings
    assert warning.endswith("have no effect: KAFKA_ADVERTISED_HOST_NAME, KAFKA_PORT")


@pytest.mark.parametrize("name", ["kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"])
def test_an_authorizer_of_zookeeper_becomes_the_standard_one(name: str) -> None:
    variables = {**ENVIRONMENTS["ZooKeeper-style, ACLs"], "KAFKA_AUTHORIZER_CLASS_NAME": name}
    composed = compose(variables)
    settings = authorizer_settings(config_of(variables))
    assert settings is not None
    assert settings.super_users == ("User:admin",)
    assert composed.properties["authorizer.class.name"] == STANDARD
    assert [name in warning and "begins without ACLs" in warning for warning in composed.warnings].count(True) == 1
    assert any("KAFKA_AUTHORIZER_ZOOKEEPER_URL" in warning for warning in composed.warnings)


def test_an_authorizer_of_zookeeper_beside_roles_stops_the_start() -> None:
    name = {"KAFKA_AUTHORIZER_CLASS_NAME": "kafka.security.authorizer.AclAuthorizer"}
    with pytest.raises(ConfigError, match="AclAuthorizer"):
        config_of({**ENVIRONMENTS["testcontainers-java"], **name})


def test_a_listener_with_tls_needs_no_map() -> None:
    config = config_of(ENVIRONMENTS["ZooKeeper-style, TLS without a map"])
    protocols = {point.listener_name: point.security_protocol for point in config.listeners.all}
    assert protocols == {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "CONTROLLER": "PLAINTEXT"}
