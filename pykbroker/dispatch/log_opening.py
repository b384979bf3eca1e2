"""Opens the logs that a request names before the request continues. After the start of a node, a log may still be
closed when a request uses it.

Not responsible for opening only a few logs in each turn of the loop (storage/opening.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from pykbroker.dispatch.context import BrokerContext
from pykbroker.runtime.later import CallWhenDone, Later, at_any_time, settle

T = TypeVar("T")


def unopened(ctx: BrokerContext, asked: Iterable[tuple[str, int]]) -> asyncio.Future[None] | None:
    """Return a future that is done when all these logs have been opened or have failed to open. Return None if there is
    nothing to wait for. `asked`: topic names and partition indexes. Partitions that this node does not have are
    skipped."""
    replicas = ctx.services.replicas
    found = (replicas.find(topic, index) for topic, index in asked)
    return replicas.logs.opener.when_open(partition.handle for partition in found if partition is not None)


def when_open(
    ctx: BrokerContext,
    asked: Iterable[tuple[str, int]],
    answer: Callable[[], Later[T]],
    when_done: CallWhenDone = at_any_time,
) -> Later[T]:
    """Return the result of `answer`, or a future of it. `answer` is called now, or when all these logs have been
    opened, unless the client has gone by then. `when_done`: `append_order.in_order` for a request that writes to these
    logs."""
    opening = unopened(ctx, asked)
    if opening is None:
        return answer()
    later: asyncio.Future[T] = ctx.services.runtime.loop.create_future()

    def opened(done: asyncio.Future[None]) -> None:
        if done.cancelled():
            later.cancel()  # the node is stopping
        elif not later.done():
            settle(later, answer)

    when_done(opening, opened)
    return later
