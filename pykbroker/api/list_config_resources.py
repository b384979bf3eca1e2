"""ListConfigResources, versions 0-1. KIP-1142: names of resources that can have configuration.

Version 0 (then named ListClientMetricsResources) has client metrics only; version 1 takes types, where none means all.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.image import ConfigResource
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import list_config_resources as messages
from pykbroker_wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

#: Kafka's order, whatever the order in the request.
_ALL = (
    ConfigResource.GROUP,
    ConfigResource.CLIENT_METRICS,
    ConfigResource.BROKER_LOGGER,
    ConfigResource.BROKER,
    ConfigResource.TOPIC,
)


def handle(ctx: BrokerContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known: tuple[int, ...] = _ALL if ctx.api_version >= 1 else (ConfigResource.CLIENT_METRICS,)
    wanted = set(request.resource_types) or set(known)
    if not wanted <= set(known):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            messages.ConfigResource(resource_name=name, resource_type=kind)
            for kind in known
            if kind in wanted
            for name in _names(ctx, kind)
        ]
    )


def _names(ctx: BrokerContext, kind: int) -> list[str]:
    image = ctx.services.metadata.image
    match kind:
        case ConfigResource.TOPIC:
            return list(image.topics.by_name)
        case ConfigResource.BROKER | ConfigResource.BROKER_LOGGER:
            listener = ctx.listener_name
            return [str(broker.id) for broker in image.brokers.values() if listener in broker.endpoints]
    return list(image.configs.names(kind))


HANDLERS = Handlers(handle)
