"""Makes a `Config` that may start from the pairs of a properties file, or refuses them.

Responsible for a Config that is whole: it has the required keys, its roles and its listeners, and the rules between
keys (checks.py) accept it. Not responsible for single values (typed_config.py), for dynamic layers on top of a Config
(dynamic.py) nor for per-topic values (topic.py).

    config = load({"process.roles": "broker,controller", "node.id": "1", ...})
    config.int("num.partitions"), config["log.cleanup.policy"], config.listeners.broker
    for warning in config.warnings: logger.warning(warning)
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config import checks
from pykbroker.config.key_table import STATIC_KEYS
from pykbroker.config.kinds import ConfigError
from pykbroker.config.typed_config import Config


def load(properties: Mapping[str, str]) -> Config:
    """Return a Config that may start. Raises ConfigError, which names the key, the value and what is allowed."""
    if "zookeeper.connect" in properties and "process.roles" not in properties:
        raise ConfigError(
            "This is a properties file of the ZooKeeper era (zookeeper.connect, no process.roles): Kafka 4 does not "
            "run it. Write a new one with process.roles, node.id, listeners, controller.listener.names and log.dirs"
        )
    config = Config(properties)
    for key in STATIC_KEYS.values():
        if key.required:
            config[key.name]  # raises if it is missing
    object.__setattr__(config, "roles", frozenset(config.list("process.roles")))
    object.__setattr__(config, "listeners", checks.resolve_listeners(config))
    warnings = checks.check_all(config)
    object.__setattr__(config, "_warnings", (*config._warnings, *warnings))
    return config


def with_overrides(config: Config, overrides: Mapping[str, str | None]) -> Config:
    """Return another Config, checked as a whole; None removes a key."""
    merged: dict[str, str | None] = {**config.overrides(), **overrides}
    if "node.id" in overrides and "broker.id" not in overrides:
        merged["broker.id"] = overrides["node.id"]
    return load({name: text for name, text in merged.items() if text is not None})


def development_profile(data_dir: str, port: int = 9092, controller_port: int | None = None) -> dict[str, str]:
    """Return the properties of `pykbroker start` without a properties file.

    They are the properties of Apache Kafka's shipped server.properties that differ from the defaults, but on localhost
    only (all its addresses, IPv4 and IPv6), and with them groups start at once.

    With port 0 both listeners get a free port. Otherwise the controller listens on the next port (the previous one
    after 65535), unless `controller_port` is given.
    """
    if controller_port is None:
        controller_port = 0 if port == 0 else port + 1 if port < 65535 else port - 1
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
        "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data_dir,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
