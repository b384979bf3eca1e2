"""AlterConfigs, versions 0-2, on the active controller: the whole configuration of a resource, replaced. KIP-133.

Old clients only; the same resources as IncrementalAlterConfigs except broker loggers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from pykbroker.api.incremental_alter_configs import ResourceVerdicts, authorize_all, check_broker, check_keys, sort_out
from pykbroker.controller.configs import ResourceKey, legacy_alter
from pykbroker.controller.result import Result, Verdict, failure, verdict_of
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.image import ConfigResource
from pykbroker.serving.context import ControllerContext
from pykbroker.serving.on_controller import respond
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(ctx: ControllerContext, request: AlterConfigsRequest) -> asyncio.Future[AlterConfigsResponse]:
    def operation(state: ControllerState, now_ms: int) -> Result[ResourceVerdicts]:
        verdicts: ResourceVerdicts = {}
        changes: dict[ResourceKey, dict[str, str | None]] = {}
        for key, resource in sort_out(ctx, request.resources, verdicts):
            wanted = {config.name: config.value for config in resource.configs}
            if key[0] == ConfigResource.BROKER_LOGGER:
                # KIP-412 left the old API without them.
                verdicts[key] = failure(ErrorCode.INVALID_REQUEST, f"Unknown resource type {key[0]}")
                continue
            verdict = check_keys(resource, [name for name, value in wanted.items() if value is None])
            if not verdict.failed and key[0] == ConfigResource.BROKER:
                given = {name: value for name, value in wanted.items() if value is not None}
                verdict = check_broker(state, key[1], partial(_replace, wanted), given)
            if verdict.failed:
                verdicts[key] = verdict
            else:
                changes[key] = wanted
        authorize_all(ctx, changes, verdicts)
        result = legacy_alter(state, changes, request.validate_only)
        return Result({**verdicts, **result.response}, result.records)

    def answer(verdicts: Mapping[ResourceKey, Verdict]) -> AlterConfigsResponse:
        responses = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            verdict = verdicts[key]
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=verdict.code,
                    error_message=verdict.message,
                    resource_type=key[0],
                    resource_name=key[1],
                )
            )
        return AlterConfigsResponse(responses=responses)

    def refuse(error: KafkaError) -> AlterConfigsResponse:
        verdict = verdict_of(error)
        return answer({(r.resource_type, r.resource_name): verdict for r in request.resources})

    return respond(ctx, ctx.services.controller.submit("AlterConfigs", operation), answer, refuse)


def _replace(wanted: Mapping[str, str | None], layer: dict[str, str]) -> None:
    layer.clear()
    layer.update({name: value for name, value in wanted.items() if value is not None})
