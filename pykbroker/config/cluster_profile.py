"""The properties of nodes in a cluster on one machine, and the keys that a caller may not set for these nodes.

Used by the cluster in one process (`pykbroker.testing.Cluster`) and by that of several (`pykbroker start --brokers`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.kinds import ConfigError

#: Keys that the cluster sets for its nodes. A caller may not set them.
OWN_KEYS = frozenset(
    (
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.auto.join.enable",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    )
)


def replicated_profile(brokers: int) -> dict[str, str]:
    """Return properties with which topics, also internal topics, survive the loss of a broker if there are at least
    three brokers. With them groups start at once."""
    replicas, least = str(min(3, brokers)), str(2 if brokers > 2 else 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": least,
        "group.initial.rebalance.delay.ms": "0",
    }


def check_own_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties unchanged. Raises ConfigError for a key that the cluster itself sets."""
    for key in properties:
        if key in OWN_KEYS:
            raise ConfigError(f"{key} is decided by the cluster, and cannot be set for its nodes")
    return dict(properties)
