"""AlterConfigs, versions 0-2, on the active controller: the whole configuration of a resource, replaced. KIP-133.

It is for old clients only, and takes the same resources as IncrementalAlterConfigs except broker loggers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from pykbroker.controller.configs import ResourceKey, legacy_alter
from pykbroker.controller.result import Result, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.dispatch.context import BrokerContext, ControllerContext
from pykbroker.dispatch.on_controller import respond
from pykbroker.dispatch.rows import Handlers, Settled
from pykbroker.metadata.image import ConfigResource
from pykbroker.resource_configs.config_changes import (
    AlteredResource,
    BrokerChange,
    ResourceVerdicts,
    judge_on_broker,
    key_of,
    permitted,
    settled,
    sort_out,
)
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(ctx: ControllerContext, request: AlterConfigsRequest) -> asyncio.Future[AlterConfigsResponse]:
    def operation(state: ControllerState, now_ms: int) -> Result[ResourceVerdicts]:
        verdicts: ResourceVerdicts = {}
        asked: dict[ResourceKey, tuple[AlteredResource, dict[str, str | None]]] = {}
        for key, resource in sort_out(request.resources, verdicts):
            wanted = {config.name: config.value for config in resource.configs}
            if key[0] == ConfigResource.BROKER_LOGGER:
                # KIP-412 did not add broker loggers to this old API.
                verdicts[key] = failure(ErrorCode.INVALID_REQUEST, f"Unknown resource type {key[0]}")
                continue
            asked[key] = resource, wanted
        changes = permitted(ctx, state, asked, _change, verdicts)
        result = legacy_alter(state, changes, request.validate_only)
        return Result({**verdicts, **result.response}, result.records)

    def answer(verdicts: Mapping[ResourceKey, Verdict]) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            responses=[
                _response(resource.resource_type, resource.resource_name, *verdicts[key_of(resource)])
                for resource in request.resources
            ]
        )

    return respond(
        ctx,
        ctx.services.controller.submit("AlterConfigs", operation),
        answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def on_broker(ctx: BrokerContext, request: AlterConfigsRequest) -> Settled | None:
    """Refuse changes that this broker could not run with, or that are meant for another broker."""
    verdicts: ResourceVerdicts = {}
    for key, resource in sort_out(request.resources, {}):
        change = _change({config.name: config.value for config in resource.configs})
        if (verdict := judge_on_broker(ctx, resource, change)).failed:
            verdicts[key] = verdict
    return settled(
        request.resources,
        verdicts,
        lambda rest: AlterConfigsRequest(resources=rest, validate_only=request.validate_only),
        AlterConfigsResponse,
        _response,
    )


def refused(
    request: AlterConfigsRequest, version: int, code: ErrorCode, message: str | None = None
) -> AlterConfigsResponse:
    """Return the response to a request that failed as a whole."""
    return AlterConfigsResponse(
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


def _change(wanted: Mapping[str, str | None]) -> BrokerChange:
    given = {name: value for name, value in wanted.items() if value is not None}
    return BrokerChange(
        nulls=[name for name, value in wanted.items() if value is None], given=given, apply=partial(_replace, given)
    )


def _replace(given: Mapping[str, str], layer: dict[str, str]) -> None:
    layer.clear()
    layer.update(given)


HANDLERS = Handlers(handle, refused=refused, on_broker=on_broker)
