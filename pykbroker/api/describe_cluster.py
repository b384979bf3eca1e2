"""DescribeCluster, versions 0-2: brokers from a broker, controllers from a controller. KIP-700, KIP-919, KIP-1073."""

from __future__ import annotations

from pykbroker.client_view.cluster_view import nodes
from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.dispatch.services import ControllerServices
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1
_CONTROLLERS = 2
_NAMES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


def handle(ctx: AnyContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    services = ctx.services
    own_type = _CONTROLLERS if isinstance(services, ControllerServices) else _BROKERS
    if own_type == _CONTROLLERS and not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClusterResponse(error_code=code, error_message=code.message)
    if request.endpoint_type not in _NAMES:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return _refused(ctx, code, f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != own_type:
        return _refused(
            ctx,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {_NAMES[own_type]}, but we wanted an endpoint of type "
            f"{_NAMES[request.endpoint_type]}",
        )
    response = DescribeClusterResponse(endpoint_type=own_type, cluster_id=services.cluster_id)
    image = services.metadata.image
    if own_type == _BROKERS:
        response.brokers = [
            DescribeClusterBroker(
                broker_id=node.broker.id,
                host=node.endpoint.host,
                port=node.endpoint.port,
                rack=node.broker.rack,
                is_fenced=node.broker.fenced,
            )
            for node in nodes(image, ctx.listener_name, fenced=request.include_fenced_brokers)
        ]
        alive = [broker.broker_id for broker in response.brokers if not broker.is_fenced]
        controller = services.runtime.random.choice(alive) if alive else -1
    else:
        for known in image.controllers.values():
            endpoint = known.endpoints.get(ctx.listener_name)
            if endpoint is not None:
                response.brokers.append(
                    DescribeClusterBroker(broker_id=known.id, host=endpoint.host, port=endpoint.port)
                )
        leader = services.metadata.leader_id
        controller = -1 if leader is None else leader
    if any(broker.broker_id == controller for broker in response.brokers):
        response.controller_id = controller
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            ctx.authorized_operations(Resource.CLUSTER, CLUSTER_NAME)
            if ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
            else 0
        )
    return response


def _refused(ctx: AnyContext, code: ErrorCode, message: str) -> DescribeClusterResponse:
    # The error codes were added after version 0.
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if ctx.api_version == 0 else code, error_message=message
    )


HANDLERS = Handlers(handle)
