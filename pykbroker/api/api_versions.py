"""ApiVersions, versions 0-4. KIP-35, KIP-511 (client software), KIP-584 (features).

Lists the APIs that this half of the node serves. Features are those that are served. Their epoch is an offset of the
metadata log, as in Apache Kafka: a broker's newest one, and on the controller's listener that of their last change. An
unknown version is answered by the dispatcher, in version 0.
"""

from __future__ import annotations

import re

from pykbroker.metadata.features import SUPPORTED, finalized_features
from pykbroker.serving.context import AnyContext, is_on_broker
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: AnyContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= 3:
        if not (
            _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        ctx.peer.client_software_name = request.client_software_name
        ctx.peer.client_software_version = request.client_software_version
    response = ApiVersionsResponse(api_keys=list(ctx.services.rows.advertised))
    if ctx.api_version >= 3:
        metadata = ctx.services.metadata
        image = metadata.image
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
            for name, levels in SUPPORTED.items()
            # KIP-1022: clients before v4 refuse a minimum of 0.
            if ctx.api_version >= 4 or levels.min > 0
        ]
        finalized = finalized_features(image, ctx.services.quorum.kraft_version)
        response.finalized_features_epoch = image.offset if is_on_broker(ctx) else metadata.features_offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
        ]
    return response
