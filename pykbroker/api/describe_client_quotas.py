"""DescribeClientQuotas, versions 0-1. KIP-546: true answers from the metadata; no API here sets quotas yet."""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.metadata.image import QuotaEntity
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(ctx: BrokerContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)
    try:
        exact, specified = _filter(request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity, quotas in ctx.services.metadata.image.client_quotas.items():
        if _matches(entity, exact, specified, request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in quotas.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=entries)


def _filter(request: DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    """Return entity type -> the name that it must have, and the types that must be there with any name."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ("ip", "user", "client-id"):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        match component.match_type, component.match:
            case (0, None):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "An exact match needs a match string, which is null.")
            case (0, name):
                exact[kind] = name
            case (1, None):
                exact[kind] = None
            case (2, None):
                specified.add(kind)
            case (1 | 2, _):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Only an exact match may have a match string.")
            case (unknown, _):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {unknown}")
    kinds = exact.keys() | specified
    if "ip" in kinds and len(kinds) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination: an IP filter component should not be used with a user or "
            "client id one.",
        )
    return exact, specified


def _matches(entity: QuotaEntity, exact: dict[str, str | None], specified: set[str], strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(exact) + len(specified):
        return False
    return all(kind in names and names[kind] == name for kind, name in exact.items()) and specified <= names.keys()


HANDLERS = Handlers(handle)
