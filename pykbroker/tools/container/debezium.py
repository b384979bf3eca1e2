"""Variables of Debezium's Kafka image, which have no prefix: NODE_ROLE, ZOOKEEPER_CONNECT, HOST_NAME and others.

Responsible for converting them to names with the prefix KAFKA_. They are converted only if a variable of `_SIGNS` is
set, or an id together with voters or an address, because other names alone may belong to another program. A variable
with the prefix overrides them. The ZooKeeper mode of that image becomes a node from before KRaft (before_kraft.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ROLES: Final = ("broker", "controller")
_COMBINED: Final = "broker,controller"
_CONTROLLER_PORT: Final = "9093"
#: Each of these variables alone shows that the environment is for Debezium's image.
_SIGNS: Final = ("NODE_ROLE", "ZOOKEEPER_CONNECT")
_ADDRESSES: Final = ("HOST_NAME", "ADVERTISED_HOST_NAME")
_IDS: Final = ("NODE_ID", "BROKER_ID")
_VOTERS: Final = "KAFKA_CONTROLLER_QUORUM_VOTERS"
_SAME: Final = {
    "ADVERTISED_HOST_NAME": "KAFKA_ADVERTISED_HOST_NAME",
    "ADVERTISED_PORT": "KAFKA_ADVERTISED_PORT",
    "CREATE_TOPICS": "KAFKA_CREATE_TOPICS",
    "HOST_NAME": "KAFKA_HOST_NAME",
    "LOG_LEVEL": "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "PORT": "KAFKA_PORT",
    "ZOOKEEPER_CONNECT": "KAFKA_ZOOKEEPER_CONNECT",
}


def with_prefixes(variables: Mapping[str, str], hostname: str) -> tuple[Mapping[str, str], str | None]:
    """Return the variables under the names of other images, and a line about this. If they are not Debezium's, return
    them unchanged, and None. `hostname`: the name under which others reach this container, which is advertised; that
    image advertises the container's address."""
    given = {name: text.strip() for name, text in variables.items() if text.strip()}
    if "KAFKA_PROCESS_ROLES" in given or not _is_debeziums(given):
        return variables, None
    ids = (given[name] for name in ("KAFKA_NODE_ID", "KAFKA_BROKER_ID", *_IDS) if name in given)
    node_id = next(ids, "1")
    found = {prefixed: given[name] for name, prefixed in _SAME.items() if name in given}
    found["KAFKA_NODE_ID"] = found["KAFKA_BROKER_ID"] = node_id
    if "NODE_ROLE" in given or _VOTERS in given:
        found.update(_of_a_role(given, found, node_id, hostname))
    elif "KAFKA_LISTENERS" not in given and "KAFKA_ADVERTISED_HOST_NAME" not in given:
        found.setdefault("KAFKA_ADVERTISED_HOST_NAME", given.get("HOST_NAME", hostname))
    used = [name for name in (*_SAME, *_IDS, "NODE_ROLE") if name in given]
    line = f"{', '.join(sorted(used))} {'is' if len(used) == 1 else 'are'} read as Debezium's image reads them"
    return {**variables, **{name: text for name, text in found.items() if name not in given}}, line


def _is_debeziums(given: Mapping[str, str]) -> bool:
    has_id = any(name in given for name in _IDS)
    return any(name in given for name in _SIGNS) or (
        has_id and (_VOTERS in given or any(name in given for name in _ADDRESSES))
    )


def _of_a_role(given: Mapping[str, str], found: dict[str, str], node_id: str, hostname: str) -> dict[str, str]:
    """Return the variables that correspond to that image's properties file for each role."""
    role = given.get("NODE_ROLE", "")
    roles = role if role in _ROLES else _COMBINED
    # If process.roles is set, the parts of an address have no effect, so they are converted to listeners here.
    host, port = found.pop("KAFKA_HOST_NAME", ""), found.pop("KAFKA_PORT", "9092")
    advertised = found.pop("KAFKA_ADVERTISED_HOST_NAME", host or hostname)
    advertised_port = found.pop("KAFKA_ADVERTISED_PORT", port)
    controller_port = given.get("CONTROLLER_PORT", _CONTROLLER_PORT)
    listeners = {"broker": f"PLAINTEXT://{host}:{port}", "controller": f"CONTROLLER://{host}:{controller_port}"}
    properties = {
        "KAFKA_PROCESS_ROLES": roles,
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": ",".join(listeners[role] for role in roles.split(",")),
        _VOTERS: f"{node_id}@{host or 'localhost'}:{controller_port}",
    }
    if roles != "controller":
        properties["KAFKA_ADVERTISED_LISTENERS"] = f"PLAINTEXT://{advertised}:{advertised_port}"
    return properties
