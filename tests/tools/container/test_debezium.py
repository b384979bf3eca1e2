"""Variables of Debezium's image, which have no prefix."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pykbroker.config.load import load
from pykbroker.config.typed_config import Config
from pykbroker.tools.container.debezium import with_prefixes
from pykbroker.tools.container.server_properties import server_properties
from testkit.image_environments import DEFAULTS, ENVIRONMENTS


def config_of(variables: Mapping[str, str]) -> Config:
    prefixed, line = with_prefixes(variables, "4b1d0c")
    assert line is not None
    return load(server_properties(prefixed, mounted=None, defaults=DEFAULTS, hostname="4b1d0c").properties)


@pytest.mark.parametrize(
    ("variables", "node_id", "advertised"),
    [
        ({"ZOOKEEPER_CONNECT": "zookeeper:2181"}, 1, "PLAINTEXT://4b1d0c:9092"),
        ({"ZOOKEEPER_CONNECT": "zookeeper:2181", "BROKER_ID": "4", "HOST_NAME": "kafka"}, 4, "PLAINTEXT://kafka:9092"),
        (
            {"BROKER_ID": "4", "ADVERTISED_HOST_NAME": "10.0.0.1", "ADVERTISED_PORT": "29092"},
            4,
            "PLAINTEXT://10.0.0.1:29092",
        ),
        (
            {"ZOOKEEPER_CONNECT": "z:2181", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://k:1", "KAFKA_BROKER_ID": "7"},
            7,
            "PLAINTEXT://k:1",
        ),
    ],
)
def test_its_zookeeper_mode_is_a_cluster_of_one(variables: dict[str, str], node_id: int, advertised: str) -> None:
    config = config_of(variables)
    assert config.roles == {"broker", "controller"}
    assert config.node_id == node_id
    assert [str(point) for point in config.listeners.advertised_broker] == [advertised]


@pytest.mark.parametrize(
    ("role", "roles", "listeners"),
    [
        ("combined", {"broker", "controller"}, ["PLAINTEXT://:9092", "CONTROLLER://:9093"]),
        ("broker", {"broker"}, ["PLAINTEXT://:9092"]),
        ("controller", {"controller"}, ["CONTROLLER://:9093"]),
    ],
)
def test_a_role_has_its_listeners(role: str, roles: set[str], listeners: list[str]) -> None:
    voters = "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"
    node_id = "4" if role == "broker" else "2"
    config = config_of({"NODE_ROLE": role, "NODE_ID": node_id, "KAFKA_CONTROLLER_QUORUM_VOTERS": voters})
    assert config.roles == roles
    assert config.node_id == int(node_id)
    assert sorted(str(point) for point in config.listeners.all) == sorted(listeners)
    assert len(config.voters) == 3
    if "broker" in roles:
        assert [str(point) for point in config.listeners.advertised_broker] == ["PLAINTEXT://4b1d0c:9092"]


def test_a_combined_node_is_its_own_voter_and_makes_topics() -> None:
    config = config_of({"NODE_ROLE": "combined", "HOST_NAME": "kafka", "CREATE_TOPICS": "orders:3:1"})
    assert [str(point) for point in config.listeners.controller] == ["CONTROLLER://kafka:9093"]
    assert config["controller.quorum.voters"] == ("1@kafka:9093",)
    assert config["pykbroker.create.topics"] == ("orders:3:1",)


@pytest.mark.parametrize(
    "variables",
    [
        {"HOST_NAME": "here", "PORT": "80", "LOG_LEVEL": "DEBUG"},
        {"NODE_ID": "1", "BROKER_ID": " "},
        {"ZOOKEEPER_CONNECT": ""},
        *ENVIRONMENTS.values(),
    ],
)
def test_variables_that_may_be_anythings_are_left_alone(variables: Mapping[str, str]) -> None:
    assert with_prefixes(variables, "4b1d0c") == (variables, None)


def test_the_line_names_what_was_read() -> None:
    _, line = with_prefixes({"ZOOKEEPER_CONNECT": "z:1", "BROKER_ID": "1", "EDITOR": "vi"}, "4b1d0c")
    assert line == "BROKER_ID, ZOOKEEPER_CONNECT are read as Debezium's image reads them"
