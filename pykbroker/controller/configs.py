"""Configuration of topics, brokers, groups and client metrics: (Incremental)AlterConfigs as ConfigRecords.

Responsible for turning requested changes into records and for letting config/ check the outcome. Not responsible for
the effect of a value, nor for authorization and a broker's preprocessing (api/alter_configs.py), nor for the rules
between min.insync.replicas and the ELR (eligible.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from pykbroker.config.describe import (
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_BROKER,
    SOURCE_DYNAMIC_DEFAULT_BROKER,
    SOURCE_STATIC_BROKER,
    SOURCE_TOPIC,
)
from pykbroker.config.group import validate_group_overrides
from pykbroker.config.key_table import GROUP_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS
from pykbroker.config.kinds import LIST, PASSWORD, ConfigError, Key, Required, format_value
from pykbroker.config.topic import validate_topic_overrides
from pykbroker.config.typed_config import find_key
from pykbroker.controller.eligible import clear_records, forbidden_change
from pykbroker.controller.result import OK, RecordList, Result, Verdict, failure, verdict_of
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import ConfigResource
from pykbroker.metadata.topic_names import check_topic_name
from pykbroker.plugins import ChangedConfigs
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.stored.metadata import ConfigRecord

ResourceKey = tuple[int, str]
#: The names of resource types for policies.
_RESOURCE_NAMES = {
    ConfigResource.TOPIC: "TOPIC",
    ConfigResource.BROKER: "BROKER",
    ConfigResource.GROUP: "GROUP",
    ConfigResource.CLIENT_METRICS: "CLIENT_METRICS",
}


class AlterOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One key of an incremental change."""

    key: str
    operation: int
    value: str | None


class EffectiveConfig(NamedTuple):
    """One entry of the configuration in a CreateTopics answer: a key of the new topic."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool


def incremental_alter(
    state: ControllerState, changes: Mapping[ResourceKey, Iterable[Alteration]], validate_only: bool
) -> Result[dict[ResourceKey, Verdict]]:
    def change(resource: ResourceKey) -> list[ConfigRecord] | Verdict:
        return incremental_records(state, resource, changes[resource], new_resource=False)

    return _alter(state, changes, change, validate_only)


def _alter(
    state: ControllerState,
    resources: Iterable[ResourceKey],
    change: Callable[[ResourceKey], list[ConfigRecord] | Verdict],
    validate_only: bool,
) -> Result[dict[ResourceKey, Verdict]]:
    records = RecordList()
    verdicts: dict[ResourceKey, Verdict] = {}
    for resource in resources:
        found = change(resource)
        if isinstance(found, Verdict):
            verdicts[resource] = found
        else:
            records.check_room(len(found))
            records.extend(found)
            verdicts[resource] = OK
    cleared = clear_records(state, records)
    records.check_room(len(cleared))
    records.extend(cleared)
    return Result(verdicts, [] if validate_only else records)


def incremental_records(
    state: ControllerState, resource: ResourceKey, alterations: Iterable[Alteration], *, new_resource: bool
) -> list[ConfigRecord] | Verdict:
    """Return the records of an incremental change, or the verdict if the change is not allowed."""
    current = state.image.configs.of(*resource)
    after: dict[str, str | None] = {}
    for key, operation, value in alterations:
        match operation:
            case AlterOperation.SET:
                after[key] = value
            case AlterOperation.DELETE:
                after[key] = None
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                row = _key(resource[0], key)
                if row is None or row.type is not LIST:
                    word = AlterOperation(operation).name
                    return failure(ErrorCode.INVALID_CONFIG, f"Can't {word} to key {key} because its type is not LIST.")
                parts = _parts(current.get(key), row)
                for part in (value or "").split(","):
                    if operation == AlterOperation.SUBTRACT:
                        if part in parts:
                            parts.remove(part)
                    elif part not in parts:
                        parts.append(part)
                after[key] = ",".join(parts)
            case _:
                return failure(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation}")
    return _validated(state, resource, after, (), new_resource)


def legacy_alter(
    state: ControllerState, changes: Mapping[ResourceKey, Mapping[str, str | None]], validate_only: bool
) -> Result[dict[ResourceKey, Verdict]]:
    """AlterConfigs. The request has the whole configuration, so keys that it does not name are removed."""

    def change(resource: ResourceKey) -> list[ConfigRecord] | Verdict:
        wanted = changes[resource]
        removed = [key for key in state.image.configs.of(*resource) if key not in wanted]
        return _validated(state, resource, wanted, removed, False)

    return _alter(state, changes, change, validate_only)


def _validated(
    state: ControllerState,
    resource: ResourceKey,
    after: Mapping[str, str | None],
    removed: Iterable[str],
    new_resource: bool,
) -> list[ConfigRecord] | Verdict:
    resource_type, name = resource
    current = state.image.configs.of(resource_type, name)
    changed = {
        key: value
        for key, value in after.items()
        # A broker's value is written even if it is the same, because that makes the broker read the file again that the
        # value names.
        if current.get(key) != value or resource_type == ConfigResource.BROKER
    }
    changed.update(dict.fromkeys(removed, None))
    forbidden = forbidden_change(state, resource_type, name, changed)
    if forbidden is not None:
        return failure(ErrorCode.INVALID_CONFIG, forbidden)
    whole = {key: value for key, value in {**current, **changed}.items() if value is not None}
    try:
        _validate(state, resource, whole, current)
        if not new_resource:
            _check_exists(state, resource)
        explicit = {key: changed[key] for key in after if key in changed}
        state.policies.check_configs(ChangedConfigs(_RESOURCE_NAMES[resource_type], name, explicit))
    except ConfigError as error:
        return failure(ErrorCode.INVALID_CONFIG, str(error))
    except KafkaError as error:
        return verdict_of(error)
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in changed.items()
    ]


def _validate(state: ControllerState, resource: ResourceKey, whole: dict[str, str], before: Mapping[str, str]) -> None:
    resource_type, name = resource
    match resource_type:
        case ConfigResource.TOPIC:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_topic_name(name)
            validate_topic_overrides(whole, state.effective_config(), before)
        case ConfigResource.BROKER:
            if name:
                check_node_id(name)
        case ConfigResource.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            validate_group_overrides(state.effective_config(), whole)
        case ConfigResource.CLIENT_METRICS:
            _validate_client_metrics(name, whole)
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _check_exists(state: ControllerState, resource: ResourceKey) -> None:
    resource_type, name = resource
    if resource_type == ConfigResource.TOPIC:
        if name not in state.image.topics.by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == ConfigResource.BROKER and name:
        node_id = check_node_id(name)
        known = node_id in state.image.brokers or node_id in state.image.controllers or node_id == state.node_id
        if not known:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def check_node_id(name: str) -> int:
    # Python's int() would also accept spaces and underscores.
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    node_id = int(name)
    if node_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    return node_id


_CLIENT_METRICS_MATCH = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def _validate_client_metrics(name: str, values: Mapping[str, str]) -> None:
    """Check a subscription of KIP-714."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key, value in values.items():
        match key:
            case "interval.ms":
                try:
                    interval = int(value.strip())
                except ValueError:
                    raise ConfigError(f"Invalid value {value} for configuration interval.ms: not a number") from None
                if not 100 <= interval <= 3_600_000:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Invalid value {interval} for interval.ms, it must be between 100 and 3600000 (1 hour)",
                    )
            case "match":
                for pattern in filter(None, (part.strip() for part in value.split(","))):
                    selector, separator, _ = pattern.partition("=")
                    if not separator or selector.strip() not in _CLIENT_METRICS_MATCH:
                        raise ConfigError(f"Illegal client matching pattern: {pattern}")
            case "metrics":
                pass
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")


