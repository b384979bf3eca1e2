"""The second event loop of a node, in addition to the loop on which the node was started.

Responsible for calls from one loop to the other. Not responsible for their content (crossing/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pykbroker.runtime.world import CallSoon, Runtime

T = TypeVar("T")


async def run_there(
    here: asyncio.AbstractEventLoop,
    there: asyncio.AbstractEventLoop,
    call_there: CallSoon,
    call_back: CallSoon,
    work: Callable[[], Coroutine[Any, Any, T]],
) -> T:
    """Run `work` on the loop `there`, as `Beside.run` does. Call it on the loop `here`."""
    ended: asyncio.Future[None] = here.create_future()
    tasks: list[asyncio.Task[T]] = []

    def begin() -> None:
        task = there.create_task(work())
        tasks.append(task)
        task.add_done_callback(lambda done: call_back(lambda: ended.set_result(None)))

    def cancel() -> None:
        tasks[0].cancel()

    call_there(begin)
    cancelled: asyncio.CancelledError | None = None
    # Continue to wait after each cancellation, because the work on the other loop has not ended before `ended` is done.
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as error:
            cancelled = error
            call_there(cancel)
    if cancelled is None:
        return tasks[0].result()
    # Read the exception, because the loop reports an exception that was never read.
    if not tasks[0].cancelled():
        tasks[0].exception()
    raise cancelled


class SameLoop:
    """A `Beside` for a node with one loop, whose runtime both halves use."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.call_there: CallSoon | None = None
        self.call_back: CallSoon | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await work()

    async def close(self) -> None:
        pass
