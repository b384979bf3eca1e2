"""Turns the future of an operation into the future of a response, for handlers that run on the active controller.

Not responsible for forwarding (forwarding.py, api/envelope.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.peers import ForwardedPeer
from pykbroker.runtime.later import judged
from pykbroker_wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
R = TypeVar("R")


def respond(
    ctx: ControllerContext,
    future: asyncio.Future[T],
    answer: Callable[[T], R],
    refuse: Callable[[KafkaError], R],
) -> asyncio.Future[R]:
    """Return a future of the response. `answer` makes it from a result, `refuse` from an error of the whole request.

    If the request came inside an Envelope, NOT_CONTROLLER is raised: the Envelope gets this error, and the broker tries
    again (forwarding.py).
    """

    def refuse_here(error: KafkaError) -> R:
        if _is_for_the_envelope(ctx, error):
            raise error
        return refuse(error)

    return judged(future, answer, refuse_here)


def _is_for_the_envelope(ctx: ControllerContext, error: KafkaError) -> bool:
    return error.code is ErrorCode.NOT_CONTROLLER and isinstance(ctx.peer, ForwardedPeer)


def immediately(value: R) -> asyncio.Future[R]:
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
