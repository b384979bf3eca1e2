"""DescribeConfigs, versions 1-4: values with source, type, synonyms, documentation. KIP-133, KIP-226, KIP-569.

The node that gets the request answers it, because a broker has only its own configuration. Broker loggers are Python's
loggers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from pykbroker.config import describe
from pykbroker.config.describe import Entry, Synonym
from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.kinds import Type
from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.image import ConfigResource
from pykbroker.metadata.topic_names import check_topic_name
from pykbroker.resource_configs import broker_loggers
from pykbroker.resource_configs.config_changes import unauthorized
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(ctx: AnyContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    allowed: list[DescribeConfigsResult] = []
    refused: list[DescribeConfigsResult] = []
    # A resource that is named twice is answered once, because 20 bytes of request can give 10 KB of response and more.
    asked = {
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ())): each
        for each in request.resources
    }
    described = _Described(ctx, request)
    for resource in asked.values():
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        code = unauthorized(ctx, Operation.DESCRIBE_CONFIGS, (resource.resource_type, resource.resource_name))
        if code is not None:
            result.error_code = code
            result.error_message = code.message
            refused.append(result)
            continue
        try:
            configs = described.configs(resource)
            if configs is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                result.configs = configs
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        allowed.append(result)
    return DescribeConfigsResponse(results=allowed + refused)


class _Described:
    """The results for one request. Thousands of topics share most of their entries, so each entry is found and written
    once."""

    def __init__(self, ctx: AnyContext, request: DescribeConfigsRequest) -> None:
        services = ctx.services
        self._services = services
        self._request = request
        self._image = services.metadata.image
        configs = self._image.configs
        self._dynamic = DynamicConfigs(
            broker=configs.of(ConfigResource.BROKER, str(services.node_id)),
            cluster=configs.of(ConfigResource.BROKER, ""),
        )
        self._topics: describe.Inheriting | None = None
        self._groups: describe.Inheriting | None = None
        #: (type, name) -> the entries of a resource that a request may name several times
        self._only: dict[tuple[int, str], Sequence[Entry]] = {}
        #: id of an entry -> the entry and its result; the entry is kept, so that no other object gets its id
        self._written: dict[int, tuple[Entry, DescribeConfigsResourceResult]] = {}

    def configs(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult] | None:
        """Return the configs of a resource, or None for a topic that does not exist."""
        entries = self._entries(resource)
        if entries is None:
            return None
        # An empty list of keys means all, as null does.
        named = describe.named(entries, resource.configuration_keys or None)
        return [self._write(entry, resource.resource_type) for entry in named]

    def _write(self, entry: Entry, resource_type: int) -> DescribeConfigsResourceResult:
        found = self._written.get(id(entry))
        if found is None:
            found = self._written[id(entry)] = entry, _entry(entry, resource_type, self._request)
        return found[1]

    def _entries(self, resource: DescribeConfigsResource) -> Sequence[Entry] | None:
        services, image, dynamic = self._services, self._image, self._dynamic
        name = resource.resource_name
        overrides = image.configs.of(resource.resource_type, name)
        match resource.resource_type:
            case ConfigResource.TOPIC:
                check_topic_name(name)
                if name not in image.topics.by_name:
                    return None
                self._topics = self._topics or describe.topics_of(services.config, dynamic)
                return self._topics.of(overrides)
            case ConfigResource.BROKER:
                if not name:
                    return self._once(resource, lambda: describe.describe_cluster_default(dynamic))
                _check_own_id(services.node_id, name, "expected {} or empty string, but received {}")
                return self._once(resource, lambda: describe.describe_broker(services.config, dynamic))
            case ConfigResource.BROKER_LOGGER:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
                _check_own_id(services.node_id, name, "expected {} but received {}")
                return self._once(resource, lambda: describe.describe_broker_loggers(broker_loggers.levels()))
            case ConfigResource.CLIENT_METRICS:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
                return _client_metrics(overrides)
            case ConfigResource.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
                self._groups = self._groups or describe.groups_of(services.config, dynamic)
                return self._groups.of(overrides)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")

    def _once(self, resource: DescribeConfigsResource, describe_all: Callable[[], Sequence[Entry]]) -> Sequence[Entry]:
        """Return the entries of a resource. They are found only once, because a client may name the resource once for
        each key."""
        place = resource.resource_type, resource.resource_name
        if place not in self._only:
            self._only[place] = describe_all()
        return self._only[place]


#: Python's int() would also accept spaces and underscores.
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


def _check_own_id(node_id: int, name: str, wording: str) -> None:
    if not _INTEGER.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    wanted = int(name)
    if wanted != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected broker id, " + wording.format(node_id, name))


#: Kafka's keys of a client metrics subscription: type, default, documentation.
_CLIENT_METRICS = {
    "interval.ms": (Type.INT, "300000", "How often clients push their metrics, in milliseconds."),
    "match": (Type.LIST, "", "Which clients the subscription is for: pairs of a property and a regular expression."),
    "metrics": (Type.LIST, "", "Prefixes of the names of the metrics that clients push."),
}


def _client_metrics(overrides: Mapping[str, str]) -> list[Entry]:
    entries = []
    for name, (kind, default, _) in _CLIENT_METRICS.items():
        value = overrides.get(name)
        source = describe.SOURCE_DEFAULT if value is None else describe.SOURCE_CLIENT_METRICS
        synonyms = () if value is None else (Synonym(name, value, source),)
        entries.append(Entry(name, default if value is None else value, source, False, False, kind, synonyms, None))
    return entries


def _entry(entry: Entry, resource_type: int, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.config_source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.config_type,
    )
    if request.include_synonyms:
        result.synonyms = [DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms]
    if resource_type == ConfigResource.BROKER_LOGGER:
        # Kafka never sets the field, so it has its default, which is not null.
        return result
    result.documentation = None
    if request.include_documentation:
        known = _CLIENT_METRICS.get(entry.name) if resource_type == ConfigResource.CLIENT_METRICS else None
        result.documentation = entry.documentation if known is None else known[2]
    return result


HANDLERS = Handlers(handle)