def _key(resource_type: int, name: str) -> Key | None:
    match resource_type:
        case ConfigResource.TOPIC:
            return TOPIC_KEYS.get(name)
        case ConfigResource.BROKER:
            return find_key(name)
        case ConfigResource.GROUP:
            return GROUP_KEYS.get(name)
    return None


def _parts(value: str | None, key: Key) -> list[str]:
    if value is None:
        value = None if isinstance(key.default, Required) else format_value(key.default)
    return [part for part in (value or "").split(",") if part]


def effective_topic_configs(state: ControllerState, overrides: Mapping[str, str]) -> list[EffectiveConfig]:
    """Return all topic keys of a topic with these overrides, by name, as in a CreateTopics answer.

    Unlike in DescribeConfigs, the source of a key is the layer that sets one of its broker keys, in any unit (KIP-525).
    """
    configs = state.image.configs
    layers = (
        (SOURCE_DYNAMIC_BROKER, configs.of(ConfigResource.BROKER, str(state.node_id))),
        (SOURCE_DYNAMIC_DEFAULT_BROKER, configs.of(ConfigResource.BROKER, "")),
        (SOURCE_STATIC_BROKER, state.config.overrides()),
    )
    found = []
    for name in sorted(TOPIC_KEYS):
        key = TOPIC_KEYS[name]
        if key.internal:
            continue
        value, source = overrides.get(name), SOURCE_TOPIC
        if value is None:
            value, source = _inherited(name, key, layers)
        sensitive = key.type is PASSWORD
        found.append(EffectiveConfig(name, None if sensitive else value, source, sensitive))
    return found


def _inherited(name: str, key: Key, layers: tuple[tuple[int, Mapping[str, str]], ...]) -> tuple[str | None, int]:
    for source, layer in layers:
        for synonym, multiplier in TOPIC_SYNONYMS.get(name, ()):
            text = layer.get(synonym)
            if text is not None:
                return (text if multiplier == 1 else str(int(text) * multiplier)), source
    return (None if isinstance(key.default, Required) else format_value(key.default)), SOURCE_DEFAULT
