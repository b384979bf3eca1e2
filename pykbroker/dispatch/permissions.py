"""Questions to the authorizer that several APIs share."""

from __future__ import annotations

from pykbroker.dispatch.context import AnyContext
from pykbroker.security.authorizer import Operation, Resource


def may(ctx: AnyContext, operation: Operation, group_id: str, *, quiet: bool = False) -> bool:
    return ctx.authorize(operation, Resource.GROUP, group_id, quiet)


def may_read_topic(ctx: AnyContext, topic: str) -> bool:
    return ctx.authorize(Operation.READ, Resource.TOPIC, topic)


def may_write(ctx: AnyContext, transactional_id: str) -> bool:
    return ctx.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)


def may_describe(ctx: AnyContext, transactional_id: str) -> bool:
    return ctx.authorize(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id)
