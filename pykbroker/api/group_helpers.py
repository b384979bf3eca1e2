"""What the group APIs share: their way to the service, and the questions they ask the authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykbroker.security.authorizer import Operation, Resource

if TYPE_CHECKING:
    from pykbroker.coordinator.group.service import GroupService
    from pykbroker.serving.context import RequestContext
    from pykbroker.serving.services import BrokerServices


def broker(ctx: RequestContext) -> BrokerServices:
    """Group APIs are only served on broker listeners (TABLE)."""
    return cast("BrokerServices", ctx.services)


def groups(ctx: RequestContext) -> GroupService:
    return broker(ctx).groups


def may(ctx: RequestContext, operation: Operation, group_id: str) -> bool:
    return ctx.authorize(operation, Resource.GROUP, group_id)


def may_read_topic(ctx: RequestContext, topic: str) -> bool:
    return ctx.authorize(Operation.READ, Resource.TOPIC, topic)
