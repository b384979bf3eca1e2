"""The topics that the client of one request may read. The authorizer is asked once for each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.dispatch.permissions import may_read_topic

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext


class ReadableTopics:
    """Call `forget` before a later pass over the partitions of a request, because ACLs may have changed."""

    __slots__ = ("_allowed", "_ctx")

    def __init__(self, ctx: BrokerContext) -> None:
        self._ctx = ctx
        self._allowed: dict[str, bool] = {}

    def __call__(self, topic: str) -> bool:
        """Return True if the client has READ on the topic."""
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._allowed[topic] = may_read_topic(self._ctx, topic)
        return allowed

    def forget(self) -> None:
        if self._allowed:
            self._allowed = {}
