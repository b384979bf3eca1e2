"""Configurations of resources: topics, brokers, loggers, client metrics, groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from pykbroker.tools.cluster.failure import check

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster


class ResourceKind(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value, as the protocol numbers it."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


_SOURCES = frozenset(map(int, ConfigSource))


class ConfigChange(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


#: the kind of a resource and its name; a broker's name is its id, or empty for the default of all brokers
ResourceName: TypeAlias = tuple[ResourceKind, str]
#: key -> the kind of its change, and the value (None to delete)
ConfigChanges: TypeAlias = Mapping[str, tuple[ConfigChange, str | None]]


@dataclass(slots=True, frozen=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True, frozen=True)
class DescribedConfig:
    name: str
    #: None if the value is sensitive
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


def _node_of(resource: ResourceName) -> int | None:
    """Return the node to which a request for the resource must go, or None if any node can answer it."""
    kind, name = resource
    return int(name) if kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and name else None


def described(
    cluster: AskedCluster,
    resources: Iterable[ResourceName],
    *,
    synonyms: bool = False,
    keys: Iterable[str] | None = None,
) -> dict[ResourceName, list[DescribedConfig]]:
    """Return the configurations of each resource, every one or those with these keys, in the cluster's order."""
    asked = None if keys is None else list(keys)
    from pykbroker_wire.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    found: dict[ResourceName, list[DescribedConfig]] = {}
    for node, wanted in _by_node(resources).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=asked)
                for kind, name in wanted
            ],
            include_synonyms=synonyms,
        )
        for row in cluster.ask(request, DescribeConfigsResponse, node=node).results:
            check(row.error_code, row.error_message)
            found[ResourceKind(row.resource_type), row.resource_name] = [
                DescribedConfig(
                    one.name,
                    one.value,
                    _source(one.config_source),
                    one.is_sensitive,
                    one.read_only,
                    tuple(ConfigSynonym(each.name, each.value, _source(each.source)) for each in one.synonyms),
                )
                for one in row.configs
            ]
    return found


def changes_of(assigned: Mapping[str, str | None], deleted: Iterable[str] = ()) -> ConfigChanges:
    """Return the changes that set these values. A value of None is deleted, and so are the keys of `deleted`."""
    values = {**assigned, **dict.fromkeys(deleted)}
    return {key: (ConfigChange.DELETE if text is None else ConfigChange.SET, text) for key, text in values.items()}


def alter(cluster: AskedCluster, resource: ResourceName, changes: ConfigChanges) -> None:
    """Change configurations of a resource. `changes`: key -> the kind of the change, and the value (None to delete)."""
    from pykbroker_wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    kind, name = resource
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(name=key, config_operation=change, value=value)
                    for key, (change, value) in changes.items()
                ],
            )
        ]
    )
    node = _node_of(resource)
    answer = (
        cluster.ask_controller(request, IncrementalAlterConfigsResponse)
        if node is None or cluster.of_controllers
        else cluster.ask(request, IncrementalAlterConfigsResponse, node=node)
    )
    for row in answer.responses:
        check(row.error_code, row.error_message)


def resource_names(cluster: AskedCluster, kind: ResourceKind) -> list[str]:
    """Return the names of the resources of a kind that have a configuration of their own."""
    from pykbroker_wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

    # Version 0 of the request lists only client metrics.
    least = 0 if kind is ResourceKind.CLIENT_METRICS else 1
    answer = cluster.ask(ListConfigResourcesRequest(resource_types=[kind]), ListConfigResourcesResponse, least=least)
    check(answer.error_code)
    return [row.resource_name for row in answer.config_resources]


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in _SOURCES else ConfigSource.UNKNOWN


def _by_node(resources: Iterable[ResourceName]) -> dict[int | None, list[ResourceName]]:
    found: dict[int | None, list[ResourceName]] = {}
    for resource in resources:
        found.setdefault(_node_of(resource), []).append(resource)
    return found
