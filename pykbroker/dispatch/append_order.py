"""The order of appends within a connection: each request appends before any later request of the connection does.

Clients send several requests on one connection without waiting for answers. Apache Kafka reads the next request when
the one before it is answered. This broker dispatches a request without waiting for earlier answers, and most requests
append while they are dispatched. A request that must wait before it appends (for the coordinator of a transaction, for
logs that are not open, for a producer id) mutes its connection. No later request of the connection is dispatched before
the waiting request has appended or failed. A request that waits for acknowledgements, flushes or answers has already
appended, so it mutes nothing. An offset commit that waits for a shard's load mutes nothing either, because the shard
runs waiting requests in their order and before any later request (coordinator/held_requests.py).

Responsible for pairing each `mute` of a waiting request with one `unmute`. Not responsible for how a muted connection
stops (net/connection.py), nor for what a request waits for.

Invariants
* A connection is muted once for each wait, and unmuted when the step after the wait has returned or raised. If the step
  must wait again, it mutes the connection a second time before it returns, so the connection stays muted.
* Every wait ends with a result, with an error, or with a cancellation because the node stops.
* A request that came over no connection mutes nothing: its sender waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pykbroker.dispatch.context import AnyContext
from pykbroker.net.connection import Connection
from pykbroker.runtime.later import CallWhenDone, at_any_time

T = TypeVar("T")


def in_order(ctx: AnyContext) -> CallWhenDone:
    """Return a function that calls a step of this request when its wait has ended, for waits before the append. The
    connection is muted until the step has returned or raised."""
    peer = ctx.peer
    return _InOrder(peer) if isinstance(peer, Connection) else at_any_time


class _InOrder:
    """Mutes a connection while one of its requests waits."""

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
