"""Parses the options of kafka-configs: the entities to change and the pairs to set. Errors have Kafka's messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.kafka.tool_options import Given

#: The types, and the option that names an entity of each.
FLAGS: Final = {
    "topics": "topic",
    "clients": "client",
    "users": "user",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "ips": "ip",
    "client-metrics": "client-metrics",
    "groups": "group",
}
#: The option for the default of a type.
DEFAULT_FLAGS: Final = {
    "clients": "client-defaults",
    "users": "user-defaults",
    "brokers": "broker-defaults",
    "ips": "ip-defaults",
}
QUOTA_TYPES: Final = ("users", "clients", "ips")
#: A comma outside of square brackets.
_COMMA: Final = re.compile(r",(?=[^\]]*(?:\[|$))")


@dataclass(slots=True, frozen=True)
class Entity:
    type: str
    #: None if the options name no entity of the type; "" for the default
    name: str | None = None

    @property
    def word(self) -> str:
        return self.type.removesuffix("s")


def entities_of(given: Given) -> list[Entity]:
    """Return the entities that the options name; users come before clients. Raises ValueError with Kafka's text."""
    flags = [
        *(Entity(type_, given.text(flag)) for type_, flag in FLAGS.items() if given.has(flag)),
        *(Entity(type_, "") for type_, flag in DEFAULT_FLAGS.items() if given.has(flag)),
    ]
    if flags and (given.has("entity-type") or given.has("entity-name") or given.has("entity-default")):
        raise ValueError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    found = flags or _by_type_and_name(given)
    if not found:
        raise ValueError("At least one entity type must be specified")
    for entity in found:
        if entity.type not in FLAGS:
            raise ValueError(
                f"Invalid entity type {entity.type}, the entity type must be one of topics, clients, users, brokers, "
                "ips, client-metrics, groups, broker-loggers with a --bootstrap-server or --bootstrap-controller "
                "argument"
            )
    types = [entity.type for entity in found]
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise ValueError("Only 'users' and 'clients' entity types may be specified together")
    for entity in found:
        if entity.type in ("brokers", "broker-loggers") and entity.name and not entity.name.isdigit():
            raise ValueError(
                f"The entity name for {entity.type} must be a valid integer broker id, but it is: {entity.name}"
            )
    return sorted(found, key=lambda entity: entity.type, reverse=True)


def _by_type_and_name(given: Given) -> list[Entity]:
    """Pair each --entity-type with an --entity-name or --entity-default, in the order of the command line."""
    types = given.texts("entity-type")
    names: list[str | None] = [*given.in_order("entity-name", "entity-default")]
    return [Entity(type_, names[place] if place < len(names) else None) for place, type_ in enumerate(types)]


def added(given: Given) -> dict[str, str]:
    """Return the pairs of --add-config and --add-config-file. Raises ValueError and OSError."""
    found: dict[str, str] = {}
    file = given.text("add-config-file")
    if file is not None:
        from pykbroker.tools.cluster.client_properties import read_properties

        found |= read_properties(file)
    for written in given.texts("add-config"):
        for pair in _COMMA.split(written):
            key, equals, value = pair.partition("=")
            if not equals:
                raise ValueError(
                    "requirement failed: Invalid entity config: all configs to be added must be in the format "
                    '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
                )
            found[key.strip()] = re.sub(r"[\[\]]", "", value.strip())
    return found


def deleted(given: Given) -> list[str]:
    return [key.strip() for written in given.texts("delete-config") for key in written.split(",")]
