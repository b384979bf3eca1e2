"""UpdateFeatures, versions 0-2, on the active controller: all updates or none. KIP-584, KIP-778."""

from __future__ import annotations

import asyncio

from pykbroker.controller.features import Update, UpgradeType, update_features
from pykbroker.controller.result import Verdict
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def handle(ctx: ControllerContext, request: UpdateFeaturesRequest) -> asyncio.Future[UpdateFeaturesResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))
    controller = ctx.services.controller
    updates = {
        update.feature: Update(update.max_version_level, _upgrade_type(ctx.api_version, update))
        for update in request.feature_updates
    }

    def answer(verdict: Verdict) -> UpdateFeaturesResponse:
        if verdict.failed:
            return UpdateFeaturesResponse(
                error_code=verdict.code,
                error_message="The update failed for all features since the following feature had an error: "
                f"{verdict.message}",
            )
        response = UpdateFeaturesResponse(error_message=None)
        if ctx.api_version <= 1:
            # The text that Kafka uses for no error.
            response.results = [UpdatableFeatureResult(feature=name, error_message="NONE") for name in updates]
        return response

    return respond(
        ctx,
        controller.submit(
            "UpdateFeatures",
            lambda state, now_ms: update_features(
                state,
                updates,
                request.validate_only,
                kraft_version=controller.kraft_version,
                raise_kraft_version=lambda version: controller.raise_kraft_version(
                    version, validate_only=request.validate_only
                ),
            ),
        ),
        answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def _upgrade_type(version: int, update: object) -> int:
    """Return the type of the update; version 0 only has allow_downgrade."""
    if version == 0:
        return UpgradeType.SAFE_DOWNGRADE if getattr(update, "allow_downgrade", False) else UpgradeType.UPGRADE
    return int(getattr(update, "upgrade_type", UpgradeType.UNKNOWN))


def refused(
    request: UpdateFeaturesRequest, version: int, code: ErrorCode, message: str | None = None
) -> UpdateFeaturesResponse:
    """Return the response to a request that failed as a whole."""
    return UpdateFeaturesResponse(error_code=code, error_message=message)


HANDLERS = Handlers(handle, refused=refused)
