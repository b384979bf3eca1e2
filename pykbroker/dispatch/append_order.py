"""The order of appends within a connection: what a request appends comes before what any later request appends.

Clients send several requests on one connection without waiting for answers. Apache Kafka reads the next one when the
one before is answered. This broker dispatches them one after the other, and most requests append while they are
dispatched. A request that must wait before it appends (for the coordinator of a transaction, for logs that are not
open, for a producer id) mutes its connection. No later request of the connection is dispatched before the waiting
request has appended or failed. Waiting for acknowledgements, flushes and answers comes after the append and mutes
nothing. An offset commit that waits for a shard's load mutes nothing either, because the shard runs waiting requests
in their order and before any later request (coordinator/held_requests.py).

Responsible for pairing each `mute` of a waiting request with one `unmute`. Not responsible for how a muted connection
stops (net/connection.py), nor for what a request waits for.

Invariants
* A connection is muted once for each wait, and unmuted when the step after the wait has returned or raised. A step
  that must wait again mutes the connection a second time before the first wait unmutes it.
* Every wait ends with a result, with an error, or with a cancellation because the node stops.
* A request that came over no connection mutes nothing: its sender waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pykbroker.coordinator.later import CallWhenDone, at_any_time
from pykbroker.dispatch.context import AnyContext
from pykbroker.net.connection import Connection

T = TypeVar("T")


def in_order(ctx: AnyContext) -> CallWhenDone:
    """Return a caller for the waits of this request before it appends. The connection is muted until the step has
    returned or raised."""
    peer = ctx.peer
    return _InOrder(peer) if isinstance(peer, Connection) else at_any_time


class _InOrder:
    """The waits of one request of a connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, awaited: asyncio.Future[T], step: Callable[[asyncio.Future[T]], object]) -> None:
        connection = self._connection

        def done(future: asyncio.Future[T]) -> None:
            try:
                step(future)
            finally:
                connection.unmute()

        connection.mute()
        awaited.add_done_callback(done)
