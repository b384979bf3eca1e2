"""What the transaction APIs share: their way to the service, the questions they ask, and what old clients are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.api.group_helpers import broker
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.coordinator.transaction.service import TransactionService
    from pykbroker.serving.context import RequestContext


def transactions(ctx: RequestContext) -> TransactionService:
    return broker(ctx).transactions


def may_write(ctx: RequestContext, transactional_id: str) -> bool:
    return ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)


def may_describe(ctx: RequestContext, transactional_id: str) -> bool:
    return ctx.authorize(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id)


def known_to(client_version: int, fenced_from: int, code: ErrorCode) -> ErrorCode:
    """PRODUCER_FENCED came later than these APIs (KIP-588): older clients expect INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and client_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
