"""IncrementalAlterConfigs, versions 0-1, on the active controller. KIP-339.

Topics, brokers (one, or all with an empty name), groups, client metrics, and this node's loggers (broker_loggers.py).
A broker settles what concerns one broker before it passes the rest on. What a new value does to a broker's
configuration is judged by the controller.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from pykbroker.config.dynamic import DynamicConfigs, validate_broker_overrides
from pykbroker.config.kinds import ConfigError
from pykbroker.config.protection import one_line, promises_of_change
from pykbroker.controller.configs import Alteration, AlterOperation, ResourceKey, incremental_alter
from pykbroker.controller.result import OK, Result, Verdict, failure, verdict_of
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import ConfigResource
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.serving import broker_loggers
from pykbroker.serving.context import AnyContext, BrokerContext, ControllerContext
from pykbroker.serving.on_controller import respond
from pykbroker.serving.rows import Settled
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ResourceVerdicts = dict[ResourceKey, Verdict]
T = TypeVar("T")


class Named(Protocol):
    @property
    def name(self) -> str: ...


class AlteredResource(Protocol):
    """What AlterConfigs and IncrementalAlterConfigs have in common."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Named]: ...


class AnsweredResource(Protocol):
    """The answer for one of them."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=AlteredResource)
A = TypeVar("A", bound=AnsweredResource)


class AlteredAnswer(Protocol[A]):
    """The response to either request."""

    responses: list[A]


def handle(
    ctx: ControllerContext, request: IncrementalAlterConfigsRequest
) -> asyncio.Future[IncrementalAlterConfigsResponse]:
    def operation(state: ControllerState, now_ms: int) -> Result[ResourceVerdicts]:
        verdicts: ResourceVerdicts = {}
        changes: dict[ResourceKey, list[Alteration]] = {}
        for key, resource in sort_out(request.resources, verdicts):
            alterations = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
            if key[0] == ConfigResource.BROKER_LOGGER:
                verdicts[key] = _change_loggers(ctx, resource, alterations, request.validate_only)
                continue
            verdict = judge(state, resource, _nulls(alterations), partial(_apply, alterations), _given(alterations))
            if verdict.failed:
                verdicts[key] = verdict
            else:
                changes[key] = alterations
        authorize_all(ctx, changes, verdicts)
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
    """A broker changes its own loggers, and refuses what is meant for another broker."""
    verdicts: ResourceVerdicts = {}
    for key, resource in sort_out(request.resources, {}):
        alterations = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
        if key[0] == ConfigResource.BROKER_LOGGER:
            verdicts[key] = _change_loggers(ctx, resource, alterations, request.validate_only)
        elif (verdict := of_another_broker(ctx, resource, _nulls(alterations))).failed:
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
    """The answer to a request that failed as a whole."""
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
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
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


def _nulls(alterations: list[Alteration]) -> list[str]:
    return [a.key for a in alterations if a.value is None and a.operation != AlterOperation.DELETE]


def _given(alterations: list[Alteration]) -> dict[str, str]:
    """What a key is set to, or what its list gets or loses; nothing of keys that are taken away."""
    return {a.key: a.value for a in alterations if a.operation != AlterOperation.DELETE and a.value is not None}


# Shared with the legacy AlterConfigs.


def judge(
    state: ControllerState,
    resource: AlteredResource,
    nulls: list[str],
    change: Callable[[dict[str, str]], None],
    given: Mapping[str, str],
) -> Verdict:
    """Judge the keys, and what a broker's configuration becomes. `nulls`: keys that are given no value; `given`: those
    that are given one."""
    verdict = check_keys(resource, nulls)
    if verdict.failed or resource.resource_type != ConfigResource.BROKER:
        return verdict
    return check_broker(state, resource.resource_name, change, given)


def of_another_broker(ctx: BrokerContext, resource: AlteredResource, nulls: list[str]) -> Verdict:
    """OK for what this broker may pass on: the configuration of a broker is changed at that broker."""
    name = resource.resource_name
    if resource.resource_type != ConfigResource.BROKER or not name or check_keys(resource, nulls).failed:
        return OK
    node_id = ctx.services.node_id
    # What is no number is refused by the controller.
    if not re.fullmatch(_INTEGER, name) or int(name) == node_id:
        return OK
    return failure(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def settled(
    resources: Sequence[R],
    verdicts: Mapping[ResourceKey, Verdict],
    ask: Callable[[list[R]], object],
    empty: Callable[[], AlteredAnswer[A]],
    make: Callable[[int, str, ErrorCode, str | None], A],
) -> Settled | None:
    """What a broker says of the resources in `verdicts`, and the request for the others (`ask`), which the controller
    answers; None when the controller answers for all. `empty` makes a response, `make` the answer for one resource."""
    if not verdicts:
        return None
    rest = [resource for resource in resources if key_of(resource) not in verdicts]

    def whole(answer: AlteredAnswer[A] | None) -> AlteredAnswer[A]:
        answer = answer or empty()
        by_key = {(each.resource_type, each.resource_name): each for each in answer.responses}
        for key, verdict in verdicts.items():
            by_key[key] = make(*key, *verdict)
        answer.responses = [by_key[key_of(resource)] for resource in resources]
        return answer

    return Settled(ask(rest) if rest else None, whole)


def key_of(resource: AlteredResource) -> ResourceKey:
    return resource.resource_type, resource.resource_name


def sort_out(resources: Sequence[R], verdicts: ResourceVerdicts) -> list[tuple[ResourceKey, R]]:
    """Resources that are named once."""
    keys = [key_of(resource) for resource in resources]
    counts = Counter(keys)
    found = []
    for key, resource in zip(keys, resources, strict=True):
        if counts[key] > 1:
            verdicts[key] = failure(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            found.append((key, resource))
    return found


#: Python's int() would also take spaces and underscores.
_INTEGER = r"[+-]?[0-9]{1,10}"
_ALTERABLE = (
    ConfigResource.TOPIC,
    ConfigResource.BROKER,
    ConfigResource.BROKER_LOGGER,
    ConfigResource.CLIENT_METRICS,
    ConfigResource.GROUP,
)


def check_keys(resource: AlteredResource, nulls: list[str]) -> Verdict:
    """What a broker checks before it asks the controller."""
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        return failure(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        return failure(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type not in _ALTERABLE:
        return failure(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    return OK


def check_broker(
    state: ControllerState, name: str, change: Callable[[dict[str, str]], None], given: Mapping[str, str]
) -> Verdict:
    """Whether the broker (or all, with an empty name) could live with its configuration after `change`.

    `given`: the values that the request names. Those that promise protection which is not served are refused first.
    """
    if name:
        if not re.fullmatch(_INTEGER, name):
            return failure(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        node_id = int(name)
        if node_id not in state.image.brokers and node_id != state.node_id:
            return failure(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {state.node_id}, but received {name}"
            )
    brokers = state.image.brokers
    registered = {
        listener
        for broker_id in ([int(name)] if name else brokers)
        if broker_id in brokers
        for listener in brokers[broker_id].endpoints
    }
    promised = promises_of_change(state.config, given, registered)
    if promised:
        return failure(ErrorCode.INVALID_CONFIG, one_line(promised))
    configs = state.image.configs
    current = DynamicConfigs(
        broker=configs.of(ConfigResource.BROKER, name or str(state.node_id)),
        cluster=configs.of(ConfigResource.BROKER, ""),
    )
    layer = dict(current.broker if name else current.cluster)
    change(layer)
    try:
        validate_broker_overrides(state.config, current, layer, per_broker=bool(name))
    except ConfigError as error:
        # Kafka calls it an invalid request, not an invalid configuration (KAFKA-13609).
        return failure(ErrorCode.INVALID_REQUEST, str(error))
    return OK


def authorize_all(ctx: ControllerContext, changes: dict[ResourceKey, T], verdicts: ResourceVerdicts) -> None:
    for key in list(changes):
        code = unauthorized(ctx, Operation.ALTER_CONFIGS, key)
        if code is not None:
            del changes[key]
            verdicts[key] = failure(code)


def unauthorized(ctx: AnyContext, operation: Operation, key: ResourceKey) -> ErrorCode | None:
    """The error of somebody who may not do this with the resource, or None."""
    resource_type, name = key
    match resource_type:
        case ConfigResource.TOPIC:
            allowed = ctx.authorize(operation, Resource.TOPIC, name)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case ConfigResource.GROUP:
            allowed = ctx.authorize(operation, Resource.GROUP, name)
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        case _:
            allowed = ctx.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if allowed else code
