"""IncrementalAlterConfigs, versions 0-1, on the active controller. KIP-339.

It changes topics, brokers (one, or all with an empty name), groups, client metrics, and this node's loggers
(resource_configs/broker_loggers.py). A broker first handles the resources that concern brokers, and then passes the
others on (resource_configs/config_changes.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from pykbroker.controller.configs import Alteration, AlterOperation, ResourceKey, incremental_alter
from pykbroker.controller.result import OK, Result, Verdict, failure, verdict_of
from pykbroker.controller.state import ControllerState
from pykbroker.dispatch.context import AnyContext, BrokerContext, ControllerContext, is_on_broker
from pykbroker.dispatch.on_controller import respond
from pykbroker.dispatch.rows import Handlers, Settled
from pykbroker.metadata.image import ConfigResource
from pykbroker.resource_configs import broker_loggers
from pykbroker.resource_configs.config_changes import (
    AlteredResource,
    BrokerChange,
    ResourceVerdicts,
    check_keys,
    judge_on_broker,
    key_of,
    permitted,
    settled,
    sort_out,
)
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(
    ctx: ControllerContext, request: IncrementalAlterConfigsRequest
) -> asyncio.Future[IncrementalAlterConfigsResponse]:
    def operation(state: ControllerState, now_ms: int) -> Result[ResourceVerdicts]:
        verdicts: ResourceVerdicts = {}
        asked: dict[ResourceKey, tuple[AlteredResource, list[Alteration]]] = {}
        for key, resource in sort_out(request.resources, verdicts):
            alterations = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
            if key[0] == ConfigResource.BROKER_LOGGER:
                verdicts[key] = _change_loggers(ctx, resource, alterations, request.validate_only)
                continue
            asked[key] = resource, alterations
        changes = permitted(ctx, state, asked, _change, verdicts)
        result = incremental_alter(state, changes, request.validate_only)
        return Result({**verdicts, **result.response}, result.records)

    def answer(verdicts: Mapping[ResourceKey, Verdict]) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                _response(resource.resource_type, resource.resource_name, *verdicts[key_of(resource)])
                for resource in request.resources
            ]
        )

    return respond(
        ctx,
        ctx.services.controller.submit("IncrementalAlterConfigs", operation),
        answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def on_broker(ctx: BrokerContext, request: IncrementalAlterConfigsRequest) -> Settled | None:
    """Change this broker's own loggers, and refuse changes that it could not run with or that are for another
    broker."""
    verdicts: ResourceVerdicts = {}
    for key, resource in sort_out(request.resources, {}):
        alterations = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
        if key[0] == ConfigResource.BROKER_LOGGER:
            verdicts[key] = _change_loggers(ctx, resource, alterations, request.validate_only)
        elif (verdict := judge_on_broker(ctx, resource, _change(alterations))).failed:
            verdicts[key] = verdict
    return settled(
        request.resources,
        verdicts,
        lambda rest: IncrementalAlterConfigsRequest(resources=rest, validate_only=request.validate_only),
        IncrementalAlterConfigsResponse,
        _response,
    )


def refused(
    request: IncrementalAlterConfigsRequest, version: int, code: ErrorCode, message: str | None = None
) -> IncrementalAlterConfigsResponse:
    """Return the response to a request that failed as a whole."""
    return IncrementalAlterConfigsResponse(
        responses=[
            _response(resource.resource_type, resource.resource_name, code, message) for resource in request.resources
        ]
    )


def _response(
    resource_type: int, resource_name: str, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=resource_type, resource_name=resource_name
    )


def _change_loggers(
    ctx: AnyContext,
    resource: AlteredResource,
    alterations: list[Alteration],
    validate_only: bool,
) -> Verdict:
    verdict = check_keys(resource, _nulls(alterations))
    if verdict.failed:
        return verdict
    # Brokers and controllers check different operations and use different messages, as in Apache Kafka.
    broker = is_on_broker(ctx)
    operation = Operation.ALTER_CONFIGS if broker else Operation.CLUSTER_ACTION
    if not ctx.authorize(operation, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return Verdict(code, None) if broker else failure(code)
    try:
        broker_loggers.check_node_id(ctx.services.node_id, resource.resource_name)
        broker_loggers.change(alterations, validate_only)
    except KafkaError as error:
        return verdict_of(error)
    return OK


def _apply(alterations: list[Alteration], layer: dict[str, str]) -> None:
    for key, operation, value in alterations:
        if operation == AlterOperation.SET and value is not None:
            layer[key] = value
        elif operation == AlterOperation.DELETE:
            layer.pop(key, None)


def _change(alterations: list[Alteration]) -> BrokerChange:
    """`given` has the value to which a key is set, or that is added to its list or removed from it."""
    return BrokerChange(
        nulls=_nulls(alterations),
        given={a.key: a.value for a in alterations if a.operation != AlterOperation.DELETE and a.value is not None},
        apply=partial(_apply, alterations),
    )


def _nulls(alterations: list[Alteration]) -> list[str]:
    return [a.key for a in alterations if a.value is None and a.operation != AlterOperation.DELETE]


HANDLERS = Handlers(handle, refused=refused, on_broker=on_broker)
