"""The node that begins a quorum, and the errors of directories that cannot be used."""

from __future__ import annotations

import pytest

from pykbroker.config.load import load
from pykbroker.config.typed_config import Config
from pykbroker.tools.container.data_directories import DirectorySeen, FirstVoters, complaint, first_voters
from pykbroker.tools.container.server_properties import server_properties
from testkit.image_environments import DEFAULTS, ENVIRONMENTS


def config_of(**more: str) -> Config:
    variables = {"KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_NODE_ID": "1"}
    variables |= {"KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    variables |= {
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://here:9092",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    }
    return load(server_properties({**variables, **more}, mounted=None, defaults=DEFAULTS).properties)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost:9093", FirstVoters.STANDALONE),
        ("host-1:9093", FirstVoters.STANDALONE),
        ("host-2:9093", FirstVoters.JOINS),
        ("localhost:9094", FirstVoters.JOINS),
        ("host-1:9093,host-2:9093", FirstVoters.JOINS),
    ],
)
def test_a_quorum_begins_where_all_bootstrap_servers_are_the_node_itself(servers: str, expected: FirstVoters) -> None:
    config = config_of(KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS=servers)
    assert first_voters(config, {"host-1"}) is expected


def test_configured_voters_and_brokers_begin_nothing() -> None:
    assert first_voters(config_of(KAFKA_CONTROLLER_QUORUM_VOTERS="1@a:9093"), set()) is FirstVoters.ELSEWHERE
    broker = server_properties(
        ENVIRONMENTS["compose, a broker beside controllers"], mounted=None, defaults=DEFAULTS
    ).properties
    assert first_voters(load(broker), set()) is FirstVoters.ELSEWHERE
    nothing = load(server_properties({}, mounted=None, defaults=DEFAULTS).properties)
    assert first_voters(nothing, set()) is FirstVoters.STANDALONE


def seen(**facts: object) -> DirectorySeen:
    usual: dict[str, object] = {"path": "/data", "owner": 1000, "writable": True, "read_only": False}
    return DirectorySeen(**{**usual, **facts})  # type: ignore[arg-type]


def test_what_is_said_of_a_directory() -> None:
    assert complaint("/data", seen(), 1000) is None
    assert complaint("/data", seen(writable=False, read_only=True), 1000) == (
        "/data is read-only: mount the volume for reading and writing"
    )
    assert complaint("/data", seen(writable=False, owner=0), 1000) == (
        "/data belongs to user 0 and is not writable for user 1000: chown -R 1000 /data on the volume, or run the "
        "container as its owner (--user 0)"
    )
    assert complaint("/data", seen(writable=False), 1000) == (
        "/data is not writable for user 1000, its owner: chmod -R u+rwX /data"
    )
    foreign = complaint("/data", seen(foreign=("/data/meta.properties", 999)), 1000)
    assert foreign is not None
    assert foreign.startswith("/data/meta.properties belongs to user 999")
