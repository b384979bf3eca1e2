"""Waiting for promises in a test that runs on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from pykbroker.net.promise import Promise


async def results(promises: Sequence[Promise], seconds: float) -> list[Any]:
    """Return the results in order. The promises have no other callback. Raises TimeoutError after `seconds`."""
    loop = asyncio.get_running_loop()
    found: list[asyncio.Future[Any]] = [loop.create_future() for _ in promises]
    for promise, future in zip(promises, found, strict=True):
        promise.add_done_callback(partial(_pass_on, future))
    return await asyncio.wait_for(asyncio.gather(*found), seconds)


def _pass_on(future: asyncio.Future[Any], promise: Promise) -> None:
    if not future.done():
        future.set_result(promise.result())
