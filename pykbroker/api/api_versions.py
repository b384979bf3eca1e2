"""ApiVersions, versions 0-5. KIP-35, KIP-511 (client software), KIP-584 (features), KIP-1242 (which node is meant).

It lists the APIs and the features that this half of the node serves. The epoch of the features is an offset of the
metadata log, as in Apache Kafka. On a broker it is the newest offset, on a controller's listener the offset of the
features' last change. The dispatcher answers a request of an unknown version, with a response of version 0.

From version 5 on a client may send the cluster id and the node id of the broker that it wants to reach. A broker that
is another one answers REBOOTSTRAP_REQUIRED, and the client begins again with its bootstrap addresses. A controller
compares neither id, as in Apache Kafka.
"""

from __future__ import annotations

from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.dispatch.services import BrokerServices, Services
from pykbroker.metadata.features import SUPPORTED, finalized_features
from pykbroker.security.client_software import is_valid
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)


def handle(ctx: AnyContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not is_valid(request, ctx.api_version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.api_version >= 3:
        ctx.peer.client_software_name = request.client_software_name
        ctx.peer.client_software_version = request.client_software_version
    services = ctx.services
    if isinstance(services, BrokerServices) and _means_another(request, services):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return answer(services, ctx.api_version)


def _means_another(request: ApiVersionsRequest, services: BrokerServices) -> bool:
    return request.cluster_id is not None and (
        request.cluster_id != services.cluster_id or request.node_id != services.node_id
    )


def answer(services: Services, version: int) -> ApiVersionsResponse:
    """Return the APIs and features of this half, for a client that uses `version`."""
    response = ApiVersionsResponse(api_keys=list(services.rows.advertised))
    if version >= 3:
        metadata = services.metadata
        image = metadata.image
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
            for name, levels in SUPPORTED.items()
            # KIP-1022: clients before version 4 refuse a minimum of 0.
            if version >= 4 or levels.min > 0
        ]
        finalized = finalized_features(image, services.quorum.kraft_version)
        on_broker = isinstance(services, BrokerServices)
        response.finalized_features_epoch = image.offset if on_broker else metadata.features_offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
        ]
    return response


HANDLERS = Handlers(handle)
