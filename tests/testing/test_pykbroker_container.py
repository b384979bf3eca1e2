"""The environment that PykbrokerContainer gives to its container, without Docker. compat_tests/container/testcontainers
tests it with Docker."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.testing.pykbroker_container import variables
from pykbroker.tools.container.server_properties import server_properties
from testkit.image_environments import DEFAULTS
from testkit.nodes.processes import environment


def test_a_node_can_start_with_its_environment() -> None:
    given = variables({"num.partitions": 3, "auto.create.topics.enable": False, "offsets.topic.num.partitions": 5})
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,NETWORK://172.17.0.2:19092"}
    composed = server_properties({**given, **advertised}, mounted=None, defaults=DEFAULTS, hostname="4b1d0c")
    assert not composed.warnings
    config = load(composed.properties)
    assert config.roles == {"broker", "controller"}
    assert (config.int("num.partitions"), config.bool("auto.create.topics.enable")) == (3, False)
    assert config.int("offsets.topic.num.partitions") == 5
    assert config.int("group.initial.rebalance.delay.ms") == 0
    assert {point.listener_name: point.port for point in config.listeners.broker} == {
        "PLAINTEXT": 9092,
        "NETWORK": 19092,
    }


def test_a_default_may_be_replaced() -> None:
    assert variables({"group.initial.rebalance.delay.ms": 3000})["KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS"] == "3000"


@pytest.mark.parametrize("key", ["listeners", "advertised.listeners", "process.roles", "node.id", "broker.id"])
def test_what_the_container_decides_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: the container decides it$"):
        variables({"num.partitions": 3, key: "1"})


@pytest.mark.slow
def test_without_testcontainers_the_name_says_what_is_missing() -> None:
    source = """
        import sys

        sys.modules["testcontainers"] = None
        import pykbroker.testing

        pykbroker.testing.Broker
        try:
            pykbroker.testing.PykbrokerContainer
        except ImportError as error:
            print(error)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said, _, packages = done.stdout.partition("pip install ")
    assert (said, packages.startswith("'testcontainers")) == ("PykbrokerContainer needs testcontainers: ", True), (
        done.stderr
    )
