"""Compose files: the content of docker/compose.yaml, for any number of brokers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.protection import refuse
from pykbroker.tools.container.server_properties import server_properties
from pykbroker.tools.manifests.compose import ComposeCluster, compose
from pykbroker.tools.manifests.secured import Security
from testkit.image_environments import DEFAULTS

SHIPPED = Path(__file__).parents[3] / "docker" / "compose.yaml"


def services(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


def environment(cluster: ComposeCluster, number: int) -> dict[str, str]:
    given = services(compose(cluster))[f"node-{number}"]["environment"]
    return {name: str(text) for name, text in given.items()}


def test_three_brokers_are_those_of_the_file_in_docker() -> None:
    shipped = services(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", SHIPPED.read_text(encoding="utf-8")))
    del shipped["node-4"]
    ours = services(compose(ComposeCluster(image="pykbroker:latest")))
    for nodes in (shipped, ours):
        for node in nodes.values():
            del node["environment"]["CLUSTER_ID"]
            node["environment"].pop("KAFKA_CREATE_TOPICS", None)
    assert ours == shipped


@pytest.mark.parametrize(("brokers", "voters"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_the_image_makes_a_node_of_each_environment(brokers: int, voters: int) -> None:
    cluster = ComposeCluster(image="i", brokers=brokers, port=29092, host="machine.example", bind="0.0.0.0")
    assert sorted(services(compose(cluster))) == [f"node-{number}" for number in range(1, brokers + 1)]
    ids = set()
    for number in range(1, brokers + 1):
        composed = server_properties(
            environment(cluster, number), mounted=None, defaults=DEFAULTS, hostname=f"node-{number}"
        )
        assert composed.warnings == ()
        refuse(composed.properties)
        config = load(composed.properties)
        ids.add(composed.cluster_id)
        assert (config.node_id, config.is_broker, config.is_controller) == (number, True, number <= voters)
        assert sorted(config.voters) == list(range(1, voters + 1))
        advertised = {point.listener_name: (point.host, point.port) for point in config.listeners.advertised_broker}
        port = 29091 + number
        assert advertised == {"PLAINTEXT": (f"node-{number}", 19092), "HOST": ("machine.example", port)}
        node = services(compose(cluster))[f"node-{number}"]
        assert node["ports"] == [f"0.0.0.0:{port}:9092"]
        assert config.int("offsets.topic.replication.factor") == min(3, brokers)
    assert len(ids) == 1
    volumes = yaml.safe_load(compose(cluster))["volumes"]
    assert sorted(volumes) == [f"data-{number}" for number in range(1, brokers + 1)]


def test_metrics_are_in_the_network_and_on_this_machine_if_asked() -> None:
    given = environment(ComposeCluster(image="i"), 2)
    assert given["KAFKA_PYKBROKER_METRICS_LISTENER"] == "0.0.0.0:9404"
    assert services(compose(ComposeCluster(image="i")))["node-2"]["ports"] == ["127.0.0.1:9093:9092"]
    published = services(compose(ComposeCluster(image="i", metrics_port=9404)))
    assert published["node-2"]["ports"] == ["127.0.0.1:9093:9092", "127.0.0.1:9405:9404"]


@pytest.mark.parametrize("security", [Security.SSL, Security.SASL_SSL])
@pytest.mark.parametrize("brokers", [1, 4])
def test_a_secured_file_leaves_no_listener_without_tls(brokers: int, security: Security) -> None:
    cluster = ComposeCluster(image="i", brokers=brokers, security=security)
    for number in range(1, brokers + 1):
        composed = server_properties(
            environment(cluster, number), mounted=None, defaults=DEFAULTS, hostname=f"node-{number}"
        )
        assert composed.warnings == ()
        refuse(composed.properties)
        config = load(composed.properties)
        listeners = [point.listener_name for point in (*config.listeners.controller, *config.listeners.broker)]
        assert listeners == [*(["CONTROLLER"] if number < 4 else []), "NODES", "CLIENTS", "HOST"]
        protocols = dict(pair.split(":") for pair in composed.properties["listener.security.protocol.map"].split(","))
        assert protocols == {"CONTROLLER": "SSL", "NODES": "SSL", "CLIENTS": security.name, "HOST": security.name}
        shows_certificate = {"controller", "nodes"} | ({"clients", "host"} if security is Security.SSL else set())
        for name in ("controller", "nodes", "clients", "host"):
            asked = composed.properties.get(f"listener.name.{name}.ssl.client.auth")
            assert asked == ("required" if name in shows_certificate else None)
        assert config.str("inter.broker.listener.name") == "NODES"
        assert composed.properties["authorizer.class.name"].endswith(".StandardAuthorizer")


def test_secrets_are_files_that_the_containers_get() -> None:
    text = compose(ComposeCluster(image="i", security=Security.SASL_SSL, users=("alice", "admin")))
    found = yaml.safe_load(text)
    assert found["secrets"] == {
        name: {"file": f"./secrets/{name}"}
        for name in ("node.pem", "authority.pem", "admin.password", "alice.password")
    }
    nodes = {name: service for name, service in found["services"].items() if name.startswith("node-")}
    assert len(nodes) == 3
    for service in (*nodes.values(), found["services"]["users"]):
        # Compose keeps the owner of a file, so the container runs as this user.
        assert service["user"] == "${PYKBROKER_UID:-1000}:0"
        assert {"node.pem", "authority.pem"} <= set(service["secrets"])
    assert all(service["secrets"] == ["node.pem", "authority.pem"] for service in nodes.values())
    for line in ("#   pykbroker tls create secrets", "#   for user in admin alice; do"):
        assert line in text, "the file says what a person makes first"
    only_tls = yaml.safe_load(compose(ComposeCluster(image="i", security=Security.SSL)))
    assert set(only_tls["secrets"]) == {"node.pem", "authority.pem"}
    assert "users" not in only_tls["services"]
    assert "secrets" not in yaml.safe_load(compose(ComposeCluster(image="i")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"users": ("alice",)},
        {"users": ("a b",), "security": Security.SASL_SSL},
        {"metrics_port": 65535},
        {"metrics_port": 9090},
        {"brokers": 0},
        {"brokers": 100},
        {"port": 0},
        {"port": 65534},
        {"host": "a b"},
        {"host": ""},
        {"bind": "all"},
        {"image": "a: b"},
        {"cluster_id": "-"},
    ],
)
def test_a_value_that_cannot_stand_there_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        ComposeCluster(**{"image": "i", **wrong})
    assert "\n" not in str(refused.value)
