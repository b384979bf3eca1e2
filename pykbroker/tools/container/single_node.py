"""Adds properties that a container's environment lacks: listeners, a place for data, and a controller if none is
configured.

Properties without process.roles describe a node from before KRaft (KAFKA_ZOOKEEPER_CONNECT, KAFKA_BROKER_ID), or are a
few keys that the user set. Such a node gets a controller of its own, and is the only node of its cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker.config.listeners import SECURITY_PROTOCOLS
from pykbroker.tools.container.before_kraft import authorizer_of, listeners_of
from pykbroker.tools.container.mounts import DEFAULT_PLACE

_CONTROLLER: Final = "CONTROLLER"
_FIRST_CONTROLLER_PORT: Final = 9093
_DEFAULT_MAP: Final = ",".join(f"{protocol}:{protocol}" for protocol in SECURITY_PROTOCOLS)
#: set for a cluster that can have only one broker
_INTERNAL_TOPICS: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
_HOST_OF_LISTENER: Final = re.compile(r"://(\[[^\]]*\]|[^:,]*):")
#: Hosts of listeners on every address, which are advertised under the name of the container: of brokers' listeners, and
#: of controllers' listeners.
_NO_HOST: Final = re.compile(r"://(?:\[[0:]+\])?:")
_NO_CONTROLLER_HOST: Final = re.compile(r"://(?:\[[0:]+\]|0\.0\.0\.0)?:")
_PORT_OF_LISTENER: Final = re.compile(r":(\d+)\s*(?:,|$)")


@dataclass(slots=True)
class Completed:
    """Properties to append, and warnings."""

    added: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def complete(
    properties: Mapping[str, str],
    *,
    zookeeper: tuple[str, ...] = (),
    address: Mapping[str, str] = {},
    hostname: str = "localhost",
    data_directory: str = DEFAULT_PLACE,
) -> Completed:
    """Return properties that let the node start. Keys that are set and not blank stay, except `listeners`,
    `advertised.listeners` and `listener.security.protocol.map`, which get the controller's listener. `hostname`: the
    name under which others reach this container. `data_directory`: for a node whose properties name no directory.
    `address`: the parts of an address from before KRaft. Raises ConfigError for a node that is only a controller and
    advertises listeners."""
    done = Completed()
    roles = {role.strip() for role in properties.get("process.roles", "").split(",")} - {""}
    if roles == {"controller"}:
        if properties.get("advertised.listeners", "").strip():
            raise ConfigError(
                "KAFKA_ADVERTISED_LISTENERS is for brokers, and this node is only a controller: take it away"
            )
    elif not properties.get("listeners", "").strip() and properties.get("advertised.listeners", "").strip():
        done.added["listeners"] = on_all_addresses(properties["advertised.listeners"])
    if not roles:
        name = properties.get("controller.listener.names", "").split(",")[0].strip() or _CONTROLLER
        done.added.update(listeners_of(address, properties, [name]))
        authorizer = authorizer_of(properties)
        if authorizer is not None:
            done.added["authorizer.class.name"] = authorizer[0]
            done.warnings.append(authorizer[1])
        _add_controller(properties, name, done)
        said = f"; {', '.join(zookeeper)} {_has(zookeeper)} no effect" if zookeeper else ""
        done.warnings.append(
            "process.roles is not set: this is a cluster of one node with a controller of its own"
            f"{said}. For more nodes set KAFKA_PROCESS_ROLES, KAFKA_NODE_ID and KAFKA_CONTROLLER_QUORUM_VOTERS"
        )
    elif zookeeper:
        done.warnings.append(f"There is no ZooKeeper here: {', '.join(zookeeper)} {_has(zookeeper)} no effect")
    _advertise({**properties, **done.added}, hostname, done)
    if not properties.get("log.dirs", "").strip() and not properties.get("log.dir", "").strip():
        done.added["log.dirs"] = data_directory
    return done


def on_all_addresses(listeners: str) -> str:
    """Replace the host of each listener: PLAINTEXT://broker:9092 -> PLAINTEXT://0.0.0.0:9092."""
    return _HOST_OF_LISTENER.sub("://0.0.0.0:", listeners)


def ports_of(listeners: str) -> set[int]:
    return {int(port) for port in _PORT_OF_LISTENER.findall(listeners)}


def _advertise(properties: Mapping[str, str], hostname: str, done: Completed) -> None:
    """Advertise listeners without a host under the name of the container, which other containers can resolve. Apache
    Kafka also uses the name of the machine. If controller.quorum.voters is set, a controller's listener is advertised
    with the address in that key."""
    listeners = [entry.strip() for entry in properties.get("listeners", "").split(",") if entry.strip()]
    advertised = properties.get("advertised.listeners", "").strip()
    controllers = {name.strip().upper() for name in properties.get("controller.listener.names", "").split(",")}
    configured_voters = properties.get("controller.quorum.voters", "").strip()
    named = {entry.partition("://")[0].strip().upper() for entry in advertised.split(",")}
    more = []
    for entry in listeners:
        name = entry.partition("://")[0].upper()
        if name in named or (configured_voters if name in controllers else advertised):
            continue
        # A broker's listener on 0.0.0.0 is not changed: Apache Kafka refuses to advertise it, and so does the node.
        everywhere = _NO_CONTROLLER_HOST if name in controllers else _NO_HOST
        more.append(everywhere.sub(f"://{hostname}:", entry))
    if any(entry not in listeners for entry in more):
        done.added["advertised.listeners"] = ",".join(filter(None, [advertised, *more]))


def _has(names: tuple[str, ...]) -> str:
    return "has" if len(names) == 1 else "have"


def _add_controller(properties: Mapping[str, str], name: str, done: Completed) -> None:
    added = done.added
    added["process.roles"] = "broker,controller"
    if not properties.get("node.id", "").strip():
        broker_id = properties.get("broker.id", "").strip()
        # With broker.id=-1, ZooKeeper assigned the id of a broker.
        added["node.id"] = broker_id if broker_id not in ("", "-1") else "1"
        if broker_id == "-1":
            added["broker.id"] = "1"
    added.setdefault("controller.listener.names", name)
    listeners = added.get("listeners") or properties.get("listeners", "").strip()
    advertised = added.get("advertised.listeners") or properties.get("advertised.listeners", "").strip()
    if not listeners:
        listeners = added["listeners"] = "PLAINTEXT://:9092"
        added["advertised.listeners"] = "PLAINTEXT://localhost:9092"
    own = next((entry for entry in listeners.split(",") if entry.strip().upper().startswith(f"{name.upper()}://")), "")
    if own:
        port = min(ports_of(own), default=_FIRST_CONTROLLER_PORT)
    else:
        taken = ports_of(listeners) | ports_of(advertised)
        port = next(port for port in range(_FIRST_CONTROLLER_PORT, 65536) if port not in taken)
        # Only this container connects to the controller's listener.
        added["listeners"] = f"{listeners},{name}://localhost:{port}"
    # The default map does not have the name of a controller's listener if another listener uses TLS or SASL.
    protocols = properties.get("listener.security.protocol.map", "").strip() or _DEFAULT_MAP
    if f"{name.upper()}:" not in protocols.upper().replace(" ", ""):
        added["listener.security.protocol.map"] = f"{protocols},{name}:PLAINTEXT"
    if not any(properties.get(f"controller.quorum.{key}", "").strip() for key in ("voters", "bootstrap.servers")):
        added["controller.quorum.bootstrap.servers"] = f"localhost:{port}"
    for key in _INTERNAL_TOPICS:
        if not properties.get(key, "").strip():
            added[key] = "1"
